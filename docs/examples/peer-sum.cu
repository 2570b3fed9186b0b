/*
 * Each element becomes the sum of the elements at its place on all GPUs, which are read where they
 * are, over NVLink. Of PeerSum in docs/nccl.md; bench/src/main/kernels/regenerate makes the PTX.
 */
#include <nccl_device.h>

extern "C" __global__ void peer_sum(
    ncclWindow_t in, float *out, unsigned count, const __grid_constant__ ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  // No rank reads before all have written.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; peer++) {
      sum += ((const float *)ncclGetLsaPointer(in, 0, peer))[i];
    }
    out[i] = sum;
  }
  // No rank writes again before all have read.
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}
