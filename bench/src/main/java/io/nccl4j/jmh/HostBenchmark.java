package io.nccl4j.jmh;

import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** How all benchmarks of the host backend are run; JMH's annotations are inherited. */
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
      "-XX:+UseSerialGC",
      "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider"
    })
public abstract class HostBenchmark {
  private static final int QUIET_MILLIS = 50;
  private static final int MOST_LOOKS = 20;

  /** Ranks that poll keep the compilers from the processors: between iterations these catch up. */
  @Setup(Level.Iteration)
  public final void awaitCompilers() throws InterruptedException {
    CompilationMXBean compilers = ManagementFactory.getCompilationMXBean();
    long before = -1;
    for (int i = 0; i < MOST_LOOKS && compilers.getTotalCompilationTime() != before; i++) {
      before = compilers.getTotalCompilationTime();
      Thread.sleep(QUIET_MILLIS);
    }
  }
}
