/* Tests of the stand-in for libnccl: types, children, windows, one rank after the other. */
#define _GNU_SOURCE
#include "selftest.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

static void reduce(struct rank *rank, void *data, size_t count, ncclDataType_t type,
    ncclRedOp_t op) {
  NC(ncclAllReduce(data, data, count, type, op, rank->comm, rank->stream));
  CU(cuStreamSynchronize(rank->stream));
}

/* The greater of a value and itself is the value: all patterns but NaNs come back as they are. */
static void check_patterns(struct rank *rank, uint16_t *data, ncclDataType_t type) {
  for (int i = 0; i < 65536; i++) {
    data[i] = (uint16_t)i;
  }
  size_t count = type == ncclFloat8e4m3 || type == ncclFloat8e5m2 ? 131072 : 65536;
  reduce(rank, data, count, type, ncclMax);
  for (int i = 0; i < 65536; i++) {
    bool nan = type == ncclFloat16 ? (i & 0x7fff) > 0x7c00
        : type == ncclBfloat16     ? (i & 0x7fff) > 0x7f80
        : type == ncclFloat8e4m3   ? (i & 0x7f) == 0x7f || (i >> 8 & 0x7f) == 0x7f
                                   : (i & 0x7f) >= 0x7c || (i >> 8 & 0x7f) >= 0x7c;
    EXPECT(nan || data[i] == i);
  }
}

static void body_types(struct rank *rank) {
  void *data = allocate(rank->rank, MB2);
  uint16_t *halves = data;
  float *floats = data;
  check_patterns(rank, data, ncclFloat16);
  check_patterns(rank, data, ncclBfloat16);
#if STANDIN_NCCL_VERSION >= 22400
  check_patterns(rank, data, ncclFloat8e4m3);
  check_patterns(rank, data, ncclFloat8e5m2);
  /* 448 + 448 saturates; 1 + 1 = 2. */
  uint8_t *bytes = data;
  bytes[0] = 0x7e;
  bytes[1] = 0x38;
  reduce(rank, data, 2, ncclFloat8e4m3, ncclSum);
  EXPECT(bytes[0] == 0x7e && bytes[1] == 0x40);
#endif
  /* 2048 + 1 is 2048 in half (ties to even), 65504 + 65504 is infinite. */
  halves[0] = rank->rank == 0 ? 0x6800 : 0x3c00;
  halves[1] = 0x7bff;
  reduce(rank, data, 2, ncclFloat16, ncclSum);
  EXPECT(halves[0] == 0x6800 && halves[1] == 0x7c00);
  /* 256 + 1 is 256 in bfloat16. */
  halves[0] = rank->rank == 0 ? 0x4380 : 0x3f80;
  reduce(rank, data, 1, ncclBfloat16, ncclSum);
  EXPECT(halves[0] == 0x4380);
  /* Minimum and maximum pass over NaN. */
  floats[0] = rank->rank == 0 ? NAN : 3;
  floats[1] = NAN;
  reduce(rank, data, 2, ncclFloat32, ncclMin);
  EXPECT(floats[0] == 3 && isnan(floats[1]));
  floats[0] = (float)rank->rank;
  reduce(rank, data, 1, ncclFloat32, ncclAvg);
  EXPECT(floats[0] == 0.5f);
  ((double *)data)[0] = 3;
  reduce(rank, data, 1, ncclFloat64, ncclProd);
  EXPECT(((double *)data)[0] == 9);
  ((int8_t *)data)[0] = -100;
  reduce(rank, data, 1, ncclInt8, ncclSum);
  EXPECT(((int8_t *)data)[0] == 56);
  ((int8_t *)data)[0] = rank->rank == 0 ? -3 : 0;
  reduce(rank, data, 1, ncclInt8, ncclAvg);
  EXPECT(((int8_t *)data)[0] == -1);
  ((uint64_t *)data)[0] = UINT64_MAX - (unsigned)rank->rank;
  reduce(rank, data, 1, ncclUint64, ncclMin);
  EXPECT(((uint64_t *)data)[0] == UINT64_MAX - 1);
  /* A scalar in device memory is read when the operation runs. */
  float *scalar = (float *)((char *)data + 4096);
  ncclRedOp_t op;
  NC(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, rank->comm));
  *scalar = (float)(rank->rank + 1);
  floats[0] = 10;
  reduce(rank, data, 1, ncclFloat32, op);
  EXPECT(floats[0] == 30);
  release(data, MB2);
}

