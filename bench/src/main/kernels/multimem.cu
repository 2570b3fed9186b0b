/*
 * allReduce by multicast, over NCCL's device API: one load of a multicast address returns the sum
 * of all ranks, one store reaches all. Kernel 3 moves element by element (half: two at a time),
 * kernel 4 sixteen bytes at a time where there are instructions for it. They need NVLS.
 */
#include <cuda_fp16.h>
#include <nccl_device.h>

#include "headers.h"

typedef unsigned int u32;
typedef unsigned long long u64;

#define EXECUTE extern "C" __global__ void __launch_bounds__(512)
#define COMMUNICATOR const __grid_constant__ ncclDevComm
#define DEVICE static __device__ __forceinline__
#define UNROLL 8

struct __align__(8) two_u32 {
  u32 at[2];
};

struct __align__(16) four_u32 {
  u32 at[4];
};

struct __align__(4) two_half {
  u32 at;
};

/* What one step moves: the sum of all ranks from a multicast address, and to one. */
#define STEP(name, type, bits, letter)                                                             \
  DEVICE type load_##name(const type *at) {                                                        \
    type sum;                                                                                      \
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add." #bits " %0, [%1];"                   \
                 : "=" letter(sum)                                                                 \
                 : "l"(at)                                                                         \
                 : "memory");                                                                      \
    return sum;                                                                                    \
  }                                                                                                \
                                                                                                   \
  DEVICE void store_##name(type *at, type value) {                                                 \
    asm volatile("multimem.st.relaxed.sys.global." #bits " [%0], %1;"                              \
                 :                                                                                 \
                 : "l"(at), letter(value)                                                          \
                 : "memory");                                                                      \
  }

#define STEP_OF_FOUR(name, bits)                                                                   \
  DEVICE four_u32 load_##name(const four_u32 *at) {                                                \
    four_u32 sum;                                                                                  \
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4." #bits " {%0, %1, %2, %3}, [%4];"  \
                 : "=r"(sum.at[0]), "=r"(sum.at[1]), "=r"(sum.at[2]), "=r"(sum.at[3])              \
                 : "l"(at)                                                                         \
                 : "memory");                                                                      \
    return sum;                                                                                    \
  }                                                                                                \
                                                                                                   \
  DEVICE void store_##name(four_u32 *at, four_u32 value) {                                         \
    asm volatile("multimem.st.relaxed.sys.global.v4." #bits " [%0], {%1, %2, %3, %4};"             \
                 :                                                                                 \
                 : "l"(at), "r"(value.at[0]), "r"(value.at[1]), "r"(value.at[2]), "r"(value.at[3]) \
                 : "memory");                                                                      \
  }

STEP(u32, u32, u32, "r")
STEP(u64, u64, u64, "l")
STEP(float, float, f32, "f")
STEP(double, double, f64, "d")
STEP(half2, u32, f16x2, "r")
STEP_OF_FOUR(float4, f32)
STEP_OF_FOUR(half8, f16x2)

/* What the steps leave over, or cannot reach for its alignment. */
template <typename T>
DEVICE void sum_rest(ncclWindow_t from, u64 from_offset, ncclWindow_t to, u64 to_offset, u64 first,
    u64 count, u64 step, int ranks) {
  for (u64 i = first; i < count; i += step) {
    T sum = ((T *)ncclGetLsaPointer(from, from_offset, 0))[i];
    for (int peer = 1; peer < ranks; peer++) {
      sum = sum + ((T *)ncclGetLsaPointer(from, from_offset, peer))[i];
    }
    for (int peer = 0; peer < ranks; peer++) {
      ((T *)ncclGetLsaPointer(to, to_offset, peer))[i] = sum;
    }
  }
}

#define ALL_REDUCE(number, name, element, type, step, unroll)                                      \
  EXECUTE nccl4j_allreduce##number##_##name(ncclWindow_t from, u64 from_offset, ncclWindow_t to,   \
      u64 to_offset, u64 count, COMMUNICATOR comm) {                                               \
    ncclLsaBarrierSession<ncclCoopCta> meeting(                                                    \
        ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true);                                  \
    meeting.sync(ncclCoopCta(), cuda::memory_order_acquire);                                       \
    u64 grid = (u64)gridDim.x * blockDim.x;                                                        \
    u64 thread = grid * comm.rank + (u64)blockIdx.x * blockDim.x + threadIdx.x;                    \
    u64 threads = grid * comm.nRanks;                                                              \
    const u64 elements = sizeof(type) / sizeof(element);                                           \
    u64 steps = (from_offset | to_offset) % sizeof(type) == 0 ? count / elements : 0;              \
    type *source = (type *)ncclGetLsaMultimemPointer(from, from_offset, comm);                     \
    type *target = (type *)ncclGetLsaMultimemPointer(to, to_offset, comm);                         \
    u64 i = thread;                                                                                \
    for (; i + (unroll - 1) * threads < steps; i += unroll * threads) {                            \
      type sum[unroll];                                                                            \
      for (int u = 0; u < unroll; u++) {                                                           \
        sum[u] = load_##step(source + i + u * threads);                                            \
      }                                                                                            \
      for (int u = 0; u < unroll; u++) {                                                           \
        store_##step(target + i + u * threads, sum[u]);                                            \
      }                                                                                            \
    }                                                                                              \
    for (; i < steps; i += threads) {                                                              \
      store_##step(target + i, load_##step(source + i));                                           \
    }                                                                                              \
    sum_rest<element>(from, from_offset, to, to_offset, steps * elements + thread, count, threads, \
        comm.nRanks);                                                                              \
    meeting.sync(ncclCoopCta(), cuda::memory_order_release);                                       \
  }

ALL_REDUCE(3, u32, u32, u32, u32, 1)
ALL_REDUCE(3, u64, u64, u64, u64, 1)
ALL_REDUCE(3, float, float, float, float, 1)
ALL_REDUCE(3, double, double, double, double, 1)
ALL_REDUCE(3, half, half, u32, half2, 1)
ALL_REDUCE(4, u32, u32, u32, u32, UNROLL)
ALL_REDUCE(4, u64, u64, u64, u64, UNROLL)
ALL_REDUCE(4, float, float, four_u32, float4, UNROLL)
ALL_REDUCE(4, double, double, double, double, UNROLL)
ALL_REDUCE(4, half, half, four_u32, half8, UNROLL)
