/*
 * Operations as the streams run them. Collectives go chunk by chunk: every rank puts its part into
 * its slot of the shared memory, all meet, every rank takes what it needs. Two sets of slots in turn
 * make one meeting a chunk enough. Sends and receives go through a ring buffer for each pair.
 */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <stdlib.h>
#include <string.h>

/* What a single rank gives a block of threads to scale. */
#define PART_BYTES ((size_t)16 << 10)

struct task {
  ncclComm_t comm;
  unsigned epoch;
  struct call *calls;
};

static bool is_p2p(const struct call *call) {
  return call->kind == SEND || call->kind == RECV;
}

static size_t min_size(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Which scalar each rank multiplies its part by, if any. */
static const void *scalar_of(const struct call *call, char *space) {
  if (call->op >= ncclNumOps) {
    const void *scalar = call->user.scalar;
    if (call->user.on_device) {
      memcpy(&scalar, call->user.scalar, sizeof scalar);
    }
    return scalar;
  }
  return call->op == ncclAvg && nn_inverse(space, call->type, call->comm->nranks) ? space : NULL;
}

/* Sums up one part of all ranks' slots. */
static void reduce_slots(const struct call *call, char *into, size_t part, size_t length) {
  ncclComm_t comm = call->comm;
  size_t size = nn_type_size(call->type);
  ncclRedOp_t op = call->op >= ncclAvg ? ncclSum : call->op;
  memcpy(into, nn_slot(comm, comm->parity, 0) + part * length * size, length * size);
  for (int r = 1; r < comm->nranks; r++) {
    nn_reduce(into, nn_slot(comm, comm->parity, r) + part * length * size, length, call->type, op);
  }
  if (call->op == ncclAvg && call->type <= ncclUint64) {
    nn_divide(into, length, call->type, comm->nranks);
  }
}

static bool is_reduction(enum kind kind) {
  return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
}

/* How many blocks of `count` elements the send and receive buffers have; 0: not used. */
static size_t blocks(const struct call *call, bool send) {
  size_t n = (size_t)call->comm->nranks;
  bool root = call->peer == call->comm->rank;
  switch (call->kind) {
    case ALL_REDUCE:
      return 1;
    case REDUCE:
      return send || root ? 1 : 0;
    case BROADCAST:
      return send && !root ? 0 : 1;
    case ALL_GATHER:
      return send ? 1 : n;
    case REDUCE_SCATTER:
      return send ? n : 1;
    case ALL_TO_ALL:
      return n;
    case GATHER:
      return send ? 1 : root ? n : 0;
    case SCATTER:
      return send ? (root ? n : 0) : 1;
    case SEND:
    case PUT_SIGNAL:
      return send ? 1 : 0;
    case RECV:
      return send ? 0 : 1;
    default:
      return 0;
  }
}

static void put_chunk(const struct call *call, size_t at, size_t length) {
  ncclComm_t comm = call->comm;
  size_t size = nn_type_size(call->type);
  char *slot = nn_slot(comm, comm->parity, comm->rank);
  size_t parts = blocks(call, true);
  for (size_t part = 0; part < parts; part++) {
    memcpy(slot + part * length * size,
        (const char *)call->send + (part * call->count + at) * size, length * size);
  }
  char space[8];
  const void *scalar = is_reduction(call->kind) ? scalar_of(call, space) : NULL;
  if (scalar != NULL) {
    nn_scale(slot, parts * length, call->type, scalar);
  }
}

static void take_chunk(const struct call *call, size_t at, size_t length) {
  ncclComm_t comm = call->comm;
  size_t size = nn_type_size(call->type);
  char *into = (char *)call->recv + at * size;
  size_t bytes = length * size;
  size_t stride = call->count * size;
  size_t mine = (size_t)comm->rank * bytes;
  if (blocks(call, false) == 0) {
    return;
  }
  switch (call->kind) {
    case ALL_REDUCE:
    case REDUCE:
      reduce_slots(call, into, 0, length);
      break;
    case REDUCE_SCATTER:
      reduce_slots(call, into, (size_t)comm->rank, length);
      break;
    case BROADCAST:
      memcpy(into, nn_slot(comm, comm->parity, call->peer), bytes);
      break;
    case SCATTER:
      memcpy(into, nn_slot(comm, comm->parity, call->peer) + mine, bytes);
      break;
    default:
      for (int r = 0; r < comm->nranks; r++) {
        memcpy(into + (size_t)r * stride,
            nn_slot(comm, comm->parity, r) + (call->kind == ALL_TO_ALL ? mine : 0), bytes);
      }
      break;
  }
}

/*
 * How many elements are worked on. Before 2.29.7 a single rank that scales its elements forgets the
 * last ones, since the parts they are cut into are rounded down.
 */
static size_t worked_on(const struct call *call) {
  if (STANDIN_NCCL_VERSION >= 22907 || call->comm->nranks > 1 || call->op < ncclNumOps
      || !is_reduction(call->kind)) {
    return call->count;
  }
  size_t size = nn_type_size(call->type);
  size_t parts = min_size(32, (call->count * size + PART_BYTES - 1) / PART_BYTES);
  size_t pack = 16 / size;
  return min_size(call->count, parts * ((call->count / parts + pack - 1) / pack * pack));
}

static void run_collective(const struct call *call) {
  ncclComm_t comm = call->comm;
  size_t count = worked_on(call);
  size_t size = nn_type_size(call->type);
  bool divided = call->kind == REDUCE_SCATTER || call->kind == ALL_TO_ALL || call->kind == SCATTER;
  size_t most = CHUNK_BYTES / size / (divided ? (size_t)comm->nranks : 1);
  for (size_t at = 0; at < count; at += most) {
    size_t length = min_size(most, count - at);
    put_chunk(call, at, length);
    if (!nn_barrier(comm, &comm->segment->data, &comm->barriers)) {
      return;
    }
    take_chunk(call, at, length);
    comm->parity ^= 1;
  }
}

/* Moves what can be moved of one send or receive; `done` counts its bytes. */
static size_t move(const struct call *call, size_t done, size_t total) {
  ncclComm_t comm = call->comm;
  bool sends = call->kind == SEND;
  struct channel *channel = sends ? nn_channel(comm, comm->rank, call->peer)
                                  : nn_channel(comm, call->peer, comm->rank);
  uint64_t written = __atomic_load_n(&channel->written, __ATOMIC_ACQUIRE);
  uint64_t read = __atomic_load_n(&channel->read, __ATOMIC_ACQUIRE);
  uint64_t from = sends ? written : read;
  size_t room = sends ? CHANNEL_BYTES - (size_t)(written - read) : (size_t)(written - read);
  size_t position = (size_t)(from % CHANNEL_BYTES);
  size_t length = min_size(min_size(room, total - done), CHANNEL_BYTES - position);
  if (length == 0) {
    return 0;
  }
  if (sends) {
    memcpy(channel->bytes + position, (const char *)call->send + done, length);
    __atomic_store_n(&channel->written, from + length, __ATOMIC_RELEASE);
  } else {
    memcpy((char *)call->recv + done, channel->bytes + position, length);
    __atomic_store_n(&channel->read, from + length, __ATOMIC_RELEASE);
  }
  nn_ring(&comm->segment->members[call->peer].doorbell);
  return length;
}

/* Whether an earlier call of the same kind with the same peer still has to end. */
static bool is_blocked(struct call *first, struct call *call, const size_t *done) {
  size_t i = 0;
  for (struct call *at = first; at != call; at = at->next, i++) {
    if (at->kind == call->kind && at->peer == call->peer
        && done[i] < at->count * nn_type_size(at->type)) {
      return true;
    }
  }
  return false;
}

static void run_p2p(ncclComm_t comm, struct call *first) {
  size_t count = 0;
  for (struct call *call = first; call != NULL; call = call->next) {
    count++;
  }
  size_t *done = calloc(count, sizeof *done);
  bool open = true;
  while (open && !nn_stopped(comm)) {
    unsigned *doorbell = &comm->segment->members[comm->rank].doorbell;
    unsigned seen = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    size_t moved = 0;
    size_t i = 0;
    open = false;
    for (struct call *call = first; call != NULL; call = call->next, i++) {
      size_t total = call->count * nn_type_size(call->type);
      if (done[i] < total && !is_blocked(first, call, done)) {
        size_t length = move(call, done[i], total);
        done[i] += length;
        moved += length;
      }
      open = open || done[i] < total;
    }
    if (open && moved == 0) {
      nn_wait_word(doorbell, seen);
    }
  }
  free(done);
}

/* A kernel that touches memory it has no access to breaks the context. */
static bool check_buffers(const struct call *call) {
  size_t bytes = call->count * nn_type_size(call->type);
  size_t sent = blocks(call, true) * bytes;
  size_t received = blocks(call, false) * bytes;
  if ((sent > 0 && !standin_accessible(call->send, sent, call->comm->device))
      || (received > 0 && !standin_accessible(call->recv, received, call->comm->device))) {
    standin_break(call->comm->device, CUDA_ERROR_ILLEGAL_ADDRESS);
    return false;
  }
  return true;
}

static void run_calls(struct task *task) {
  for (struct call *call = task->calls; call != NULL; call = call->next) {
    if (!nn_act(task->comm, call->action) || !check_buffers(call)) {
      return;
    }
  }
  struct call *call = task->calls;
  if (is_p2p(call)) {
    run_p2p(task->comm, call);
#if STANDIN_NCCL_VERSION >= 22902
  } else if (call->kind == PUT_SIGNAL || call->kind == SIGNAL) {
    nn_run_put(call);
  } else if (call->kind == WAIT_SIGNAL) {
    nn_run_signals(call);
#endif
  } else {
    run_collective(call);
  }
}

static void run_task(void *data) {
  struct task *task = data;
  ncclComm_t comm = task->comm;
  __atomic_add_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
  if (__atomic_load_n(&comm->epoch, __ATOMIC_ACQUIRE) == task->epoch && !nn_stopped(comm)) {
    run_calls(task);
  }
  __atomic_sub_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
}

static void release_task(void *data) {
  struct task *task = data;
  while (task->calls != NULL) {
    struct call *next = task->calls->next;
    free(task->calls->descs);
    free(task->calls);
    task->calls = next;
  }
  nn_comm_release(task->comm);
  free(task);
}

static ncclResult_t enqueue_task(struct call *calls) {
  struct task *task = malloc(sizeof *task);
  *task = (struct task){calls->comm, calls->comm->epoch, calls};
  __atomic_add_fetch(&task->comm->refs, 1, __ATOMIC_ACQ_REL);
  return nn_cuda(
      standin_enqueue(calls->stream, calls->comm->order, run_task, task, release_task));
}

/* All sends and receives of a group move together, on the first one's stream. */
static ncclResult_t enqueue_p2p(struct call *calls) {
  cudaStream_t stream = calls->stream;
  size_t count = 0;
  for (struct call *call = calls; call != NULL; call = call->next) {
    count++;
  }
  cudaStream_t *others = calloc(count, sizeof *others);
  size_t other_count = 0;
  CUresult result = CUDA_SUCCESS;
  for (struct call *call = calls; call != NULL; call = call->next) {
    bool known = call->stream == stream;
    for (size_t i = 0; i < other_count; i++) {
      known = known || others[i] == call->stream;
    }
    if (!known && result == CUDA_SUCCESS) {
      others[other_count++] = call->stream;
      result = standin_follow(stream, call->stream);
    }
  }
  ncclResult_t enqueued = enqueue_task(calls);
  for (size_t i = 0; i < other_count && result == CUDA_SUCCESS; i++) {
    result = standin_follow(others[i], stream);
  }
  free(others);
  return enqueued != ncclSuccess ? enqueued : nn_cuda(result);
}

/* Takes the calls of one communicator in a group: collectives one after the other, then the rest. */
ncclResult_t nn_enqueue(struct call *first) {
  ncclComm_t comm = first->comm;
  struct call *p2p = NULL;
  struct call **last = &p2p;
  ncclResult_t result = nn_cuda(cuCtxPushCurrent_v2(comm->ctx));
  while (first != NULL) {
    struct call *call = first;
    first = call->next;
    call->next = NULL;
    if (is_p2p(call)) {
      *last = call;
      last = &call->next;
    } else {
      ncclResult_t one = enqueue_task(call);
      result = result == ncclSuccess ? one : result;
    }
  }
  if (p2p != NULL) {
    ncclResult_t one = enqueue_p2p(p2p);
    result = result == ncclSuccess ? one : result;
  }
  cuCtxPopCurrent_v2(NULL);
  return result;
}
