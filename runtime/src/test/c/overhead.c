/* Prints what one ncclAllReduce costs its caller, in ns: the least of many blocks of calls. */
#define _GNU_SOURCE
#include "nccl_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 1000, CALLS = 200 };

static void require(int result, const char *call) {
  if (result != 0) {
    printf("%s failed with %d\n", call, result);
    exit(1);
  }
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(void) {
  CUcontext context;
  CUstream stream;
  void *buffer;
  ncclComm_t comm;
  ncclUniqueId id;
  require(cuInit(0), "cuInit");
  require(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  require(cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  require(cuStreamCreate(&stream, 1), "cuStreamCreate");
  require(cuMemHostAlloc(&buffer, 4096, 0), "cuMemHostAlloc");
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  require(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  long least = 0;
  for (int block = 0; block < BLOCKS; block++) {
    long start = now();
    for (int k = 0; k < CALLS; k++) {
      require(ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclSum, comm, stream),
          "ncclAllReduce");
    }
    long took = now() - start;
    least = block == 0 || took < least ? took : least;
    require(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  printf("%.1f\n", (double)least / CALLS);
  return 0;
}
