/*
 * Prints what one ncclAllReduce costs its caller, in ns, and what a group of ncclSend and ncclRecv does: the least of
 * many blocks of calls.
 */
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

static ncclComm_t comm;
static CUstream stream;
static void *buffer;

static void all_reduce(void) {
  require(ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclSum, comm, stream), "ncclAllReduce");
}

static void exchange(void) {
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclSend(buffer, 1, ncclInt32, 0, comm, stream), "ncclSend");
  require(ncclRecv((char *)buffer + 64, 1, ncclInt32, 0, comm, stream), "ncclRecv");
  require(ncclGroupEnd(), "ncclGroupEnd");
}

static double cost(void (*call)(void)) {
  long least = 0;
  for (int block = 0; block < BLOCKS; block++) {
    long start = now();
    for (int k = 0; k < CALLS; k++) {
      call();
    }
    long took = now() - start;
    least = block == 0 || took < least ? took : least;
    require(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  return (double)least / CALLS;
}

int main(void) {
  CUcontext context;
  ncclUniqueId id;
  require(cuInit(0), "cuInit");
  require(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  require(cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  require(cuStreamCreate(&stream, 1), "cuStreamCreate");
  require(cuMemHostAlloc(&buffer, 4096, 0), "cuMemHostAlloc");
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  require(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  printf("%.1f\n%.1f\n", cost(all_reduce), cost(exchange));
  return 0;
}
