/*
 * The twins of the kernels that communicate, of the same source as the PTX. A kernel is called for
 * one thread after another, between two meetings with the other ranks.
 */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <sched.h>
#include <time.h>

#if STANDIN_NCCL_VERSION >= 23000

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef u16 half;

static _Thread_local u64 at_thread;
static _Thread_local u64 of_threads;

static inline half add_half(half a, half b) {
  nn_reduce(&a, &b, 1, ncclFloat16, ncclSum);
  return a;
}

#define EXECUTE static void
#define WINDOW ncclWindow_t
#define COMMUNICATOR const ncclDevComm_t
#define DEVICE static inline
#define THREAD at_thread
#define THREADS of_threads
#define PART(type, window, offset, rank) ((type *)(nn_window_part(window, rank) + (offset)))
#define ADD_half(a, b) add_half(a, b)
#define BEGIN(comm) (void)(comm)
#define END(comm) (void)(comm)
#include "bench/src/main/kernels/lsa.cu"

/* A kernel that waits for a rank which never comes would keep the process: it gives up. */
#define PATIENCE_SECONDS 30

static bool meet(const ncclDevComm_t *comm, unsigned blocks) {
  if (comm->magic != NCCL_API_MAGIC || blocks > (unsigned)comm->lsaBarrier.nBarriers) {
    return false;
  }
  unsigned *words = (unsigned *)(void *)comm->resourceWindow_inlined.lsaFlatBase;
  unsigned last = ++words[1 + comm->rank] * (unsigned)comm->nRanks;
  __atomic_add_fetch(&words[0], 1, __ATOMIC_ACQ_REL);
  time_t start = time(NULL);
  while ((int)(__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) - last) < 0) {
    if (time(NULL) - start > PATIENCE_SECONDS) {
      return false;
    }
    sched_yield();
  }
  return true;
}

typedef void (*kernel)(ncclWindow_t from, u64 from_offset, ncclWindow_t to, u64 to_offset,
    u64 count, ncclDevComm_t comm);

static void run(kernel function, void **params, const unsigned grid[3], const unsigned block[3]) {
  const ncclDevComm_t *comm = params[5];
  of_threads = (u64)grid[0] * block[0];
  if (meet(comm, grid[0])) {
    for (at_thread = 0; at_thread < of_threads; at_thread++) {
      function(*(ncclWindow_t *)params[0], *(u64 *)params[1], *(ncclWindow_t *)params[2],
          *(u64 *)params[3], *(u64 *)params[4], *comm);
    }
    meet(comm, grid[0]);
  }
}

#define TWIN_OF(name)                                                                               \
  static void twin_##name(void **params, const unsigned grid[3], const unsigned block[3]) {         \
    run(nccl4j_##name, params, grid, block);                                                        \
  }                                                                                                 \
  __attribute__((constructor)) static void add_##name(void) {                                       \
    standin_kernel("nccl4j_" #name, twin_##name, 6,                                                 \
        (const size_t[]){8, 8, 8, 8, 8, sizeof(ncclDevComm_t)});                                    \
  }

#define TWINS(program, suffix) TWIN_OF(program##1_##suffix) TWIN_OF(program##2_##suffix)

/* Of docs/examples/peer-sum.cu, by hand. */
static void twin_peer_sum(void **params, const unsigned grid[3], const unsigned block[3]) {
  (void)block;
  const ncclDevComm_t *comm = params[3];
  float *out = *(float **)params[1];
  if (!meet(comm, grid[0])) {
    return;
  }
  for (unsigned i = 0; i < *(unsigned *)params[2]; i++) {
    float sum = 0;
    for (int peer = 0; peer < comm->lsaSize; peer++) {
      sum += PART(float, *(ncclWindow_t *)params[0], 0, peer)[i];
    }
    out[i] = sum;
  }
  meet(comm, grid[0]);
}

__attribute__((constructor)) static void add_peer_sum(void) {
  standin_kernel("peer_sum", twin_peer_sum, 4, (const size_t[]){8, 8, 4, sizeof(ncclDevComm_t)});
}

TWINS(allreduce, u8)
TWINS(allreduce, u32)
TWINS(allreduce, u64)
TWINS(allreduce, half)
TWINS(allreduce, float)
TWINS(allreduce, double)
TWINS(alltoall, 8)
TWINS(alltoall, 16)
TWINS(alltoall, 32)
TWINS(alltoall, 64)

#else
/* ISO C forbids an empty file. */
typedef int nothing_before_2_30;
#endif
