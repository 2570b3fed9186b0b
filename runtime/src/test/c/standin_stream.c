/* Streams: queues in order, each with a thread that works it off. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static CUstream streams;
static unsigned long long last_id;

int64_t si_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int si_thread(void *(*body)(void *), void *argument, pthread_t *thread) {
  /* Signals of the host program (a JVM handles several) must not land here, but errors must. */
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int result = pthread_create(thread, NULL, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return result;
}

struct op *si_op_create(CUgraphNodeType type, void (*run)(void *), void *data,
    void (*release)(void *)) {
  struct op *op = malloc(sizeof *op);
  *op = (struct op){.refs = 1, .type = type, .run = run, .data = data, .release = release};
  return op;
}

void si_op_retain(struct op *op) {
  __atomic_add_fetch(&op->refs, 1, __ATOMIC_ACQ_REL);
}

void si_op_release(struct op *op) {
  if (__atomic_sub_fetch(&op->refs, 1, __ATOMIC_ACQ_REL) == 0) {
    if (op->release != NULL) {
      op->release(op->data);
    }
    free(op);
  }
}

bool si_mark_done(const struct mark *mark) {
  return mark->stream->completed >= mark->seq;
}

void si_mark_release(struct mark *mark) {
  if (mark != NULL && --mark->refs == 0) {
    free(mark);
  }
}

static bool broken(CUstream stream) {
  return __atomic_load_n(&stream->ctx->sticky, __ATOMIC_ACQUIRE) != 0;
}

static void do_work(CUstream stream, struct work *work) {
  switch (work->kind) {
    case WORK_RUN:
      pthread_mutex_unlock(&si_lock);
      if (!broken(stream)) {
        work->op->run(work->op->data);
      }
      si_op_release(work->op);
      pthread_mutex_lock(&si_lock);
      break;
    case WORK_WAIT:
      while (!si_mark_done(work->mark) && !broken(stream) && !broken(work->mark->stream)) {
        pthread_cond_wait(&work->mark->stream->done, &si_lock);
      }
      break;
    case WORK_RECORD:
      work->mark->nanos = si_now();
      break;
  }
  si_mark_release(work->mark);
}

static void *worker(void *argument) {
  CUstream stream = argument;
  pthread_mutex_lock(&si_lock);
  while (true) {
    while (stream->head == NULL && !stream->destroyed) {
      pthread_cond_wait(&stream->wake, &si_lock);
    }
    struct work *work = stream->head;
    if (work == NULL) {
      break;
    }
    do_work(stream, work);
    stream->head = work->next;
    stream->completed = work->seq;
    pthread_cond_broadcast(&stream->done);
    free(work);
  }
  pthread_mutex_unlock(&si_lock);
  return NULL;
}

static uint64_t append(CUstream stream, struct work *work) {
  work->seq = ++stream->submitted;
  if (stream->head == NULL) {
    stream->head = work;
  } else {
    stream->tail->next = work;
  }
  stream->tail = work;
  if (!stream->started) {
    pthread_t thread;
    stream->started = true;
    if (si_thread(worker, stream, &thread) != 0) {
      abort();
    }
    pthread_detach(thread);
  }
  pthread_cond_signal(&stream->wake);
  return work->seq;
}

static void append_wait(CUstream stream, CUstream other) {
  if (other != NULL && other != stream && other->completed < other->submitted) {
    struct work *wait = calloc(1, sizeof *wait);
    wait->kind = WORK_WAIT;
    wait->mark = si_tail_mark(other);
    append(stream, wait);
  }
}

/* The legacy stream waits for all blocking streams of its context, and they wait for it. */
static void append_implicit_waits(CUstream stream) {
  if (stream == stream->ctx->legacy) {
    for (CUstream other = streams; other != NULL; other = other->next) {
      if (other->ctx == stream->ctx && !(other->flags & CU_STREAM_NON_BLOCKING)) {
        append_wait(stream, other);
      }
    }
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
    append_wait(stream, stream->ctx->legacy);
  }
}

struct mark *si_tail_mark(CUstream stream) {
  struct mark *mark = calloc(1, sizeof *mark);
  *mark = (struct mark){.refs = 1, .stream = stream, .seq = stream->submitted};
  return mark;
}

struct mark *si_submit_mark(CUstream stream, enum work_kind kind, struct mark *mark) {
  append_implicit_waits(stream);
  struct work *work = calloc(1, sizeof *work);
  work->kind = kind;
  work->mark = mark != NULL ? mark : si_tail_mark(stream);
  work->mark->refs++;
  uint64_t seq = append(stream, work);
  if (mark == NULL) {
    work->mark->seq = seq;
  }
  return work->mark;
}

