package io.nccl4j.bench.program;

/** {@code all_reduce_perf}: every rank gets the reduction of all ranks' data. */
public final class AllReduceProgram extends SingleCall {
  /** The program. */
  public AllReduceProgram() {
    super(
        "allreduce",
        "all_reduce_perf",
        "every rank gets the reduction of all ranks' elements",
        true,
        Root.NONE,
        Blocks.EVEN,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.allReduce(send, recv, count, type, op, stream));
  }

  @Override
  public double busFactor(int nranks) {
    return 2.0 * (nranks - 1) / nranks;
  }
}
