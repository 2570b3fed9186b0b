package io.nccl4j.cuda;

import io.nccl4j.InvalidUsageException;

/**
 * What not every version of NCCL has. A feature is there if its function is, or for features
 * without one, if the version is new enough.
 */
enum Features {
  /** Text of the last error. */
  LAST_ERROR("text of errors", 21300, "ncclGetLastError"),
  /** All-to-all as one call. */
  ALL_TO_ALL("all-to-all in one call", 22803, "ncclAlltoAll"),
  /** Gather as one call. */
  GATHER("gather in one call", 22803, "ncclGather"),
  /** Scatter as one call. */
  SCATTER("scatter in one call", 22803, "ncclScatter"),
  /** 8-bit floats. */
  FLOAT8("8-bit floats", 22403, ""),
  /** Several ranks on one GPU. */
  SHARED_GPU("several ranks on one GPU", 23003, ""),
  /** Several unique ids for one communicator. */
  SCALABLE_INIT("joining with several unique ids", 22300, "ncclCommInitRankScalable"),
  /** Estimates of groups. */
  SIMULATE("simulating a group", 22200, "ncclGroupSimulateEnd"),
  /** A communicator of fewer ranks. */
  SHRINK("shrink", 22700, "ncclCommShrink"),
  /** A communicator of more ranks. */
  GROW("grow", 22902, "ncclCommGrow"),
  /** Ending what runs without ending the communicator. */
  REVOKE("revoke", 22807, "ncclCommRevoke"),
  /** Giving memory back for a while. */
  SUSPEND("suspend and resume", 22907, "ncclCommSuspend"),
  /** What a communicator can do. */
  PROPERTIES("properties", 22902, "ncclCommQueryProperties"),
  /** What a communicator takes. */
  MEMORY_STATISTICS("memory statistics", 22907, "ncclCommMemStats"),
  /** Registered buffers. */
  REGISTER("registering buffers", 21900, "ncclCommRegister"),
  /** Windows. */
  WINDOWS("windows", 22700, "ncclCommWindowRegister"),
  /** Operations of one rank alone. */
  ONE_SIDED("one-sided operations", 22902, "ncclPutSignal"),
  /** Parameters that can be read. */
  PARAMETERS("reading parameters", 23004, "ncclParamGetAllParameterKeys");

  private final String label;
  private final int version;
  private final String symbol;

  Features(String label, int version, String symbol) {
    this.label = label;
    this.version = version;
    this.symbol = symbol;
  }

  /** What it is, for people. */
  String label() {
    return label;
  }

  /** What it needs, for people. */
  String needs() {
    return "NCCL " + CudaLibraries.versionText(version) + " or newer";
  }

  boolean isPresent() {
    return symbol.isEmpty()
        ? CudaLibraries.ncclVersion() >= version
        : CudaLibraries.hasNccl(symbol);
  }

  /**
   * Throws unless the loaded NCCL has it, by its version and by its function.
   *
   * @throws InvalidUsageException that says what is needed
   */
  void require() {
    int loaded = CudaLibraries.ncclVersion();
    if (loaded < version || !isPresent()) {
      throw new InvalidUsageException(
          "NCCL " + CudaLibraries.versionText(loaded) + " has no " + label, "install " + needs());
    }
  }
}
