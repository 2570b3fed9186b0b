/*
 * Proves the stand-ins against themselves: `selftest` runs all, `selftest NAME` one. Linked to both
 * libraries, calls only what a program of CUDA and NCCL could, and the control in standin.h.
 */
#define _GNU_SOURCE
#include "nccl_abi.h"
#include "standin.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB2 ((size_t)2 << 20)

#define EXPECT(condition)                                                                           \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                       \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

#define CU(call) expect_code(__LINE__, #call, (int)(call), 0)
#define NC(call) expect_code(__LINE__, #call, (int)(call), 0)
#define FAILS(code, call) expect_code(__LINE__, #call, (int)(call), code)

static void expect_code(int line, const char *call, int code, int expected) {
  if (code != expected) {
    fprintf(stderr, "line %d: %s gave %d, not %d (%s)\n", line, call, code, expected,
        ncclGetLastError(NULL));
    exit(1);
  }
}

static void use_device(int device) {
  CUcontext ctx;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&ctx, device));
  CU(cuCtxSetCurrent(ctx));
}

/* Device memory by the VMM calls, for all devices. */
static void *allocate(int device, size_t size) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr ptr;
  CU(cuMemCreate(&handle, size, &prop, 0));
  CU(cuMemAddressReserve(&ptr, size, 0, 0, 0));
  CU(cuMemMap(ptr, size, 0, handle, 0));
  CU(cuMemSetAccess(ptr, size, &access, 1));
  CU(cuMemRelease(handle));
  return (void *)(uintptr_t)ptr;
}

static void release(void *at, size_t size) {
  CU(cuMemUnmap((CUdeviceptr)(uintptr_t)at, size));
  CU(cuMemAddressFree((CUdeviceptr)(uintptr_t)at, size));
}

static ncclConfig_t config(void) {
  ncclConfig_t config;
  memset(&config, 0, sizeof config);
  config.size = sizeof config;
  config.magic = 0xcafebeef;
  config.version = 23007;
  for (int *field = &config.blocking; field <= &config.graphStreamOrdering; field++) {
    *field = NCCL_CONFIG_UNDEF_INT;
  }
  config.netName = NULL;
  config.commName = NULL;
  return config;
}

/* A body run by so many ranks, as threads. */
struct rank {
  int rank;
  int nranks;
  ncclUniqueId id;
  void (*body)(struct rank *rank);
  ncclComm_t comm;
  CUstream stream;
};

static void *run_rank(void *argument) {
  struct rank *rank = argument;
  use_device(rank->rank);
  CU(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
  NC(ncclCommInitRank(&rank->comm, rank->nranks, rank->id, rank->rank));
  rank->body(rank);
  if (rank->comm != NULL) {
    NC(ncclCommDestroy(rank->comm));
  }
  CU(cuStreamDestroy_v2(rank->stream));
  CU(cuDevicePrimaryCtxRelease_v2(rank->rank));
  return NULL;
}

static void on_ranks(int nranks, void (*body)(struct rank *rank)) {
  struct rank ranks[16];
  pthread_t threads[16];
  ncclUniqueId id;
  NC(ncclGetUniqueId(&id));
  for (int r = 0; r < nranks; r++) {
    ranks[r] = (struct rank){.rank = r, .nranks = nranks, .id = id, .body = body};
    EXPECT(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
  }
  for (int r = 0; r < nranks; r++) {
    pthread_join(threads[r], NULL);
  }
}

#define COUNT 200000

static void body_all_reduce(struct rank *rank) {
  float *data = allocate(rank->rank, MB2);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < COUNT; i++) {
      data[i] = (float)(rank->rank + i % 100);
    }
    NC(ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, rank->comm, rank->stream));
    CU(cuStreamSynchronize(rank->stream));
    int n = rank->nranks;
    for (int i = 0; i < COUNT; i++) {
      EXPECT(data[i] == (float)(n * (n - 1) / 2 + n * (i % 100)));
    }
  }
  release(data, MB2);
}

static void test_threads(void) {
  on_ranks(4, body_all_reduce);
}