static void test_types(void) {
  on_ranks(2, body_types);
}

static int sum_over(ncclComm_t comm, CUstream stream, int32_t *data, int value) {
  data[0] = value;
  NC(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
  CU(cuStreamSynchronize(stream));
  return data[0];
}

static void body_children(struct rank *rank) {
  int me = rank->rank;
  int32_t *data = allocate(me, MB2);
  ncclComm_t child;
  int number;
  NC(ncclCommSplit(rank->comm, me == 3 ? NCCL_SPLIT_NOCOLOR : me % 2, -me, &child, NULL));
  EXPECT((child == NULL) == (me == 3));
  if (child != NULL) {
    NC(ncclCommUserRank(child, &number));
    EXPECT(number == (me == 0 ? 1 : 0));
    EXPECT(sum_over(child, rank->stream, data, me + 1) == (me == 1 ? 2 : 4));
    NC(ncclCommDestroy(child));
  }
#if STANDIN_NCCL_VERSION >= 22700
  int excluded[] = {1};
  if (me != 1) {
    NC(ncclCommShrink(rank->comm, excluded, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
    NC(ncclCommUserRank(child, &number));
    EXPECT(number == (me == 0 ? 0 : me - 1));
    EXPECT(sum_over(child, rank->stream, data, me) == 5);
    NC(ncclCommDestroy(child));
  }
#endif
#if STANDIN_NCCL_VERSION >= 22907
  NC(ncclCommSuspend(rank->comm, NCCL_SUSPEND_MEM));
  uint64_t bytes;
  NC(ncclCommMemStats(rank->comm, ncclStatGpuMemSuspended, &bytes));
  EXPECT(bytes == 1);
  FAILS(ncclInvalidUsage,
      ncclAllReduce(data, data, 1, ncclInt32, ncclSum, rank->comm, rank->stream));
  NC(ncclCommResume(rank->comm));
  EXPECT(sum_over(rank->comm, rank->stream, data, 1) == 4);
  NC(ncclCommRevoke(rank->comm, 0));
  FAILS(ncclInvalidUsage,
      ncclAllReduce(data, data, 1, ncclInt32, ncclSum, rank->comm, rank->stream));
  NC(ncclCommSplit(rank->comm, 0, me, &child, NULL));
  EXPECT(sum_over(child, rank->stream, data, 1) == 4);
  NC(ncclCommDestroy(child));
#endif
  release(data, MB2);
}

static void test_children(void) {
  on_ranks(4, body_children);
  EXPECT(standin_live("comm") == 0 && standin_live("memory") == 0);
}

#if STANDIN_NCCL_VERSION >= 22902
/* Two ranks grow to three. */
static ncclUniqueId grow_id;
static bool grow_known;

static void body_grow(struct rank *rank) {
  int32_t *data = allocate(rank->rank, MB2);
  ncclComm_t grown;
  if (rank->rank == 0) {
    NC(ncclCommGetUniqueId(rank->comm, &grow_id));
    ncclUniqueId again;
    FAILS(ncclInvalidUsage, ncclCommGetUniqueId(rank->comm, &again));
    __atomic_store_n(&grow_known, true, __ATOMIC_RELEASE);
  }
  NC(ncclCommGrow(rank->comm, 3, rank->rank == 0 ? &grow_id : NULL, -1, &grown, NULL));
  EXPECT(sum_over(grown, rank->stream, data, 1) == 3);
  NC(ncclCommDestroy(grown));
  release(data, MB2);
}

static void *new_rank(void *argument) {
  (void)argument;
  ncclComm_t comm;
  CUstream stream;
  use_device(2);
  while (!__atomic_load_n(&grow_known, __ATOMIC_ACQUIRE)) {
    standin_sleep(1);
  }
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NC(ncclCommGrow(NULL, 3, &grow_id, 2, &comm, NULL));
  int32_t *data = allocate(2, MB2);
  EXPECT(sum_over(comm, stream, data, 1) == 3);
  NC(ncclCommDestroy(comm));
  CU(cuStreamDestroy_v2(stream));
  release(data, MB2);
  return NULL;
}

static void test_grow(void) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, new_rank, NULL) == 0);
  on_ranks(2, body_grow);
  pthread_join(thread, NULL);
}

