package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** One allReduce of floats between two threads, from the call to its result. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(
    value = 2,
    jvmArgs = {
      "--add-modules",
      "jdk.incubator.vector",
      "--enable-native-access=ALL-UNNAMED",
      "-XX:+UseSerialGC"
    })
public class AllReduceBenchmark {
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
