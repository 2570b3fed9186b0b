package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.bench.program.Collective;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Collectives, and a ring of sends and receives, between ranks of one process; the slowest rank
 * counts. {@code -p nranks=4 -p backend=cuda} and the like measure something else.
 */
public abstract class OperationBenchmark extends HostBenchmark {
  /** What is measured: of the operations whose blocks have one size, those that move data. */
  @Param({
    "ALL_REDUCE",
    "REDUCE",
    "REDUCE_SCATTER",
    "BROADCAST",
    "ALL_GATHER",
    "ALL_TO_ALL",
    "GATHER",
    "SCATTER",
    "SEND_RECV"
  })
  public Collective operation;

  /** Bytes of a block: what a rank contributes, or each part of that. */
  @Param({"8", "4096", "65536", "1048576"})
  public int bytes;

  /** The backend's label. */
  @Param("host")
  public String backend;

  /** Ranks, a thread and a device each. */
  @Param("2")
  public int nranks;

  private Lockstep<OperationRank> ranks;

  /** Operations of a step. */
  abstract int batch();

  /** Connects the ranks. */
  @Setup
  public void open() {
    ranks =
        new Lockstep<>(
            Backend.ofLabel(backend),
            nranks,
            c -> new OperationRank(c, operation, bytes / Float.BYTES, batch()));
  }

  /** Disconnects them. */
  @TearDown
  public void close() {
    ranks.close();
  }

  /** One step of all ranks. */
  final void step() {
    ranks.step();
  }

  /** What a rank received last. */
  final OperationRank rank(int rank) {
    return ranks.rank(rank);
  }
}
