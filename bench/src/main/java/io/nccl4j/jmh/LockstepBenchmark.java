package io.nccl4j.jmh;

import io.nccl4j.Backend;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/** What {@link LatencyBenchmark} measures of itself: steps in which ranks meet and do nothing. */
public class LockstepBenchmark extends HostBenchmark {
  /** Ranks, a thread each. */
  @Param("2")
  public int nranks;

  private Lockstep<OperationRank> ranks;

  /** Starts the ranks. */
  @Setup
  public void open() {
    ranks = new Lockstep<>(Backend.HOST, nranks, c -> new OperationRank(c, null, 1, 0));
  }

  /** Ends them. */
  @TearDown
  public void close() {
    ranks.close();
  }

  /** One empty step of all ranks. */
  @Benchmark
  public void nothing() {
    ranks.step();
  }
}
