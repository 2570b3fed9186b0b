package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.Feature;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.cuda.driver.CudaLibraries;

/**
 * What not every version of NCCL has. A feature is there if its function is, or for features
 * without one, if the version is new enough.
 */
public enum Features {
  LAST_ERROR(Feature.LAST_ERROR, 21300, "ncclGetLastError"),
  SPLIT(Feature.SPLIT, 21801, "ncclCommSplit"),
  MEMORY(Feature.MEMORY, 21901, "ncclMemAlloc"),
  REGISTER(Feature.REGISTER, 21901, "ncclCommRegister"),
  SCALABLE_INIT(Feature.SCALABLE_INIT, 22304, "ncclCommInitRankScalable"),
  FLOAT8(Feature.FLOAT8, 22403, ""),
  WINDOWS(Feature.WINDOWS, 22703, "ncclCommWindowRegister"),
  SHRINK(Feature.SHRINK, 22703, "ncclCommShrink"),
  ALL_TO_ALL(Feature.ALL_TO_ALL, 22803, "ncclAlltoAll"),
  GATHER(Feature.GATHER, 22803, "ncclGather"),
  SCATTER(Feature.SCATTER, 22803, "ncclScatter"),
  REVOKE(Feature.REVOKE, 22807, "ncclCommRevoke"),
  GROW(Feature.GROW, 22902, "ncclCommGrow"),
  ONE_SIDED(Feature.ONE_SIDED, 22902, "ncclPutSignal"),
  PROPERTIES(Feature.PROPERTIES, 22902, "ncclCommQueryProperties"),
  DEVICE_API(Feature.DEVICE_API, 22902, "ncclGetPeerDevicePointer"),
  SUSPEND(Feature.SUSPEND, 22907, "ncclCommSuspend"),
  MEMORY_STATISTICS(Feature.MEMORY_STATISTICS, 22907, "ncclCommMemStats"),
  SHARED_GPU(Feature.SHARED_GPU, 23003, ""),
  SIMULATE(Feature.SIMULATE, 22200, "ncclGroupSimulateEnd"),
  PARAMETERS(Feature.PARAMETERS, 23004, "ncclParamGetParameter");

  private final Feature feature;
  private final int version;
  private final String symbol;

  Features(Feature feature, int version, String symbol) {
    this.feature = feature;
    this.version = version;
    this.symbol = symbol;
  }

  /** What it is. */
  public Feature feature() {
    return feature;
  }

  /** What it needs, for people. */
  public String needs() {
    return "NCCL " + CudaLibraries.versionText(version) + " or newer";
  }

  public boolean isPresent() {
    return isPresent(CudaLibraries.ncclVersion());
  }

  /** Whether a library of this version, the one that is loaded, has it. */
  public boolean isPresent(int ncclVersion) {
    return symbol.isEmpty() ? ncclVersion >= version : CudaLibraries.hasNccl(symbol);
  }

  /**
   * Throws unless the loaded NCCL has it, by its version and by its function.
   *
   * @throws InvalidUsageException that says what is needed
   */
  public void require() {
    int loaded = CudaLibraries.ncclVersion();
    if (loaded < version || !isPresent()) {
      throw new InvalidUsageException(
          "NCCL " + CudaLibraries.versionText(loaded) + " has no " + feature.label(),
          "install " + needs());
    }
  }
}
