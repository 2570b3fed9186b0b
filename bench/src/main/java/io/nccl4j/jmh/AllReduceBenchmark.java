package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/** One allReduce of floats between two threads, from the call to its result. */
public class AllReduceBenchmark extends HostBenchmark {
  /** Size of each rank's buffers in bytes. */
  @Param({"8", "64", "512", "4096", "32768", "262144", "1048576"})
  public int bytes;

  private TwoRanks ranks;

  /** Connects the ranks. */
  @Setup
  public void open() {
    Device.get(Backend.HOST, 0).bindThread();
    ranks = new TwoRanks(bytes / Float.BYTES, 1, false);
  }

  /** Disconnects them. */
  @TearDown
  public void close() {
    ranks.close();
  }

  /** One allReduce; returns the first sum. */
  @Benchmark
  public float allReduce() {
    return ranks.step();
  }

  /** All sums of the last allReduce. */
  float[] result() {
    return ranks.result();
  }
}
