/* As many cores as HETGPU_CORES says, for programs that ask which they may run on. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    const char *wanted = getenv("HETGPU_CORES");
    size_t cores = wanted ? (size_t)atoi(wanted) : 1;
    (void)pid;
    memset(set, 0, size);
    for (size_t core = 0; core < cores && core < size * 8; core++) CPU_SET_S(core, size, set);
    return 0;
}
