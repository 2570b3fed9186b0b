package io.nccl4j.bench.program;

import java.util.List;

/** The programs there are. */
public final class Programs {
  private Programs() {}

  /** All programs of nccl-tests, in the order of their usual lists. */
  public static List<Program> all() {
    return List.of(
        allReduce(),
        new CollectiveProgram(
            "allgather",
            "all_gather_perf",
            "every rank gets the elements of all ranks",
            Collective.ALL_GATHER),
        new CollectiveProgram(
            "reducescatter",
            "reduce_scatter_perf",
            "each rank gets its block of the reduction of all ranks' elements",
            Collective.REDUCE_SCATTER),
        new CollectiveProgram(
            "broadcast",
            "broadcast_perf",
            "every rank gets the root's elements",
            Collective.BROADCAST),
        new CollectiveProgram(
            "reduce",
            "reduce_perf",
            "the root gets the reduction of all ranks' elements",
            Collective.REDUCE),
        new CollectiveProgram(
            "alltoall",
            "alltoall_perf",
            "each rank sends a block of its own to every rank",
            Collective.ALL_TO_ALL),
        new AllToAllVProgram(),
        new CollectiveProgram(
            "gather", "gather_perf", "the root gets the elements of all ranks", Collective.GATHER),
        new CollectiveProgram(
            "scatter",
            "scatter_perf",
            "each rank gets its block of the root's elements",
            Collective.SCATTER),
        sendRecv(),
        new HyperCubeProgram());
  }

  /** The program that measures allReduce. */
  public static Program allReduce() {
    return new CollectiveProgram(
        "allreduce",
        "all_reduce_perf",
        "every rank gets the reduction of all ranks' elements",
        Collective.ALL_REDUCE);
  }

  /**
   * The program that sends in a ring. It has no in-place form; nccl-tests times one that overwrites
   * what it sends, and never checks it.
   */
  public static Program sendRecv() {
    return new CollectiveProgram(
        "sendrecv",
        "sendrecv_perf",
        "each rank sends to the next and receives from the previous, in a ring",
        Collective.SEND_RECV);
  }
}
