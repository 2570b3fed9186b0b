/* The loops of a C program around ncclAllReduce, a group of ncclSend and ncclRecv, and cuStreamQuery. */
#define _GNU_SOURCE
#include <stddef.h>
#include <time.h>

enum { FLOAT32 = 7, SUM = 0, NOT_READY = 600 };

typedef int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
typedef int (*group)(void);
typedef int (*send)(const void *, size_t, int, int, void *, void *);
typedef int (*receive)(void *, size_t, int, int, void *, void *);
typedef int (*stream_query)(void *);

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Returns its time in ns, or minus NCCL's error. */
long call_loop(all_reduce call, void *buffer, size_t count, void *comm, void *stream, int times) {
  long start = now();
  for (int i = 0; i < times; i++) {
    int result = call(buffer, buffer, count, FLOAT32, SUM, comm, stream);
    if (result != 0) {
      return -result;
    }
  }
  return now() - start;
}

/* The same, where each call is a group that exchanges the halves of a buffer with a peer. */
long exchange_loop(group start_group, send send_to, receive receive_from, group end_group, char *buffer, size_t count,
                   int peer, void *comm, void *stream, int times) {
  long start = now();
  for (int i = 0; i < times; i++) {
    int result = start_group();
    result = result != 0 ? result : send_to(buffer, count, FLOAT32, peer, comm, stream);
    result = result != 0 ? result : receive_from(buffer + count * sizeof(float), count, FLOAT32, peer, comm, stream);
    result = result != 0 ? result : end_group();
    if (result != 0) {
      return -result;
    }
  }
  return now() - start;
}

/* Waits until the stream has passed everything; returns CUDA's result. */
int query_loop(stream_query query, void *stream) {
  int result = query(stream);
  while (result == NOT_READY) {
    result = query(stream);
  }
  return result;
}
