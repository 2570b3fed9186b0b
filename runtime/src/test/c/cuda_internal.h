/* What the files of the stand-in for libcuda share. */
#ifndef CUDA_INTERNAL_H
#define CUDA_INTERNAL_H

#include "standin.h"
#include <pthread.h>
#include <stdbool.h>

#define MAX_DEVICES 16
#define GRANULARITY ((size_t)2 << 20)

/* One lock for all: the stand-in is to be right, not fast. Never held while a work runs. */
extern pthread_mutex_t si_lock;

struct CUctx_st {
  int device;
  int retained;
  int sticky;
  unsigned flags;
  size_t used;
  unsigned peers;
  CUstream legacy;
};

extern struct CUctx_st si_contexts[MAX_DEVICES];

/* What a call needs before it does anything. */
enum si_needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };

CUresult si_enter(struct standin_site *site, enum si_needs needs);

#define ENTER(function, needs)                                                                      \
  do {                                                                                              \
    static struct standin_site site_ = {#function, NULL, 0, 0};                                     \
    CUresult entered_ = si_enter(&site_, needs);                                                    \
    if (entered_ != CUDA_SUCCESS) {                                                                 \
      return entered_;                                                                              \
    }                                                                                               \
  } while (0)

#define REQUIRE(condition, error)                                                                   \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      return error;                                                                                 \
    }                                                                                               \
  } while (0)

/* For functions that hold the lock: sets `result` and goes to the end. */
#define CHECK(condition, error)                                                                     \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      result = error;                                                                               \
      goto done;                                                                                    \
    }                                                                                               \
  } while (0)

CUcontext si_current(void);
extern _Thread_local bool si_in_host_function;
int si_device_count(void);
int si_driver_version(void);
size_t si_device_memory(void);
bool si_fabric(void);

/* A thing to do, shared by the queues and graphs that hold it. */
struct op {
  int refs;
  CUgraphNodeType type;
  void (*run)(void *data);
  void *data;
  void (*release)(void *data);
};

struct op *si_op_create(CUgraphNodeType type, void (*run)(void *), void *data,
    void (*release)(void *));
void si_op_retain(struct op *op);
void si_op_release(struct op *op);

/* A place in a stream, reached when the stream has completed so many works. */
struct mark {
  int refs;
  CUstream stream;
  uint64_t seq;
  int64_t nanos;
};

bool si_mark_done(const struct mark *mark);
void si_mark_release(struct mark *mark);

enum work_kind { WORK_RUN, WORK_WAIT, WORK_RECORD };

struct work {
  struct work *next;
  enum work_kind kind;
  uint64_t seq;
  struct op *op;
  struct mark *mark;
};

struct nodes {
  CUgraphNode *at;
  size_t count;
};

/* Structures of streams and events are never freed, so that a stale handle is found out. */
#define STREAM_MAGIC 0x5354524d
#define EVENT_MAGIC 0x45564e54
#define DEAD_MAGIC 0xdeaddead

struct CUstream_st {
  unsigned magic;
  CUcontext ctx;
  unsigned flags;
  int priority;
  unsigned long long id;
  bool started;
  bool destroyed;
  struct work *head;
  struct work *tail;
  uint64_t submitted;
  uint64_t completed;
  pthread_cond_t wake;
  pthread_cond_t done;
  struct capture *capture;
  struct nodes last;
  CUstream next;
};

struct CUevent_st {
  unsigned magic;
  CUcontext ctx;
  unsigned flags;
  struct mark *mark;
  uint64_t capture_id;
  struct nodes captured;
};

struct capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalidated;
  CUstream origin;
  CUgraph graph;
  struct capture *next;
};

struct CUgraphNode_st {
  CUgraph graph;
  size_t index;
  struct op *op;
  struct nodes deps;
};

struct CUgraph_st {
  unsigned magic;
  bool capturing;
  struct nodes nodes;
};

/* All si_ functions below are called with the lock held. */

CUresult si_stream(CUstream handle, CUstream *stream);
CUresult si_submit(CUstream stream, struct op *op);
struct mark *si_submit_mark(CUstream stream, enum work_kind kind, struct mark *mark);
struct mark *si_tail_mark(CUstream stream);
void si_wait_stream(CUstream stream, uint64_t seq);
CUstream si_all_streams(void);
CUstream si_legacy_stream(CUcontext ctx);
CUresult si_wait_event(CUstream stream, CUevent event, unsigned flags);
CUresult si_record_event(CUevent event, CUstream stream, unsigned flags);

void si_nodes_add(struct nodes *nodes, CUgraphNode node);
void si_nodes_set(struct nodes *nodes, const struct nodes *from);
void si_nodes_clear(struct nodes *nodes);

/* The error of a call that must not happen during captures; invalidates them. */
CUresult si_unsafe(void);
CUresult si_legacy_use(CUcontext ctx);
CUresult si_capture_add(CUstream stream, struct op *op, CUgraphNode *node);
CUresult si_capture_wait(CUstream stream, CUevent event);
void si_capture_fail(struct capture *capture);
void si_capture_leave(CUstream stream);
struct capture *si_capture_find(uint64_t id);

CUgraph si_graph_create(void);
CUgraphNode si_graph_add(CUgraph graph, struct op *op, const struct nodes *deps);
void si_graph_free(CUgraph graph);

/* Starts a thread that no signal of the host program disturbs. */
int si_thread(void *(*body)(void *), void *argument, pthread_t *thread);

int64_t si_now(void);
CUresult si_check_range(CUdeviceptr ptr, size_t size, int device);

#endif