static void body_collectives(struct rank *rank) {
  int n = rank->nranks;
  int me = rank->rank;
  int32_t *in = allocate(me, MB2);
  int32_t *out = allocate(me, MB2);
  for (int i = 0; i < 3 * n; i++) {
    in[i] = 100 * me + i;
  }
  NC(ncclAllGather(in, out, 3, ncclInt32, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  for (int i = 0; i < 3 * n; i++) {
    EXPECT(out[i] == 100 * (i / 3) + i % 3);
  }
  NC(ncclReduceScatter(in, out, 3, ncclInt32, ncclMax, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[2] == 100 * (n - 1) + 3 * me + 2);
  NC(ncclBroadcast(in, out, 3, ncclInt32, 1, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[1] == 101);
  out[0] = -1;
  NC(ncclReduce(in, out, 3, ncclInt32, ncclSum, 2, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[0] == (me == 2 ? 100 * n * (n - 1) / 2 : -1));
  NC(ncclAllReduce(in, out, 1, ncclInt32, ncclAvg, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[0] == 100 * n * (n - 1) / 2 / n);
#if STANDIN_NCCL_VERSION >= 22803
  NC(ncclAlltoAll(in, out, 3, ncclInt32, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  for (int i = 0; i < 3 * n; i++) {
    EXPECT(out[i] == 100 * (i / 3) + 3 * me + i % 3);
  }
  NC(ncclGather(in, out, 3, ncclInt32, 0, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(me != 0 || out[3 * n - 1] == 100 * (n - 1) + 2);
  NC(ncclScatter(in, out, 3, ncclInt32, 1, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[1] == 100 + 3 * me + 1);
#endif
  int32_t factor = me + 1;
  ncclRedOp_t op;
  NC(ncclRedOpCreatePreMulSum(&op, &factor, ncclInt32, ncclScalarHostImmediate, rank->comm));
  in[0] = 1;
  NC(ncclAllReduce(in, out, 1, ncclInt32, op, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(out[0] == n * (n + 1) / 2);
  FAILS(ncclInvalidArgument,
      ncclAllReduce(in, out, 1, ncclFloat32, op, rank->comm, rank->stream));
  NC(ncclRedOpDestroy(op, rank->comm));
  FAILS(ncclInvalidArgument, ncclRedOpDestroy(op, rank->comm));
  FAILS(ncclInvalidArgument,
      ncclBroadcast(in, out, 1, ncclInt32, n, rank->comm, rank->stream));
  release(in, MB2);
  release(out, MB2);
}

static void test_collectives(void) {
  on_ranks(4, body_collectives);
}

/* All exchange with all in one group, more than a ring buffer takes. */
static void body_groups(struct rank *rank) {
  int n = rank->nranks;
  size_t count = 100000;
  int32_t *in = allocate(rank->rank, MB2);
  int32_t *out = allocate(rank->rank, MB2);
  for (size_t i = 0; i < count; i++) {
    in[i] = (int32_t)(1000000 * rank->rank) + (int32_t)i;
  }
  NC(ncclGroupStart());
  for (int peer = 0; peer < n; peer++) {
    NC(ncclSend(in, count, ncclInt32, peer, rank->comm, rank->stream));
    NC(ncclRecv(out + (size_t)peer * count, count, ncclInt32, peer, rank->comm, rank->stream));
  }
  NC(ncclGroupEnd());
  CU(cuStreamSynchronize(rank->stream));
  for (int peer = 0; peer < n; peer++) {
    EXPECT(out[(size_t)peer * count + count - 1] == 1000000 * peer + (int32_t)count - 1);
  }
  FAILS(ncclInvalidUsage, ncclGroupEnd());
  NC(ncclGroupStart());
  FAILS(ncclInvalidArgument, ncclSend(in, 1, ncclInt32, n, rank->comm, rank->stream));
  FAILS(ncclInvalidArgument, ncclGroupEnd());
  release(in, MB2);
  release(out, MB2);
}

static void test_groups(void) {
  on_ranks(4, body_groups);
}

/* One thread drives all ranks. */
static void test_one_thread(void) {
  enum { N = 4 };
  ncclComm_t comms[N];
  CUstream streams[N];
  float *data[N];
  use_device(0);
  NC(ncclCommInitAll(comms, N, NULL));
  for (int d = 0; d < N; d++) {
    use_device(d);
    CU(cuStreamCreate(&streams[d], CU_STREAM_NON_BLOCKING));
    data[d] = allocate(d, MB2);
    data[d][0] = (float)d;
  }
  NC(ncclGroupStart());
  for (int d = 0; d < N; d++) {
    NC(ncclAllReduce(data[d], data[d], 1, ncclFloat32, ncclSum, comms[d], streams[d]));
  }
  NC(ncclGroupEnd());
  for (int d = 0; d < N; d++) {
    CU(cuStreamSynchronize(streams[d]));
    EXPECT(data[d][0] == 6);
    release(data[d], MB2);
    CU(cuStreamDestroy_v2(streams[d]));
    NC(ncclCommDestroy(comms[d]));
  }
  FAILS(ncclInvalidArgument, ncclCommDestroy(comms[0]));
}

/* Capture in one stream, with a fork to another, replayed. */
static void body_graph(struct rank *rank) {
  int32_t *a = allocate(rank->rank, MB2);
  int32_t *b = allocate(rank->rank, MB2);
  CUstream other;
  CUevent fork;
  CUevent join;
  CUgraph graph;
  CUgraphExec exec;
  size_t nodes = 0;
  a[0] = 1;
  b[0] = 1;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CU(cuStreamBeginCapture_v2(rank->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuEventRecord(fork, rank->stream));
  CU(cuStreamWaitEvent(other, fork, 0));
  NC(ncclAllReduce(a, a, 1, ncclInt32, ncclSum, rank->comm, rank->stream));
  CU(cuMemcpyAsync((CUdeviceptr)(uintptr_t)(b + 1), (CUdeviceptr)(uintptr_t)b, 4, other));
  CU(cuEventRecord(join, other));
  CU(cuStreamWaitEvent(rank->stream, join, 0));
  CU(cuStreamEndCapture(rank->stream, &graph));
  CU(cuGraphGetNodes(graph, NULL, &nodes));
  EXPECT(nodes == 2);
  EXPECT(a[0] == 1);
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    CU(cuGraphLaunch(exec, rank->stream));
  }
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(a[0] == rank->nranks * rank->nranks * rank->nranks);
  EXPECT(b[1] == 1);
  CU(cuGraphExecDestroy(exec));
  CU(cuEventDestroy_v2(fork));
  CU(cuEventDestroy_v2(join));
  CU(cuStreamDestroy_v2(other));
  release(a, MB2);
  release(b, MB2);
}

static void test_graph(void) {
  on_ranks(4, body_graph);
}

/* Two processes that meet by the id. */
static void test_processes(void) {
  char path[4096];
  ncclUniqueId id;
  pid_t children[2];
  NC(ncclGetUniqueId(&id));
  EXPECT(readlink("/proc/self/exe", path, sizeof path) > 0);
  for (int r = 0; r < 2; r++) {
    children[r] = fork();
    if (children[r] == 0) {
      char rank[8];
      snprintf(rank, sizeof rank, "%d", r);
      execl("/proc/self/exe", path, "rank", rank, id.internal, (char *)NULL);
      _exit(2);
    }
  }
  for (int r = 0; r < 2; r++) {
    int status = 0;
    EXPECT(waitpid(children[r], &status, 0) == children[r]);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static int run_process(int number, const char *id) {
  struct rank rank = {.rank = number, .nranks = 2, .body = body_all_reduce};
  snprintf(rank.id.internal, sizeof rank.id.internal, "%s", id);
  run_rank(&rank);
  rank.body = body_groups;
  return 0;
}

static void test_memory(void) {
  use_device(0);
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUmemGenericAllocationHandle other;
  CUdeviceptr ptr;
  size_t free_bytes;
  size_t total;
  int fd;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &prop, 0));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 30, &prop, 0));
  CU(cuMemCreate(&handle, 2 * MB2, &prop, 0));
  CU(cuMemGetInfo_v2(&free_bytes, &total));
  EXPECT(total - free_bytes == 2 * MB2);
  CU(cuMemAddressReserve(&ptr, 2 * MB2, 0, 0, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(ptr, 2 * MB2, &access, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 4 * MB2, 0, handle, 0));
  CU(cuMemMap(ptr, 2 * MB2, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 2 * MB2, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy(ptr, ptr + MB2, 8));
  CU(cuMemSetAccess(ptr, 2 * MB2, &access, 1));
  *(int *)(uintptr_t)ptr = 42;
  CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd,
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CU(cuMemRelease(other));
  CU(cuMemRelease(handle));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
  EXPECT(*(int *)(uintptr_t)ptr == 42);
  CU(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)ptr));
  CU(cuMemRelease(other));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(ptr, 2 * MB2));
  CU(cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(ptr, MB2));
  CU(cuMemAddressFree(ptr, 2 * MB2));
  EXPECT(standin_live("memory") == 0 && standin_live("handle") == 0
      && standin_live("reservation") == 0 && standin_live("mapping") == 0);
  FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemAlloc_v2(&ptr, 1));
  EXPECT(standin_calls("cuMemAlloc_v2") == 1);
}

static void noop(void *data) {
  standin_sleep(*(int *)data);
}

static void test_capture_errors(void) {
  use_device(0);
  CUstream a;
  CUstream b;
  CUevent event;
  CUgraph graph;
  int millis = 30;
  CUstreamCaptureStatus status;
  CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, 0));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph));
  /* Synchronising a capturing stream. */
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
  CU(cuStreamIsCapturing(a, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchHostFunc(a, noop, &millis));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  EXPECT(graph == NULL);
  /* Unjoined work; the wrong stream. */
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(event, a));
  CU(cuStreamWaitEvent(b, event, 0));
  CU(cuLaunchHostFunc(b, noop, &millis));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
  /* A captured event looked at from outside. */
  FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
  /* Waiting for what is not captured. */
  CU(cuEventRecord(event, b));
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, event, 0));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  /* A global capture forbids even other streams' queries; an exempt thread may. */
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuThreadExchangeStreamCaptureMode(&mode));
  CU(cuEventSynchronize(event));
  CU(cuThreadExchangeStreamCaptureMode(&mode));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  /* Order between streams, and times. */
  CUevent before;
  float elapsed = 0;
  CU(cuEventCreate(&before, 0));
  CU(cuEventRecord(before, a));
  CU(cuLaunchHostFunc(a, noop, &millis));
  CU(cuEventRecord(event, a));
  FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  CU(cuStreamWaitEvent(b, event, 0));
  FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
  CU(cuStreamSynchronize(b));
  CU(cuEventQuery(event));
  CU(cuEventElapsedTime(&elapsed, before, event));
  EXPECT(elapsed >= 29 && elapsed < 5000);
  CU(cuEventDestroy_v2(event));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  CU(cuCtxSetCurrent(NULL));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&a, 0));
}

