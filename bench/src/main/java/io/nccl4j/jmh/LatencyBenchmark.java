package io.nccl4j.jmh;

import org.openjdk.jmh.annotations.Benchmark;

/** One operation, from the call until the slowest rank has its result. */
public class LatencyBenchmark extends OperationBenchmark {
  @Override
  int batch() {
    return 1;
  }

  /** One operation. */
  @Benchmark
  public void latency() {
    step();
  }
}
