package io.nccl4j.cuda;

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
  /** Making calls and kernels end without freeing the communicator. */
  REVOKE("revoke", 22807, "ncclCommRevoke"),
  /** 8-bit floats. */
  FLOAT8("8-bit floats", 22403, ""),
  /** Several ranks on one GPU. */
  SHARED_GPU("several ranks on one GPU", 23003, "");

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
}
