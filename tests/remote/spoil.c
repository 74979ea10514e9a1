/* Preloaded before an MPI: spoils one element of every SPOIL_EVERY-th result of SPOIL_BYTES bytes in the function
 * SPOIL_IN, on rank SPOIL_RANK. SPOIL_AT is the element, -1 the last one; `stale` leaves the result unwritten. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int calls;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int is_next(const char *function, size_t bytes) {
    int rank;
    const char *wanted = getenv("SPOIL_IN");
    if (!wanted || strcmp(wanted, function) || (long)bytes != setting("SPOIL_BYTES", 65536)) return 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return ++calls % setting("SPOIL_EVERY", 17) == 0 && rank == setting("SPOIL_RANK", 1);
}

static size_t size_of(long count, MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    return (size_t)count * (size_t)size;
}

/* Call a function, and spoil one of the `bytes` of its result, in elements of `type`. */
#define SPOILED(function, result, count, type, call)                          \
    size_t bytes = size_of(count, type), width = size_of(1, type);            \
    int next = is_next(function, bytes);                                      \
    int stale = next && getenv("SPOIL_AT") && !strcmp(getenv("SPOIL_AT"), "stale"); \
    void *kept = stale ? memcpy(malloc(bytes), result, bytes) : NULL;         \
    int code = call;                                                          \
    if (stale) {                                                              \
        memcpy(result, kept, bytes);                                          \
        free(kept);                                                           \
    } else if (next) {                                                        \
        long at = setting("SPOIL_AT", 12);                                    \
        ((char *)result)[(at < 0 ? bytes / width + (size_t)at : (size_t)at) * width] ^= 1; \
    }                                                                         \
    return code;

int MPI_Allreduce(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) {
    SPOILED("allreduce", r, n, t, PMPI_Allreduce(s, r, n, t, o, c))
}

int MPI_Bcast(void *r, int n, MPI_Datatype t, int root, MPI_Comm c) {
    SPOILED("broadcast", r, n, t, PMPI_Bcast(r, n, t, root, c))
}

int MPI_Alltoall(const void *s, int sn, MPI_Datatype st, void *r, int n, MPI_Datatype t, MPI_Comm c) {
    int ranks;
    PMPI_Comm_size(c, &ranks);
    SPOILED("alltoall", r, (long)n * ranks, t, PMPI_Alltoall(s, sn, st, r, n, t, c))
}

int MPI_Recv(void *r, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *status) {
    SPOILED("send_recv", r, n, t, PMPI_Recv(r, n, t, from, tag, c, status))
}

int MPI_Sendrecv(const void *s, int sn, MPI_Datatype st, int to, int stag, void *r, int n, MPI_Datatype t, int from,
                 int tag, MPI_Comm c, MPI_Status *status) {
    SPOILED("bidirectional_send_recv", r, n, t, PMPI_Sendrecv(s, sn, st, to, stag, r, n, t, from, tag, c, status))
}