CUresult si_submit(CUstream stream, struct op *op) {
  if (stream->capture != NULL) {
    return si_capture_add(stream, op, NULL);
  }
  append_implicit_waits(stream);
  struct work *work = calloc(1, sizeof *work);
  work->kind = WORK_RUN;
  work->op = op;
  append(stream, work);
  return CUDA_SUCCESS;
}

void si_wait_stream(CUstream stream, uint64_t seq) {
  while (stream->completed < seq && !broken(stream)) {
    pthread_cond_wait(&stream->done, &si_lock);
  }
}

CUstream si_all_streams(void) {
  return streams;
}

static CUstream create(CUcontext ctx, unsigned flags, int priority) {
  CUstream stream = calloc(1, sizeof *stream);
  stream->magic = STREAM_MAGIC;
  stream->ctx = ctx;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = ++last_id;
  pthread_cond_init(&stream->wake, NULL);
  pthread_cond_init(&stream->done, NULL);
  stream->next = streams;
  streams = stream;
  return stream;
}

CUstream si_legacy_stream(CUcontext ctx) {
  if (ctx->legacy == NULL) {
    ctx->legacy = create(ctx, 0, 0);
  }
  return ctx->legacy;
}

CUresult si_stream(CUstream handle, CUstream *stream) {
  if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    CUcontext ctx = si_current();
    CUresult result = si_legacy_use(ctx);
    *stream = si_legacy_stream(ctx);
    return result;
  }
  REQUIRE(handle->magic == STREAM_MAGIC, CUDA_ERROR_INVALID_HANDLE);
  *stream = handle;
  return CUDA_SUCCESS;
}

