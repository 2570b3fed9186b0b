package io.nccl4j.cuda;

import io.nccl4j.Unstable;

/**
 * NCCL's properties of a communicator, {@code ncclCommProperties_t}.
 *
 * @param rank this rank's number
 * @param nranks number of ranks
 * @param cudaDevice the device's ordinal for CUDA
 * @param nvmlDevice the device's ordinal for NVML, as in {@code nvidia-smi}
 * @param deviceApiSupport whether kernels can communicate
 * @param multimemSupport whether there are multicast addresses (NVLS)
 * @param ginType how kernels reach the network
 * @param lsaTeams number of sets of ranks that reach each other's memory
 * @param hostRmaSupport whether {@link NcclCommunicator#putSignal} works
 * @param railedGinType as {@code ginType}, within a rail
 */
@Unstable
public record NcclProperties(
    int rank,
    int nranks,
    int cudaDevice,
    int nvmlDevice,
    boolean deviceApiSupport,
    boolean multimemSupport,
    GinType ginType,
    int lsaTeams,
    boolean hostRmaSupport,
    GinType railedGinType) {
  /** How kernels reach the network. */
  public enum GinType {
    /** Not at all. */
    NONE,
    /** Through a thread of the host. */
    PROXY,
    /** Directly. */
    GDAKI,
    /** Through the network's own engine. */
    GPI,
    /** In a way that this version does not know. */
    UNKNOWN
  }
}
