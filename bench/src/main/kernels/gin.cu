/*
 * allToAll through the network by kernels, over NCCL's device API (GIN). Kernel 3 puts all blocks
 * through the network, kernel 4 only those of ranks whose memory is out of reach. They need a
 * network that kernels can use.
 */
#include <nccl_device.h>

#include "headers.h"

typedef unsigned int u32;
typedef unsigned long long u64;

#define EXECUTE extern "C" __global__ void __launch_bounds__(512)
#define COMMUNICATOR const __grid_constant__ ncclDevComm
#define DEVICE static __device__ __forceinline__
#define THREAD ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((u64)gridDim.x * blockDim.x)

/*
 * Counts what has come to a rank. Its first block waits for all of it, and only first blocks put:
 * another could count up what the receiver's first block has not read yet.
 */
#define ARRIVED 0

DEVICE void put(ncclGin &gin, const ncclDevComm &comm, ncclWindow_t from, u64 from_offset,
    ncclWindow_t to, u64 to_offset, u64 bytes, int peer) {
  gin.put(ncclTeamWorld(comm), peer, to, to_offset + comm.rank * bytes, from,
      from_offset + peer * bytes, bytes, ncclGin_StrongSignalInc{ARRIVED});
}

/* Copies a block to a rank within reach: packs of 16 bytes where alignment lets it, else bytes. */
DEVICE void store(const ncclDevComm &comm, ncclWindow_t from, u64 from_offset, ncclWindow_t to,
    u64 to_offset, u64 bytes, int lsa_peer, int peer) {
  char *source = (char *)ncclGetLocalPointer(from, from_offset + peer * bytes);
  char *target = (char *)ncclGetLsaPointer(to, to_offset + comm.rank * bytes, lsa_peer);
  u64 packs = ((u64)source | (u64)target) % sizeof(uint4) == 0 ? bytes / sizeof(uint4) : 0;
  for (u64 i = THREAD; i < packs; i += THREADS) {
    ((uint4 *)target)[i] = ((const uint4 *)source)[i];
  }
  for (u64 i = packs * sizeof(uint4) + THREAD; i < bytes; i += THREADS) {
    target[i] = source[i];
  }
}

#define ALL_TO_ALL(number, is_within_reach)                                                        \
  EXECUTE nccl4j_alltoall##number(ncclWindow_t from, u64 from_offset, ncclWindow_t to,             \
      u64 to_offset, u64 bytes, COMMUNICATOR comm) {                                               \
    ncclGin gin(comm, 0);                                                                          \
    u64 before = gin.readSignal(ARRIVED);                                                          \
    ncclBarrierSession<ncclCoopCta> meeting(                                                       \
        ncclCoopCta(), ncclTeamTagWorld(), gin, blockIdx.x);                                       \
    meeting.sync(ncclCoopCta(), cuda::memory_order_acquire, ncclGinFenceLevel::None);              \
    int first = comm.rank - comm.lsaRank;                                                          \
    u32 puts = 0;                                                                                  \
    for (int peer = 0; peer < comm.nRanks; peer++) {                                               \
      if (is_within_reach) {                                                                       \
        store(comm, from, from_offset, to, to_offset, bytes, peer - first, peer);                  \
      } else {                                                                                     \
        puts++;                                                                                    \
        if (blockIdx.x == 0 && peer % blockDim.x == threadIdx.x) {                                 \
          put(gin, comm, from, from_offset, to, to_offset, bytes, peer);                           \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
    if (blockIdx.x == 0) {                                                                         \
      gin.waitSignal(ncclCoopCta(), ARRIVED, before + puts);                                       \
    }                                                                                              \
    gin.flush(ncclCoopCta());                                                                      \
    meeting.sync(ncclCoopCta(), cuda::memory_order_release, ncclGinFenceLevel::None);              \
  }

ALL_TO_ALL(3, false)
ALL_TO_ALL(4, peer >= first && peer < first + comm.lsaSize)
