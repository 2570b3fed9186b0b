/* Tests of the stand-in for libnccl. */
#define _GNU_SOURCE
#include "selftest.h"
#include <pthread.h>
#include <string.h>

#define COUNT 200000

void body_all_reduce(struct rank *rank) {
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

static void test_processes(void) {
  in_processes("all-reduce", "", 0);
  /* Faults by the environment: the first call fails, and the process says so. */
  in_processes("all-reduce", "ncclAllReduce:1:error:5", 1);
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

const struct test comm_tests[] = {
    {"threads", test_threads},
    {"collectives", test_collectives},
    {"groups", test_groups},
    {"one-thread", test_one_thread},
    {"graph", test_graph},
    {"processes", test_processes},
    {"hang", test_hang},
    {"faults", test_faults},
    {"nonblocking", test_nonblocking},
    {NULL, NULL},
};