void body_window(struct rank *rank) {
  int me = rank->rank;
  int peer = 1 - me;
  void *buffer;
  ncclWindow_t window;
  NC(ncclMemAlloc(&buffer, 1000));
  NC(ncclCommWindowRegister(rank->comm, buffer, MB2, &window, 1));
  EXPECT(window != NULL);
  void *user;
  NC(ncclWinGetUserPtr(rank->comm, window, &user));
  EXPECT(user == buffer);
  void *seen;
  NC(ncclGetPeerDevicePointer(window, 8, me, &seen));
  EXPECT(seen == (char *)buffer + 8);
  FAILS(ncclInvalidArgument, ncclGetPeerDevicePointer(window, 8, 2, &seen));
  EXPECT(ncclTeamRankToWorld(rank->comm, ncclTeamLsa(rank->comm), peer) == peer);
  int32_t *data = allocate(me, MB2);
  for (int round = 1; round <= 3; round++) {
    data[0] = 100 * me + round;
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = peer};
    NC(ncclPutSignal(data, 1, ncclInt32, peer, window, 64, 0, 0, 0, rank->comm, rank->stream));
    NC(ncclWaitSignal(1, &wait, rank->comm, rank->stream));
    CU(cuStreamSynchronize(rank->stream));
    EXPECT(((int32_t *)buffer)[16] == 100 * peer + round);
    /* Read before the peer writes again. */
    NC(ncclSignal(peer, 0, 0, 0, rank->comm, rank->stream));
    NC(ncclWaitSignal(1, &wait, rank->comm, rank->stream));
    CU(cuStreamSynchronize(rank->stream));
  }
  FAILS(ncclInvalidArgument,
      ncclSignal(peer, 1, 0, 0, rank->comm, rank->stream));
  NC(ncclCommWindowDeregister(rank->comm, window));
  void *handle;
  NC(ncclCommRegister(rank->comm, buffer, 1000, &handle));
  NC(ncclCommDeregister(rank->comm, handle));
  FAILS(ncclInvalidUsage, ncclCommDeregister(rank->comm, handle));
  NC(ncclMemFree(buffer));
  release(data, MB2);
}

static void test_windows(void) {
  on_ranks(2, body_window);
  in_processes("window", "", 0);
  EXPECT(standin_live("window") == 0 && standin_live("registration") == 0);
}

static void test_params(void) {
  const char **keys;
  const char *text;
  int count;
  ncclParamHandle_t handle;
  int32_t level;
  NC(ncclParamGetAllParameterKeys(&keys, &count));
  EXPECT(count == 6);
  NC(ncclParamBind(&handle, "NCCL_DEBUG"));
  NC(ncclParamGetI32(handle, &level));
  FAILS(ncclInvalidArgument, ncclParamGetStr(handle, &text));
  FAILS(ncclInvalidArgument, ncclParamBind(&handle, "NCCL_ALGO"));
}
#else
void body_window(struct rank *rank) {
  (void)rank;
}
#endif

/*
 * Two communicators captured in parallel branches, in another order on the other rank: must not wait
 * for each other.
 */