/* A rank that hangs; all abort. */
static void body_abort(struct rank *rank) {
  float *data = allocate(rank->rank, MB2);
  NC(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, rank->comm, rank->stream));
  standin_sleep(50);
  FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(rank->stream));
  NC(ncclCommAbort(rank->comm));
  rank->comm = NULL;
  CU(cuStreamSynchronize(rank->stream));
  release(data, MB2);
}

static void test_hang(void) {
  standin_reset();
  EXPECT(standin_fault("ncclAllReduce@1", 1, STANDIN_HANG, 0) == 0);
  on_ranks(3, body_abort);
}

static void body_errors(struct rank *rank) {
  float *data = allocate(rank->rank, MB2);
  ncclResult_t error;
  NC(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, rank->comm, rank->stream));
  FAILS(ncclInvalidUsage,
      ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
  NC(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, rank->comm, rank->stream));
  do {
    NC(ncclCommGetAsyncError(rank->comm, &error));
    standin_sleep(1);
  } while (error == ncclSuccess);
  EXPECT(error == ncclRemoteError);
  NC(ncclCommAbort(rank->comm));
  rank->comm = NULL;
  release(data, MB2);
}

static void test_faults(void) {
  standin_reset();
  for (int r = 0; r < 2; r++) {
    char name[32];
    snprintf(name, sizeof name, "ncclAllReduce@%d", r);
    EXPECT(standin_fault(name, 2, STANDIN_ERROR, ncclInvalidUsage) == 0);
    EXPECT(standin_fault(name, 3, STANDIN_ASYNC, ncclRemoteError) == 0);
  }
  on_ranks(2, body_errors);
  EXPECT(standin_calls("ncclAllReduce") == 6);
  standin_reset();
  EXPECT(standin_calls("ncclAllReduce") == 0);
  EXPECT(standin_fault("cuMemHostAlloc", 1, STANDIN_STICKY, CUDA_ERROR_ILLEGAL_ADDRESS) == 0);
  void *host;
  use_device(5);
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemHostAlloc(&host, 64, 0));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  CU(cuDevicePrimaryCtxReset_v2(5));
  use_device(5);
  CU(cuCtxSynchronize());
}

