/* Events. */
#include "cuda_internal.h"
#include <stdlib.h>

#define RECORD_EXTERNAL 1
#define WAIT_EXTERNAL 1

static bool is_event(CUevent event) {
  return event != NULL && event->magic == EVENT_MAGIC;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  ENTER(cuEventCreate, NEEDS_CONTEXT);
  REQUIRE(event != NULL && flags < 8, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING),
      CUDA_ERROR_INVALID_VALUE);
  *event = calloc(1, sizeof **event);
  (*event)->magic = EVENT_MAGIC;
  (*event)->ctx = si_current();
  (*event)->flags = flags;
  standin_count("event", 1);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(cuEventDestroy_v2, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  event->magic = DEAD_MAGIC;
  si_mark_release(event->mark);
  event->mark = NULL;
  si_nodes_clear(&event->captured);
  standin_count("event", -1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* A node of a graph that records an event: as if a stream had done it just now. */
static void run_record(void *data) {
  CUevent event = data;
  pthread_mutex_lock(&si_lock);
  if (event->magic == EVENT_MAGIC) {
    si_mark_release(event->mark);
    event->mark = si_tail_mark(si_legacy_stream(event->ctx));
    event->mark->seq = 0;
    event->mark->nanos = si_now();
  }
  pthread_mutex_unlock(&si_lock);
}

static void run_wait(void *data) {
  CUevent event = data;
  pthread_mutex_lock(&si_lock);
  struct mark *mark = event->mark;
  if (event->magic == EVENT_MAGIC && mark != NULL) {
    mark->refs++;
    si_wait_stream(mark->stream, mark->seq);
    si_mark_release(mark);
  }
  pthread_mutex_unlock(&si_lock);
}

CUresult si_record_event(CUevent event, CUstream stream, unsigned flags) {
  REQUIRE(event->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != NULL && (flags & RECORD_EXTERNAL)) {
    return si_submit(stream,
        si_op_create(CU_GRAPH_NODE_TYPE_EVENT_RECORD, run_record, event, NULL));
  }
  if (stream->capture != NULL) {
    REQUIRE(!stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    event->capture_id = stream->capture->id;
    si_nodes_set(&event->captured, &stream->last);
    return CUDA_SUCCESS;
  }
  event->capture_id = 0;
  si_nodes_clear(&event->captured);
  si_mark_release(event->mark);
  event->mark = si_submit_mark(stream, WORK_RECORD, NULL);
  return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream handle, unsigned flags) {
  REQUIRE(flags <= RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = CUDA_SUCCESS;
  CHECK(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    result = si_record_event(event, stream, flags);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  ENTER(cuEventRecord, NEEDS_INIT);
  return record(event, handle, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
  ENTER(cuEventRecordWithFlags, NEEDS_INIT);
  return record(event, handle, flags);
}

CUresult si_wait_event(CUstream stream, CUevent event, unsigned flags) {
  if (stream->capture != NULL && (flags & WAIT_EXTERNAL)) {
    return si_submit(stream, si_op_create(CU_GRAPH_NODE_TYPE_WAIT_EVENT, run_wait, event, NULL));
  }
  if (stream->capture != NULL || event->capture_id != 0) {
    return si_capture_wait(stream, event);
  }
  if (event->mark != NULL && !si_mark_done(event->mark)) {
    si_submit_mark(stream, WORK_WAIT, event->mark);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  ENTER(cuStreamWaitEvent, NEEDS_INIT);
  REQUIRE(flags <= WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = CUDA_SUCCESS;
  CHECK(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    result = si_wait_event(stream, event, flags);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* Looking at an event from outside; a captured one has nothing to show. */
static CUresult observe(CUevent event) {
  REQUIRE(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  if (event->capture_id != 0) {
    struct capture *capture = si_capture_find(event->capture_id);
    if (capture != NULL) {
      si_capture_fail(capture);
    }
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return si_unsafe();
}

CUresult cuEventQuery(CUevent event) {
  ENTER(cuEventQuery, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  CUresult result = observe(event);
  if (result == CUDA_SUCCESS) {
    result = (CUresult)standin_broken(event->ctx->device);
  }
  if (result == CUDA_SUCCESS && event->mark != NULL && !si_mark_done(event->mark)) {
    result = CUDA_ERROR_NOT_READY;
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  CUresult result = observe(event);
  if (result == CUDA_SUCCESS) {
    struct mark *mark = event->mark;
    if (mark != NULL) {
      mark->refs++;
      si_wait_stream(mark->stream, mark->seq);
      si_mark_release(mark);
    }
    result = (CUresult)standin_broken(event->ctx->device);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
  REQUIRE(milliseconds != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUresult result = CUDA_SUCCESS;
  CHECK(is_event(start) && is_event(end), CUDA_ERROR_INVALID_HANDLE);
  CHECK(!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
  CHECK(start->capture_id == 0 && end->capture_id == 0, CUDA_ERROR_CAPTURED_EVENT);
  CHECK(start->mark != NULL && end->mark != NULL, CUDA_ERROR_INVALID_HANDLE);
  CHECK(start->ctx == end->ctx, CUDA_ERROR_INVALID_HANDLE);
  CHECK(si_mark_done(start->mark) && si_mark_done(end->mark), CUDA_ERROR_NOT_READY);
  *milliseconds = (float)(end->mark->nanos - start->mark->nanos) / 1e6f;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  ENTER(cuEventElapsedTime, NEEDS_INIT);
  return elapsed(milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  ENTER(cuEventElapsedTime_v2, NEEDS_INIT);
  return elapsed(milliseconds, start, end);
}
