package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.cuda.driver.CudaLibraries;

/**
 * What not every version of NCCL has. A feature is there if its function is, or for features
 * without one, if the version is new enough.
 */
public enum Features {
  /** Text of the last error. */
  LAST_ERROR("text of errors", 21300, "ncclGetLastError"),
  /** Dividing a communicator. */
  SPLIT("split", 21801, "ncclCommSplit"),
  /** Memory that NCCL can register. */
  MEMORY("memory for zero-copy", 21901, "ncclMemAlloc"),
  /** Registering a user's memory. */
  REGISTER("registered buffers", 21901, "ncclCommRegister"),
  /** Several unique ids for one communicator. */
  SCALABLE_INIT("scalable initialisation", 22304, "ncclCommInitRankScalable"),
  /** 8-bit floats. */
  FLOAT8("8-bit floats", 22403, ""),
  /** Windows, and symmetric memory behind them. */
  WINDOWS("windows, symmetric memory", 22703, "ncclCommWindowRegister"),
  /** Going on without some ranks. */
  SHRINK("shrink", 22703, "ncclCommShrink"),
  /** All-to-all as one call. */
  ALL_TO_ALL("all-to-all in one call", 22803, "ncclAlltoAll"),
  /** Gather as one call. */
  GATHER("gather in one call", 22803, "ncclGather"),
  /** Scatter as one call. */
  SCATTER("scatter in one call", 22803, "ncclScatter"),
  /** Ending all operations of a communicator without destroying it. */
  REVOKE("revoke", 22807, "ncclCommRevoke"),
  /** Going on with more ranks. */
  GROW("grow", 22902, "ncclCommGrow"),
  /** Writing into a peer's window. */
  ONE_SIDED("one-sided put and signal", 22902, "ncclPutSignal"),
  /** What a communicator is made of. */
  PROPERTIES("communicator properties", 22902, "ncclCommQueryProperties"),
  /** Giving a communicator's memory back for a while. */
  SUSPEND("suspend and resume", 22907, "ncclCommSuspend"),
  /** How much memory a communicator takes. */
  MEMORY_STATISTICS("memory statistics", 22907, "ncclCommMemStats"),
  /** Several ranks on one GPU. */
  SHARED_GPU("several ranks on one GPU", 23003, ""),
  /** Estimates of groups. */
  SIMULATE("simulating a group", 22200, "ncclGroupSimulateEnd"),
  /** NCCL's settings by name. */
  PARAMETERS("parameters by name", 23004, "ncclParamGetParameter");

  private final String label;
  private final int version;
  private final String symbol;

  Features(String label, int version, String symbol) {
    this.label = label;
    this.version = version;
    this.symbol = symbol;
  }

  /** What it is, for people. */
  public String label() {
    return label;
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
          "NCCL " + CudaLibraries.versionText(loaded) + " has no " + label, "install " + needs());
    }
  }
}
