package io.nccl4j.jmh;

import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.OperationsPerInvocation;

/** Operations queued one behind the other and waited for together: the time of one of them. */
public class ThroughputBenchmark extends OperationBenchmark {
  /** Operations of a step. */
  static final int BATCH = 32;

  @Override
  int batch() {
    return BATCH;
  }

  /** A step; JMH divides its time. */
  @Benchmark
  @OperationsPerInvocation(BATCH)
  public void throughput() {
    step();
  }
}
