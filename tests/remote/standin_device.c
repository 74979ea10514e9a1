/* What programs call of NVIDIA's driver and of the HIP runtime, over the host's own memory: one "device" for tests.
   Addresses that were not allocated, or are freed twice, end the process. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64
static void *given[MOST];
static int failing(void) { return getenv("STANDIN_FULL") != NULL; }

static int take(void **found, size_t size) {
  if (failing()) return 2;
  for (int i = 0; i < MOST; i++)
    if (!given[i]) { *found = given[i] = malloc(size); return 0; }
  return 2;
}
static int give(void *address) {
  for (int i = 0; i < MOST; i++)
    if (given[i] == address) { free(address); given[i] = NULL; return 0; }
  fprintf(stderr, "stand-in: freed what it never gave\n");
  abort();
}

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = getenv("STANDIN_NONE") ? 0 : 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &given; return 0; }
int cuCtxSetCurrent(void *context) { return context != &given; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Stand-in %d", device); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = which == 75 ? 9 : 0; return 0; }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0; }
int cuMemAlloc_v2(void **found, size_t size) { return take(found, size); }
int cuMemAllocManaged(void **found, size_t size, unsigned flags) { return flags == 1 ? take(found, size) : 1; }
int cuMemFree_v2(void *address) { return give(address); }
int cuMemcpyHtoD_v2(void *target, const void *source, size_t size) { memcpy(target, source, size); return 0; }
int cuMemcpyDtoH_v2(void *target, const void *source, size_t size) { memcpy(target, source, size); return 0; }
int cuCtxSynchronize(void) { return 0; }

int hipInit(unsigned flags) { return 0; }
int hipGetDeviceCount(int *count) { *count = 1; return 0; }
int hipSetDevice(int device) { return device != 0; }
int hipDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Stand-in of HIP"); return 0; }
int hipDeviceTotalMem(size_t *bytes, int device) { *bytes = 1 << 30; return 0; }
int hipDeviceGetPCIBusId(char *place, int length, int device) { snprintf(place, length, "0000:c1:00.0"); return 0; }
const char *hipGetErrorName(int code) { return "hipErrorOutOfMemory"; }
int hipMalloc(void **found, size_t size) { return take(found, size); }
int hipMallocManaged(void **found, size_t size, unsigned flags) { return flags == 1 ? take(found, size) : 1; }
int hipFree(void *address) { return give(address); }
int hipMemcpy(void *target, const void *source, size_t size, int way) { memcpy(target, source, size); return 0; }
int hipDeviceSynchronize(void) { return 0; }
