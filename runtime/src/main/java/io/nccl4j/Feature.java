package io.nccl4j;

/** What not every machine, library or device has; see {@link BackendInfo}. */
public enum Feature {
  /** Ranks that are threads of one process. */
  THREAD_RANKS("ranks as threads"),
  /** Ranks that are processes of one machine. */
  PROCESS_RANKS("ranks as processes"),
  /** Ranks of the host backend on several machines. */
  NETWORK_RANKS("ranks on several machines"),
  /** Threads bound to processors. */
  BOUND_THREADS("binding threads"),
  /** Reductions by the Vector API. */
  VECTOR_REDUCTIONS("reductions on the Vector API"),
  /** Text of the last error. */
  LAST_ERROR("text of errors"),
  /** Dividing a communicator. */
  SPLIT("split"),
  /** Memory that NCCL can register. */
  MEMORY("memory for zero-copy"),
  /** Registering a user's memory. */
  REGISTER("registered buffers"),
  /** Several unique ids for one communicator. */
  SCALABLE_INIT("scalable initialisation"),
  /** 8-bit floats. */
  FLOAT8("8-bit floats"),
  /** Windows, and symmetric memory behind them. */
  WINDOWS("windows, symmetric memory"),
  /** Going on without some ranks. */
  SHRINK("shrink"),
  /** All-to-all as one call. */
  ALL_TO_ALL("all-to-all in one call"),
  /** Gather as one call. */
  GATHER("gather in one call"),
  /** Scatter as one call. */
  SCATTER("scatter in one call"),
  /** Ending all operations of a communicator without destroying it. */
  REVOKE("revoke"),
  /** Going on with more ranks. */
  GROW("grow"),
  /** Writing into a peer's window. */
  ONE_SIDED("one-sided put and signal"),
  /** What a communicator is made of. */
  PROPERTIES("communicator properties"),
  /** Kernels that communicate by themselves: {@link io.nccl4j.cuda.NcclDeviceCommunicator}. */
  DEVICE_API("device communicators"),
  /** Giving a communicator's memory back for a while. */
  SUSPEND("suspend and resume"),
  /** How much memory a communicator takes. */
  MEMORY_STATISTICS("memory statistics"),
  /** Several ranks on one GPU. */
  SHARED_GPU("several ranks on one GPU"),
  /** Estimates of groups. */
  SIMULATE("simulating a group"),
  /** NCCL's settings by name. */
  PARAMETERS("parameters by name"),
  /** Separate physical memory and addresses: {@link io.nccl4j.cuda.VirtualMemory}. */
  VIRTUAL_MEMORY("cuMem virtual memory"),
  /** Sharing physical memory with other processes by file descriptor. */
  FILE_DESCRIPTORS("memory of other processes by file descriptor"),
  /** Sharing physical memory with other machines by fabric handle. */
  FABRIC_HANDLES("memory of other machines by fabric handle"),
  /** One address for the memory of several devices: {@link io.nccl4j.cuda.MulticastMemory}. */
  MULTICAST("multicast (NVLS)");

  private final String label;

  Feature(String label) {
    this.label = label;
  }

  /** What it is, for people. */
  public String label() {
    return label;
  }
}