static void test_nonblocking(void) {
  standin_reset();
  ncclConfig_t nonblocking = config();
  nonblocking.blocking = 0;
  ncclComm_t comms[2] = {NULL, NULL};
  ncclUniqueId id;
  ncclResult_t state;
  use_device(0);
  NC(ncclGetUniqueId(&id));
  FAILS(ncclInProgress, ncclCommInitRankConfig(&comms[0], 2, id, 0, &nonblocking));
  EXPECT(comms[0] != NULL);
  standin_sleep(20);
  NC(ncclCommGetAsyncError(comms[0], &state));
  EXPECT(state == ncclInProgress);
  int count;
  FAILS(ncclInvalidArgument, ncclCommCount(comms[0], &count));
  use_device(1);
  FAILS(ncclInProgress, ncclCommInitRankConfig(&comms[1], 2, id, 1, &nonblocking));
  for (int r = 0; r < 2; r++) {
    do {
      standin_sleep(1);
      NC(ncclCommGetAsyncError(comms[r], &state));
    } while (state == ncclInProgress);
    EXPECT(state == ncclSuccess);
    NC(ncclCommCount(comms[r], &count));
    EXPECT(count == 2);
  }
  for (int r = 0; r < 2; r++) {
    NC(ncclCommDestroy(comms[r]));
  }
  /* Nobody else comes: aborted. */
  NC(ncclGetUniqueId(&id));
  FAILS(ncclInProgress, ncclCommInitRankConfig(&comms[0], 2, id, 0, &nonblocking));
  standin_sleep(20);
  NC(ncclCommAbort(comms[0]));
  /* Zeros are not defaults. */
  ncclConfig_t zeros = config();
  zeros.minCTAs = 0;
  NC(ncclGetUniqueId(&id));
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comms[0], 1, id, 0, &zeros));
  zeros = config();
  zeros.magic = 0;
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comms[0], 1, id, 0, &zeros));
  EXPECT(standin_live("comm") == 0);
}

static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    {"memory", test_memory},
    {"threads", test_threads},
    {"collectives", test_collectives},
    {"groups", test_groups},
    {"one-thread", test_one_thread},
    {"graph", test_graph},
    {"processes", test_processes},
    {"capture", test_capture_errors},
    {"hang", test_hang},
    {"faults", test_faults},
    {"nonblocking", test_nonblocking},
};

int main(int argc, char **argv) {
  if (argc == 4) {
    return run_process(atoi(argv[2]), argv[3]);
  }
  for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
    if (argc < 2 || strcmp(argv[1], tests[i].name) == 0) {
      tests[i].run();
      printf("%s: passed\n", tests[i].name);
      fflush(stdout);
    }
  }
  return 0;
}