static CUresult create_counted(CUstream *stream, unsigned flags, int priority) {
  REQUIRE(stream != NULL && flags <= CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  *stream = create(si_current(), flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
  standin_count("stream", 1);
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  ENTER(cuStreamCreateWithPriority, NEEDS_CONTEXT);
  return create_counted(stream, flags, priority);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  ENTER(cuStreamCreate, NEEDS_CONTEXT);
  return create_counted(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(cuStreamDestroy_v2, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(stream > CU_STREAM_PER_THREAD && stream->magic == STREAM_MAGIC,
      CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != NULL) {
    si_capture_leave(stream);
  }
  /* What is queued is still done. */
  stream->magic = DEAD_MAGIC;
  stream->destroyed = true;
  pthread_cond_signal(&stream->wake);
  for (CUstream *at = &streams; *at != NULL; at = &(*at)->next) {
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  }
  standin_count("stream", -1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* A call that looks at a stream from outside: not for a capturing one. */
static CUresult observe(CUstream handle, CUstream *stream) {
  CUresult result = si_stream(handle, stream);
  REQUIRE(result == CUDA_SUCCESS, result);
  if ((*stream)->capture != NULL) {
    si_capture_fail((*stream)->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return si_unsafe();
}

static bool pending(CUstream stream) {
  bool result = stream->completed < stream->submitted;
  if (stream == stream->ctx->legacy) {
    for (CUstream other = streams; other != NULL; other = other->next) {
      result = result || (other->ctx == stream->ctx && !(other->flags & CU_STREAM_NON_BLOCKING)
          && other->completed < other->submitted);
    }
  }
  return result;
}

static CUresult state(CUstream stream) {
  return (CUresult)__atomic_load_n(&stream->ctx->sticky, __ATOMIC_ACQUIRE);
}

CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(cuStreamSynchronize, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = observe(handle, &stream);
  if (result == CUDA_SUCCESS) {
    if (stream == stream->ctx->legacy) {
      append_implicit_waits(stream);
    }
    si_wait_stream(stream, stream->submitted);
    result = state(stream);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamQuery(CUstream handle) {
  ENTER(cuStreamQuery, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = observe(handle, &stream);
  if (result == CUDA_SUCCESS) {
    result = state(stream);
    if (result == CUDA_SUCCESS && pending(stream)) {
      result = CUDA_ERROR_NOT_READY;
    }
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize, NEEDS_CONTEXT);
  CUcontext ctx = si_current();
  pthread_mutex_lock(&si_lock);
  CUresult result = si_unsafe();
  for (CUstream stream = streams; stream != NULL; stream = stream->next) {
    if (stream->ctx == ctx && stream->capture != NULL) {
      si_capture_fail(stream->capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  if (result == CUDA_SUCCESS) {
    /* The list may change while a stream is waited for: start again until all are done. */
    for (CUstream stream = streams; stream != NULL;) {
      if (stream->ctx == ctx && stream->completed < stream->submitted
          && __atomic_load_n(&ctx->sticky, __ATOMIC_ACQUIRE) == 0) {
        si_wait_stream(stream, stream->submitted);
        stream = streams;
      } else {
        stream = stream->next;
      }
    }
    result = (CUresult)__atomic_load_n(&ctx->sticky, __ATOMIC_ACQUIRE);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx) {
  ENTER(cuStreamGetCtx, NEEDS_INIT);
  REQUIRE(ctx != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    *ctx = stream->ctx;
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  ENTER(cuStreamGetPriority, NEEDS_CONTEXT);
  REQUIRE(priority != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    *priority = stream->priority;
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
  ENTER(cuStreamGetFlags, NEEDS_CONTEXT);
  REQUIRE(flags != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    *flags = stream->flags;
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
  ENTER(cuStreamGetId, NEEDS_CONTEXT);
  REQUIRE(id != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    *id = stream->id;
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

struct host_call {
  CUhostFn function;
  void *data;
};

static void run_host_call(void *data) {
  struct host_call *call = data;
  si_in_host_function = true;
  call->function(call->data);
  si_in_host_function = false;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *userData) {
  ENTER(cuLaunchHostFunc, NEEDS_CONTEXT);
  REQUIRE(fn != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    struct host_call *call = malloc(sizeof *call);
    *call = (struct host_call){fn, userData};
    result = si_submit(stream, si_op_create(CU_GRAPH_NODE_TYPE_HOST, run_host_call, call, free));
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* What the stand-in of libnccl uses. */

struct standin_order {
  struct mark *last;
  uint64_t capture_id;
  CUgraphNode node;
};

struct standin_order *standin_order_create(void) {
  return calloc(1, sizeof(struct standin_order));
}

void standin_order_destroy(struct standin_order *order) {
  pthread_mutex_lock(&si_lock);
  si_mark_release(order->last);
  pthread_mutex_unlock(&si_lock);
  free(order);
}

int standin_order_pending(struct standin_order *order) {
  pthread_mutex_lock(&si_lock);
  bool pending = order->last != NULL && !si_mark_done(order->last);
  pthread_mutex_unlock(&si_lock);
  return pending;
}

static CUresult enqueue_captured(CUstream stream, struct standin_order *order, struct op *op) {
  uint64_t id = stream->capture->id;
  if (order->capture_id == id) {
    si_nodes_add(&stream->last, order->node);
  }
  CUresult result = si_capture_add(stream, op, &order->node);
  order->capture_id = result == CUDA_SUCCESS ? id : 0;
  return result;
}

CUresult standin_enqueue(CUstream handle, struct standin_order *order, void (*run)(void *),
    void *data, void (*release)(void *)) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    struct op *op = si_op_create(CU_GRAPH_NODE_TYPE_KERNEL, run, data, release);
    if (stream->ctx != si_current()) {
      /* As with kernels: the stream must be one of the current device. */
      result = CUDA_ERROR_INVALID_HANDLE;
      si_op_release(op);
    } else if (stream->capture != NULL) {
      result = enqueue_captured(stream, order, op);
    } else {
      if (order->last != NULL && order->last->stream != stream && !si_mark_done(order->last)) {
        si_submit_mark(stream, WORK_WAIT, order->last);
      }
      result = si_submit(stream, op);
      si_mark_release(order->last);
      order->last = si_tail_mark(stream);
    }
  } else if (release != NULL) {
    release(data);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult standin_follow(CUstream handle, CUstream other_handle) {
  struct CUevent_st event = {.magic = EVENT_MAGIC, .flags = CU_EVENT_DISABLE_TIMING};
  CUstream stream;
  CUstream other;
  pthread_mutex_lock(&si_lock);
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    result = si_stream(other_handle, &other);
  }
  if (result == CUDA_SUCCESS && stream != other) {
    event.ctx = other->ctx;
    result = si_record_event(&event, other, 0);
    if (result == CUDA_SUCCESS) {
      result = si_wait_event(stream, &event, 0);
    }
    si_mark_release(event.mark);
    si_nodes_clear(&event.captured);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}
