package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.bench.program.Collective;
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

/** What a process does for the first time, in JVMs that have done nothing before: one shot each. */
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 0)
@Measurement(iterations = 1)
@Fork(
    value = 10,
    jvmArgs = {
      "--add-modules",
      "jdk.incubator.vector",
      "--enable-native-access=ALL-UNNAMED",
      "-XX:+UseSerialGC",
      "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider"
    })
public class FirstCallBenchmark extends HostBenchmark {
  /** Two ranks that have not communicated. */
  @State(Scope.Benchmark)
  public static class Connected {
    /** What they do first. */
    @Param({"ALL_REDUCE", "SEND_RECV"})
    public Collective operation;

    private Lockstep<OperationRank> ranks;

    /** Connects them. */
    @Setup
    public void open() {
      ranks = new Lockstep<>(Backend.HOST, 2, c -> new OperationRank(c, operation, 2, 1));
    }

    /** Disconnects them. */
    @TearDown
    public void close() {
      ranks.close();
    }

    OperationRank rank(int rank) {
      return ranks.rank(rank);
    }
  }

  /** The first operation, of 8 bytes, until the slowest of two ranks has its result. */
  @Benchmark
  public void operation(Connected connected) {
    connected.ranks.step();
  }

  /** Connecting two ranks in this process, up to the first stream of each; and all closed. */
  @Benchmark
  public void connect() {
    try (Communicators communicators = Communicator.initAll(Backend.HOST, 2)) {
      communicators.forEach(communicator -> communicator.device().newStream().close());
    }
  }
}
