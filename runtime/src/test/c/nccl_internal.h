/* What the files of the stand-in for libnccl share. */
#ifndef NCCL_INTERNAL_H
#define NCCL_INTERNAL_H

#include "nccl_abi.h"
#include "standin.h"
#include <pthread.h>
#include <stdbool.h>

/* Which release this library stands in for; functions newer than it are absent. */
#ifndef STANDIN_NCCL_VERSION
#define STANDIN_NCCL_VERSION 23007
#endif

#define MAX_RANKS 64
#define KEY_BYTES 40
#define CHUNK_BYTES ((size_t)256 << 10)
#define CHANNEL_BYTES ((size_t)64 << 10)
#define MAX_OPS 64
#define COMM_MAGIC 0x0280028002800280
#define DEAD_MAGIC 0xdead

/* Of the memory that device communicators' barriers take, in words. */
#define DEVICE_WORDS 16384

/* What a communicator books on its device. */
#define PERSISTENT_BYTES ((uint64_t)2 << 20)
#define SCRATCH_BYTES ((uint64_t)2 << 20)

/* Each function has a twin for profilers. */
#define TWIN(function)                                                                              \
  extern __typeof__(function) p##function                                                           \
      __attribute__((alias(#function), visibility("default")))

/* What a rank tells the others. */
struct member {
  int pid;
  int device;
  uint64_t host;
  unsigned joined;
  /* Rung by peers that have moved something in a channel of this rank. */
  unsigned doorbell;
  char note[2][64];
};

struct barrier {
  uint64_t arrivals;
  unsigned generation;
};

struct channel {
  uint64_t written;
  uint64_t read;
  char bytes[CHANNEL_BYTES];
};

/* The memory that the ranks of a communicator share; all zero at the start. */
struct segment {
  int nranks;
  unsigned arrived;
  struct barrier data;
  struct barrier control;
  struct member members[MAX_RANKS];
  /* Signals from one rank to another, and what a waiting rank has used of them. */
  uint64_t signals[MAX_RANKS][MAX_RANKS];
  /* For kernels: of each device communicator the arrivals, then each rank's number of meetings. */
  unsigned device[DEVICE_WORDS];
};

struct user_op {
  bool used;
  ncclDataType_t type;
  bool on_device;
  char scalar[8];
};

struct ncclComm {
  uint64_t magic;
  int refs;
  int rank;
  int nranks;
  int device;
  CUcontext ctx;
  ncclConfig_t config;
  char key[KEY_BYTES];
  struct segment *segment;
  size_t segment_bytes;
  struct standin_order *order;
  /* An ncclResult_t: InProgress while a job runs, then its result. */
  int async;
  unsigned abort;
  int jobs;
  int running;
  bool revoked;
  bool finalized;
  bool suspended;
  uint64_t barriers;
  uint64_t controls;
  unsigned parity;
  unsigned children;
  unsigned shrinks;
  unsigned grows;
  bool id_given;
  /* Bytes booked on the device. */
  long persistent;
  /* While a child is made, its parent's abort ends that, too. */
  ncclComm_t parent;
  /* Counted up when what is queued must not run any more. */
  unsigned epoch;
  uint64_t signals_used[MAX_RANKS];
  struct user_op ops[MAX_OPS];
  struct registration *registrations;
  struct ncclWindow_vidmem *windows;
  struct device_communicator *devices;
  unsigned device_words;
};

/* Errors: the text goes to the buffer of ncclGetLastError. */
ncclResult_t nn_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define REQUIRE(condition, result, ...)                                                             \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      return nn_fail(result, __VA_ARGS__);                                                          \
    }                                                                                               \
  } while (0)

#define CHECK(call)                                                                                 \
  do {                                                                                              \
    ncclResult_t checked_ = (call);                                                                 \
    if (checked_ != ncclSuccess) {                                                                  \
      return checked_;                                                                              \
    }                                                                                               \
  } while (0)

/* Counts a call; an error that was injected returns at once. */
#define ENTER(function, comm)                                                                       \
  static struct standin_site site_ = {#function, NULL, 0, 0};                                       \
  struct standin_action action = standin_call(&site_, nn_rank_of(comm));                            \
  if (action.kind == STANDIN_ERROR) {                                                               \
    return nn_fail((ncclResult_t)action.value, #function ": injected error %ld", action.value);     \
  }

/* As ENTER, for functions that do all at the call. */
#define ENTER_NOW(function, comm)                                                                   \
  ENTER(function, comm)                                                                             \
  nn_act(comm, action)

int nn_rank_of(ncclComm_t comm);
bool nn_alive(ncclComm_t comm);
ncclResult_t nn_cuda(CUresult result);
/* A communicator that is one; and one that is ready for use. */
ncclResult_t nn_check(ncclComm_t comm, const char *function);
ncclResult_t nn_ready(ncclComm_t comm, const char *function);

/* Does an injected delay, hang, asynchronous or sticky error; false when aborted meanwhile. */
bool nn_act(ncclComm_t comm, struct standin_action action);
bool nn_stopped(ncclComm_t comm);

/* Meeting in shared memory. */
void nn_random_key(char *key);
ncclResult_t nn_join(ncclComm_t comm);
void nn_leave(ncclComm_t comm);
bool nn_barrier(ncclComm_t comm, struct barrier *barrier, uint64_t *count);
/* All ranks give and get a note of up to 64 bytes; returns them, or NULL when aborted. */
bool nn_exchange(ncclComm_t comm, const void *mine, size_t size, void *all);
void nn_wait_word(unsigned *word, unsigned seen);
void nn_ring(unsigned *word);
void nn_wake_all(ncclComm_t comm);
char *nn_slot(ncclComm_t comm, unsigned parity, int rank);
struct channel *nn_channel(ncclComm_t comm, int from, int to);

/* Types and reductions. */
size_t nn_type_size(ncclDataType_t type);
void nn_reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t op);
void nn_scale(void *values, size_t count, ncclDataType_t type, const void *scalar);
void nn_divide(void *values, size_t count, ncclDataType_t type, int divisor);
/* 1/n in the type; false for integers. */
bool nn_inverse(void *scalar, ncclDataType_t type, int n);

/* Configurations. */
ncclResult_t nn_config(ncclConfig_t *into, const ncclConfig_t *given);

/* Groups and jobs. */
enum kind {
  ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER,
  SEND, RECV, PUT_SIGNAL, SIGNAL, WAIT_SIGNAL
};

struct call {
  enum kind kind;
  const char *name;
  const void *send;
  void *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
  struct standin_action action;
  /* One-sided: where in the peer's window; what to wait for. */
  struct ncclWindow_vidmem *window;
  size_t offset;
  int waits;
  ncclWaitSignalDesc_t *descs;
  /* Reductions with a user's operation: its state at the call. */
  struct user_op user;
  struct call *next;
};

struct job {
  ncclComm_t comm;
  /* The communicator whose settings decide whether the group blocks. */
  ncclComm_t owner;
  ncclResult_t (*run)(struct job *job);
  struct standin_action action;
  ncclComm_t *out;
  int color;
  int key;
  ncclResult_t result;
  struct job *next;
};

ncclResult_t nn_group_error(ncclResult_t result);
ncclResult_t nn_submit(struct call *call);
struct job *nn_new_job(ncclComm_t comm, ncclResult_t (*run)(struct job *job),
    struct standin_action action);
ncclResult_t nn_launch_job(struct job *job);
ncclResult_t nn_enqueue(struct call *first);

/* Communicators. */
ncclComm_t nn_comm_create(int nranks, int rank, int device);
/* False when it is gone already. */
bool nn_comm_retain(ncclComm_t comm);
void nn_comm_release(ncclComm_t comm);
void nn_comm_discard(ncclComm_t comm);
/* Discards what a call has given to its caller already, and lets him forget it. */
void nn_take_back(ncclComm_t comm, ncclComm_t *out);
/* Ends what runs and is queued; the communicator stays usable for what needs no data. */
void nn_quiesce(ncclComm_t comm);

/* Windows, device communicators. */
void nn_windows_drop(ncclComm_t comm);
void nn_devices_drop(ncclComm_t comm);
/* Where this process sees a rank's part. */
char *nn_window_part(ncclWindow_t window, int rank);
void nn_run_put(struct call *call);
bool nn_run_signals(struct call *call);

#endif
