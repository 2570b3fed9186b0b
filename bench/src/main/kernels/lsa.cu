/*
 * allReduce and allToAll by kernels that communicate themselves, over NCCL's device API: threads
 * load from the windows of all ranks and store into them, which needs memory that each rank reaches
 * (LSA). Kernels 1 move element by element, kernels 2 sixteen bytes at a time where alignment lets
 * them.
 *
 * Sums of a type are formed in the type, rank after rank from 0, whichever rank forms them.
 *
 * It is C that is CUDA, too: nvcc makes lsa.ptx of it, any C compiler the twins for the stand-in of
 * libnccl, which defines everything between #ifdef and #endif itself.
 */
#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <nccl_device.h>

#include "headers.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define EXECUTE extern "C" __global__ void __launch_bounds__(512)
#define WINDOW ncclWindow_t
#define COMMUNICATOR const __grid_constant__ ncclDevComm
#define DEVICE static __device__ __forceinline__
#define THREAD ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((u64)gridDim.x * blockDim.x)
#define PART(type, window, offset, rank) ((type *)ncclGetLsaPointer(window, offset, rank))
#define ADD_half(a, b) __hadd(a, b)

/* At both ends, each block meets the blocks of its number on the other ranks. */
#define BEGIN(comm)                                                                                \
  ncclLsaBarrierSession<ncclCoopCta> meeting(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);   \
  meeting.sync(ncclCoopCta(), cuda::memory_order_acquire)
#define END(comm) meeting.sync(ncclCoopCta(), cuda::memory_order_release)
#endif

#define ADD(a, b) ((a) + (b))

#define PACK_BYTES 16
#define WARP 32
#define UNROLL 8

/* Sixteen bytes, moved at once. */
typedef struct __attribute__((aligned(16))) {
  u64 at[2];
} pack;

#define CAN_PACK(a, b, c) ((((a) | (b) | (c)) % PACK_BYTES) == 0)

/* Where a thread begins if each has so many packs, a warp's beside each other. */
#define PLACE(thread, packs) ((thread) / WARP * WARP * (u64)(packs) + (thread) % WARP)

/* How many packs each thread has if all do the same, at most UNROLL; a division takes longer. */
DEVICE int share(u64 packs, u64 threads) {
  int each = 0;
  for (u64 covered = 0; covered < packs; covered += threads) {
    each++;
  }
  return each;
}

/* ---- allReduce: each element is summed by one thread of one rank, and stored on all */

