/* One-sided latency in the form of OSU's osu_put_latency: -m FROM:TO, -i LOOPS, -x SKIPS, -w allocate|create|shared.
   Without a window (-w none) ranks exchange one message. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, from = 1, to = 64, loops = 10, skips = 2;
    const char *kind = "allocate";
    char *base = NULL, *source;
    MPI_Win window;
    for (int at = 1; at < argc; at++) {
        if (!strcmp(argv[at], "-m")) sscanf(argv[++at], "%d:%d", &from, &to);
        else if (!strcmp(argv[at], "-i")) loops = atoi(argv[++at]);
        else if (!strcmp(argv[at], "-x")) skips = atoi(argv[++at]);
        else if (!strcmp(argv[at], "-w")) kind = argv[++at];
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    source = calloc(1, to);
    if (!strcmp(kind, "none")) {
        MPI_Bcast(source, to, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("the program is done\n");
        MPI_Finalize();
        return 0;
    }
    if (!strcmp(kind, "allocate")) MPI_Win_allocate(to, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    else if (!strcmp(kind, "shared")) MPI_Win_allocate_shared(to, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    else MPI_Win_create(base = calloc(1, to), to, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 0) printf("# OSU MPI_Put Latency Test v7.4\n# Window creation: MPI_Win_%s\n# Datatype: MPI_CHAR.\n"
                          "# Size          Latency (us)\n", kind);
    for (int size = from; size <= to; size *= 2) {
        double start = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            for (int turn = 0; turn < skips + loops; turn++) {
                if (turn == skips) start = MPI_Wtime();
                MPI_Put(source, size, MPI_CHAR, 1, 0, size, MPI_CHAR, window);
                MPI_Win_flush(1, window);
            }
            printf("%-10d %17.2f\n", size, (MPI_Wtime() - start) * 1e6 / loops);
            MPI_Win_unlock(1, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
    if (rank == 0) printf("the program is done\n");
    MPI_Finalize();
    return 0;
}