static void body_branches(struct rank *rank) {
  int32_t *data = allocate(rank->rank, MB2);
  ncclComm_t second;
  CUstream other;
  CUevent event;
  CUgraph graph;
  CUgraphExec exec;
  NC(ncclCommSplit(rank->comm, 0, rank->rank, &second, NULL));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  data[0] = 1;
  data[64] = 1;
  CU(cuStreamBeginCapture_v2(rank->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuEventRecord(event, rank->stream));
  CU(cuStreamWaitEvent(other, event, 0));
  ncclComm_t a = rank->rank == 0 ? rank->comm : second;
  ncclComm_t b = rank->rank == 0 ? second : rank->comm;
  int at = rank->rank == 0 ? 0 : 64;
  NC(ncclAllReduce(data + at, data + at, 1, ncclInt32, ncclSum, a, rank->stream));
  NC(ncclAllReduce(data + 64 - at, data + 64 - at, 1, ncclInt32, ncclSum, b, other));
  CU(cuEventRecord(event, other));
  CU(cuStreamWaitEvent(rank->stream, event, 0));
  CU(cuStreamEndCapture(rank->stream, &graph));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 10; i++) {
    CU(cuGraphLaunch(exec, rank->stream));
  }
  CU(cuStreamSynchronize(rank->stream));
  EXPECT(data[0] == 1024 && data[64] == 1024);
  NC(ncclCommDestroy(second));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuEventDestroy_v2(event));
  CU(cuStreamDestroy_v2(other));
  release(data, MB2);
}

static void test_branches(void) {
  on_ranks(2, body_branches);
}

/* One communicator on two streams: operations keep the order of the calls. */
static void body_stress(struct rank *rank) {
  int32_t *data = allocate(rank->rank, MB2);
  CUstream other;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  data[0] = 1;
  for (int i = 0; i < 200; i++) {
    NC(ncclAllReduce(data, data, 1, ncclInt32, i % 20 == 0 ? ncclSum : ncclMax, rank->comm,
        i % 2 == 0 ? rank->stream : other));
  }
  CU(cuCtxSynchronize());
  EXPECT(data[0] == 1 << 30);
  CU(cuStreamDestroy_v2(other));
  release(data, MB2);
}

static void test_stress(void) {
  on_ranks(8, body_stress);
}

static void wait_for(ncclComm_t comm) {
  ncclResult_t state;
  do {
    NC(ncclCommGetAsyncError(comm, &state));
    if (state == ncclInProgress) {
      standin_sleep(1);
    }
  } while (state == ncclInProgress);
  EXPECT(state == ncclSuccess);
}

/* Operations and a split of non-blocking communicators. */
static void test_nonblocking_operations(void) {
  enum { N = 2 };
  ncclConfig_t nonblocking = config();
  nonblocking.blocking = 0;
  ncclComm_t comms[N];
  ncclComm_t children[N];
  CUstream streams[N];
  int32_t *data[N];
  ncclUniqueId id;
  use_device(0);
  NC(ncclGetUniqueId(&id));
  NC(ncclGroupStart());
  for (int r = 0; r < N; r++) {
    use_device(r);
    CU(cuStreamCreate(&streams[r], CU_STREAM_NON_BLOCKING));
    data[r] = allocate(r, MB2);
    NC(ncclCommInitRankConfig(&comms[r], N, id, r, &nonblocking));
  }
  FAILS(ncclInProgress, ncclGroupEnd());
  for (int r = 0; r < N; r++) {
    wait_for(comms[r]);
  }
  for (int r = 0; r < N; r++) {
    data[r][0] = r + 1;
    ncclResult_t result =
        ncclAllReduce(data[r], data[r], 1, ncclInt32, ncclSum, comms[r], streams[r]);
    EXPECT(result == ncclSuccess || result == ncclInProgress);
    wait_for(comms[r]);
  }
  NC(ncclGroupStart());
  for (int r = 0; r < N; r++) {
    NC(ncclAllReduce(data[r], data[r], 1, ncclInt32, ncclSum, comms[r], streams[r]));
  }
  FAILS(ncclInProgress, ncclGroupEnd());
  for (int r = 0; r < N; r++) {
    wait_for(comms[r]);
    CU(cuStreamSynchronize(streams[r]));
    EXPECT(data[r][0] == 6);
  }
  for (int r = 0; r < N; r++) {
    children[r] = NULL;
    FAILS(ncclInProgress, ncclCommSplit(comms[r], 0, r, &children[r], NULL));
  }
  for (int r = 0; r < N; r++) {
    wait_for(comms[r]);
    EXPECT(children[r] != NULL);
    FAILS(ncclInProgress, ncclCommFinalize(comms[r]));
  }
  for (int r = 0; r < N; r++) {
    wait_for(comms[r]);
    NC(ncclCommDestroy(children[r]));
    NC(ncclCommDestroy(comms[r]));
    CU(cuStreamDestroy_v2(streams[r]));
    release(data[r], MB2);
  }
  EXPECT(standin_live("comm") == 0);
}

