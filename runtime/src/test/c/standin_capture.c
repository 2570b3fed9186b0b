/*
 * Capture of streams. The rules and codes are those of the driver: a capture that was hurt stays
 * invalidated until it is ended, and every call on it says so.
 */
#include "cuda_internal.h"
#include <stdlib.h>
#include <string.h>

static struct capture *captures;
static uint64_t last_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void si_nodes_add(struct nodes *nodes, CUgraphNode node) {
  for (size_t i = 0; i < nodes->count; i++) {
    if (nodes->at[i] == node) {
      return;
    }
  }
  nodes->at = realloc(nodes->at, (nodes->count + 1) * sizeof *nodes->at);
  nodes->at[nodes->count++] = node;
}

void si_nodes_clear(struct nodes *nodes) {
  free(nodes->at);
  *nodes = (struct nodes){NULL, 0};
}

void si_nodes_set(struct nodes *nodes, const struct nodes *from) {
  nodes->count = from->count;
  nodes->at = realloc(nodes->at, (from->count + 1) * sizeof *nodes->at);
  if (from->count > 0) {
    memcpy(nodes->at, from->at, from->count * sizeof *nodes->at);
  }
}

struct capture *si_capture_find(uint64_t id) {
  for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
    if (capture->id == id) {
      return capture;
    }
  }
  return NULL;
}

void si_capture_fail(struct capture *capture) {
  capture->invalidated = true;
}

/*
 * Calls that may wait for the device or allocate: a capture of this thread forbids them unless it is
 * relaxed, a global one forbids them to all threads; a thread can exempt itself by its own mode.
 */
CUresult si_unsafe(void) {
  CUresult result = CUDA_SUCCESS;
  for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
    bool own = pthread_equal(capture->thread, pthread_self());
    bool hurt = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL
        ? own || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL
        : own && capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if (hurt && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
      si_capture_fail(capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

/* Using the legacy stream would make it wait for blocking streams, of which one is capturing. */
CUresult si_legacy_use(CUcontext ctx) {
  CUresult result = CUDA_SUCCESS;
  for (CUstream stream = si_all_streams(); stream != NULL; stream = stream->next) {
    if (stream->ctx == ctx && stream->capture != NULL
        && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
      si_capture_fail(stream->capture);
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return result;
}

CUresult si_capture_add(CUstream stream, struct op *op, CUgraphNode *added) {
  if (stream->capture->invalidated) {
    si_op_release(op);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  CUgraphNode node = si_graph_add(stream->capture->graph, op, &stream->last);
  struct nodes only = {&node, 1};
  si_nodes_set(&stream->last, &only);
  if (added != NULL) {
    *added = node;
  }
  return CUDA_SUCCESS;
}

CUresult si_capture_wait(CUstream stream, CUevent event) {
  struct capture *capture = stream->capture;
  if (event->capture_id == 0) {
    /* A capturing stream would wait for work that is not captured. */
    si_capture_fail(capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  struct capture *from = si_capture_find(event->capture_id);
  REQUIRE(from != NULL, CUDA_ERROR_CAPTURED_EVENT);
  if (from->invalidated || (capture != NULL && capture->invalidated)) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (stream == stream->ctx->legacy) {
    si_capture_fail(from);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (capture != NULL && capture != from) {
    si_capture_fail(from);
    si_capture_fail(capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (capture == NULL) {
    stream->capture = from;
    si_nodes_clear(&stream->last);
  }
  for (size_t i = 0; i < event->captured.count; i++) {
    si_nodes_add(&stream->last, event->captured.at[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture_v2, NEEDS_INIT);
  REQUIRE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(handle > CU_STREAM_PER_THREAD, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  CHECK(stream->capture == NULL, CUDA_ERROR_ILLEGAL_STATE);
  struct capture *capture = calloc(1, sizeof *capture);
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->origin = stream;
  capture->graph = si_graph_create();
  capture->graph->capturing = true;
  capture->next = captures;
  captures = capture;
  stream->capture = capture;
  si_nodes_clear(&stream->last);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static void mark_reached(const struct nodes *nodes, bool *reached) {
  for (size_t i = 0; i < nodes->count; i++) {
    if (!reached[nodes->at[i]->index]) {
      reached[nodes->at[i]->index] = true;
      mark_reached(&nodes->at[i]->deps, reached);
    }
  }
}

/* Whether the origin's end comes after the ends of all other streams of the capture. */
static bool is_joined(struct capture *capture) {
  bool joined = true;
  bool *reached = calloc(capture->graph->nodes.count + 1, sizeof *reached);
  mark_reached(&capture->origin->last, reached);
  for (CUstream stream = si_all_streams(); stream != NULL; stream = stream->next) {
    if (stream->capture == capture) {
      for (size_t i = 0; i < stream->last.count; i++) {
        joined = joined && reached[stream->last.at[i]->index];
      }
    }
  }
  free(reached);
  return joined;
}

static void end(struct capture *capture) {
  for (CUstream stream = si_all_streams(); stream != NULL; stream = stream->next) {
    if (stream->capture == capture) {
      stream->capture = NULL;
      si_nodes_clear(&stream->last);
    }
  }
  for (struct capture **at = &captures; *at != NULL; at = &(*at)->next) {
    if (*at == capture) {
      *at = capture->next;
      break;
    }
  }
  free(capture);
}

/* A stream is destroyed: nobody can end a capture that began in it. */
void si_capture_leave(CUstream stream) {
  struct capture *capture = stream->capture;
  if (capture->origin == stream) {
    si_graph_free(capture->graph);
    end(capture);
  } else {
    si_capture_fail(capture);
    stream->capture = NULL;
    si_nodes_clear(&stream->last);
  }
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  ENTER(cuStreamEndCapture, NEEDS_INIT);
  REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(handle > CU_STREAM_PER_THREAD, CUDA_ERROR_ILLEGAL_STATE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  struct capture *capture = stream->capture;
  CHECK(capture != NULL, CUDA_ERROR_ILLEGAL_STATE);
  *graph = NULL;
  if (capture->origin != stream) {
    si_capture_fail(capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    goto done;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
      && !pthread_equal(capture->thread, pthread_self())) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    goto done;
  }
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!is_joined(capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
    (*graph)->capturing = false;
  } else {
    si_graph_free(capture->graph);
  }
  end(capture);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static CUstreamCaptureStatus status_of(CUstream stream) {
  return stream->capture == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
      : stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  ENTER(cuStreamIsCapturing, NEEDS_INIT);
  REQUIRE(status != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    *status = status_of(stream);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
    CUgraph *graph, const CUgraphNode **dependencies, size_t *numDependencies) {
  ENTER(cuStreamGetCaptureInfo_v2, NEEDS_INIT);
  REQUIRE(status != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  *status = status_of(stream);
  if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (id != NULL) {
      *id = stream->capture->id;
    }
    if (graph != NULL) {
      *graph = stream->capture->graph;
    }
    if (dependencies != NULL) {
      *dependencies = stream->last.at;
    }
    if (numDependencies != NULL) {
      *numDependencies = stream->last.count;
    }
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode, NEEDS_INIT);
  REQUIRE(mode != NULL && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED,
      CUDA_ERROR_INVALID_VALUE);
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