#define ALL_REDUCE(name, type, add)                                                                \
  typedef union {                                                                                  \
    pack whole;                                                                                    \
    type at[PACK_BYTES / sizeof(type)];                                                            \
  } pack_##name;                                                                                   \
                                                                                                   \
  DEVICE void sum_##name(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset, u64 i,            \
      int ranks) {                                                                                 \
    type sum = PART(type, from, from_offset, 0)[i];                                                \
    for (int peer = 1; peer < ranks; peer++) {                                                     \
      sum = add(sum, PART(type, from, from_offset, peer)[i]);                                      \
    }                                                                                              \
    for (int peer = 0; peer < ranks; peer++) {                                                     \
      PART(type, to, to_offset, peer)[i] = sum;                                                    \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  /* Packs first, first + WARP and so on: UNROLL of them, or of the next few those that exist. */  \
  DEVICE void sum_packs_##name(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset, u64 first,  \
      u64 packs, int all, int few, int ranks) {                                                    \
    pack_##name sum[UNROLL];                                                                       \
    const pack *source = PART(pack, from, from_offset, 0);                                         \
    for (int u = 0; u < UNROLL; u++) {                                                             \
      if (all || (u < few && first + u * WARP < packs)) {                                          \
        sum[u].whole = source[first + u * WARP];                                                   \
      }                                                                                            \
    }                                                                                              \
    for (int peer = 1; peer < ranks; peer++) {                                                     \
      pack_##name more[UNROLL];                                                                    \
      source = PART(pack, from, from_offset, peer);                                                \
      for (int u = 0; u < UNROLL; u++) {                                                           \
        if (all || (u < few && first + u * WARP < packs)) {                                        \
          more[u].whole = source[first + u * WARP];                                                \
        }                                                                                          \
      }                                                                                            \
      for (int u = 0; u < UNROLL; u++) {                                                           \
        for (int e = 0; e < (int)(PACK_BYTES / sizeof(type)); e++) {                               \
          sum[u].at[e] = add(sum[u].at[e], more[u].at[e]);                                         \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
    for (int peer = 0; peer < ranks; peer++) {                                                     \
      pack *target = PART(pack, to, to_offset, peer);                                              \
      for (int u = 0; u < UNROLL; u++) {                                                           \
        if (all || (u < few && first + u * WARP < packs)) {                                        \
          target[first + u * WARP] = sum[u].whole;                                                 \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  EXECUTE nccl4j_allreduce1_##name(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset,         \
      u64 count, COMMUNICATOR comm) {                                                              \
    BEGIN(comm);                                                                                   \
    u64 step = THREADS * comm.nRanks;                                                              \
    for (u64 i = THREADS * comm.rank + THREAD; i < count; i += step) {                             \
      sum_##name(from, from_offset, to, to_offset, i, comm.nRanks);                                \
    }                                                                                              \
    END(comm);                                                                                     \
  }                                                                                                \
                                                                                                   \
  EXECUTE nccl4j_allreduce2_##name(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset,         \
      u64 count, COMMUNICATOR comm) {                                                              \
    BEGIN(comm);                                                                                   \
    u64 thread = THREADS * comm.rank + THREAD;                                                     \
    u64 threads = THREADS * comm.nRanks;                                                           \
    u64 packs = CAN_PACK(from_offset, to_offset, 0) ? count * sizeof(type) / PACK_BYTES : 0;       \
    u64 done = 0;                                                                                  \
    for (; done + threads * UNROLL <= packs; done += threads * UNROLL) {                           \
      sum_packs_##name(from, from_offset, to, to_offset, done + PLACE(thread, UNROLL), packs, 1,   \
          UNROLL, comm.nRanks);                                                                    \
    }                                                                                              \
    int few = share(packs - done, threads);                                                        \
    sum_packs_##name(from, from_offset, to, to_offset, done + PLACE(thread, few), packs, 0, few,   \
        comm.nRanks);                                                                              \
    u64 i = packs * (PACK_BYTES / sizeof(type)) + thread;                                          \
    for (; i < count; i += threads) {                                                              \
      sum_##name(from, from_offset, to, to_offset, i, comm.nRanks);                                \
    }                                                                                              \
    END(comm);                                                                                     \
  }

/* Sums of integers are the same with and without a sign. */
ALL_REDUCE(u8, u8, ADD)
ALL_REDUCE(u32, u32, ADD)
ALL_REDUCE(u64, u64, ADD)
ALL_REDUCE(half, half, ADD_half)
ALL_REDUCE(float, float, ADD)
ALL_REDUCE(double, double, ADD)

/* ---- allToAll: each rank stores its blocks into the others, a piece of each in turn */

#define ALL_TO_ALL(bits, type)                                                                     \
  DEVICE void send##bits(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset, u64 count,        \
      int rank, int ranks, u64 thread, u64 threads) {                                              \
    const type *own = PART(type, from, from_offset, rank);                                         \
    for (u64 i = thread; i < count; i += threads) {                                                \
      for (int peer = 0; peer < ranks; peer++) {                                                   \
        PART(type, to, to_offset, peer)[rank * count + i] = own[peer * count + i];                 \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  EXECUTE nccl4j_alltoall1_##bits(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset,          \
      u64 count, COMMUNICATOR comm) {                                                              \
    BEGIN(comm);                                                                                   \
    send##bits(                                                                                    \
        from, from_offset, to, to_offset, count, comm.rank, comm.nRanks, THREAD, THREADS);         \
    END(comm);                                                                                     \
  }                                                                                                \
                                                                                                   \
  EXECUTE nccl4j_alltoall2_##bits(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset,          \
      u64 count, COMMUNICATOR comm) {                                                              \
    BEGIN(comm);                                                                                   \
    if (CAN_PACK(from_offset, to_offset, count * sizeof(type))) {                                  \
      u64 packs = count * sizeof(type) / PACK_BYTES;                                               \
      u64 done = 0;                                                                                \
      for (; done + THREADS * UNROLL <= packs; done += THREADS * UNROLL) {                         \
        send_packs(from, from_offset, to, to_offset, done + PLACE(THREAD, UNROLL), packs, 1,       \
            UNROLL, comm.rank, comm.nRanks);                                                       \
      }                                                                                            \
      int few = share(packs - done, THREADS);                                                      \
      send_packs(from, from_offset, to, to_offset, done + PLACE(THREAD, few), packs, 0, few,       \
          comm.rank, comm.nRanks);                                                                 \
    } else {                                                                                       \
      send##bits(                                                                                  \
          from, from_offset, to, to_offset, count, comm.rank, comm.nRanks, THREAD, THREADS);       \
    }                                                                                              \
    END(comm);                                                                                     \
  }

/*
 * Packs first, first + WARP and so on of each block: UNROLL of them, or of the next few those that
 * exist.
 */
DEVICE void send_packs(WINDOW from, u64 from_offset, WINDOW to, u64 to_offset, u64 first, u64 packs,
    int all, int few, int rank, int ranks) {
  for (int peer = 0; peer < ranks; peer++) {
    const pack *source = PART(pack, from, from_offset, rank) + peer * packs;
    pack *target = PART(pack, to, to_offset, peer) + rank * packs;
    pack some[UNROLL];
    for (int u = 0; u < UNROLL; u++) {
      if (all || (u < few && first + u * WARP < packs)) {
        some[u] = source[first + u * WARP];
      }
    }
    for (int u = 0; u < UNROLL; u++) {
      if (all || (u < few && first + u * WARP < packs)) {
        target[first + u * WARP] = some[u];
      }
    }
  }
}

ALL_TO_ALL(8, u8)
ALL_TO_ALL(16, u16)
ALL_TO_ALL(32, u32)
ALL_TO_ALL(64, u64)