/* A blocking initialisation that waits in vain, ended by an abort of another thread. */
static ncclComm_t lonely;

static void *init_lonely(void *argument) {
  use_device(0);
  EXPECT(ncclCommInitRank(&lonely, 2, *(ncclUniqueId *)argument, 0) != ncclSuccess);
  return NULL;
}

static void test_abort_of_init(void) {
  ncclUniqueId id;
  pthread_t thread;
  ncclComm_t comm;
  NC(ncclGetUniqueId(&id));
  EXPECT(pthread_create(&thread, NULL, init_lonely, &id) == 0);
  while ((comm = __atomic_load_n(&lonely, __ATOMIC_ACQUIRE)) == NULL) {
    standin_sleep(1);
  }
  standin_sleep(10);
  NC(ncclCommAbort(comm));
  pthread_join(thread, NULL);
  EXPECT(standin_live("comm") == 0);
}

/* Two ranks on one device, and a buffer that is not there. */
static void test_usage(void) {
  int one_device[] = {0, 0};
  ncclComm_t comms[2];
  CUstream stream;
  use_device(0);
  FAILS(ncclInvalidUsage, ncclCommInitAll(comms, 2, one_device));
  NC(ncclCommAbort(comms[0]));
  NC(ncclCommAbort(comms[1]));
#if STANDIN_NCCL_VERSION >= 23003
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  NC(ncclCommInitAll(comms, 2, one_device));
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  NC(ncclCommDestroy(comms[0]));
  NC(ncclCommDestroy(comms[1]));
#endif
  NC(ncclCommInitAll(comms, 1, NULL));
  /* A stream of another device. */
  use_device(1);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  int32_t *data = allocate(0, MB2);
  FAILS(ncclUnhandledCudaError,
      ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comms[0], stream));
  release(data, MB2);
  CU(cuStreamDestroy_v2(stream));
  use_device(0);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void *gone = allocate(0, MB2);
  CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)gone;
  CU(cuMemUnmap(ptr, MB2));
  NC(ncclAllReduce(gone, gone, 8, ncclInt8, ncclSum, comms[0], stream));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
  NC(ncclCommAbort(comms[0]));
  CU(cuDevicePrimaryCtxReset_v2(0));
  use_device(0);
  CU(cuMemAddressFree(ptr, MB2));
  EXPECT(standin_live("comm") == 0 && standin_live("memory") == 0);
}

const struct test type_tests[] = {
    {"types", test_types},
    {"children", test_children},
#if STANDIN_NCCL_VERSION >= 23004
    {"grow", test_grow},
    {"windows", test_windows},
    {"params", test_params},
#endif
    {"branches", test_branches},
    {"stress", test_stress},
    {"nonblocking-operations", test_nonblocking_operations},
    {"abort-of-init", test_abort_of_init},
    {"usage", test_usage},
    {NULL, NULL},
};
