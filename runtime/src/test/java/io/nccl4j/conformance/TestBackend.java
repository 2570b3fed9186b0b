package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.Device;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;

/** What the tests run on: the system properties nccl4j.test.backend and nccl4j.test.seed. */
final class TestBackend {
  static final Backend BACKEND =
      Backend.ofLabel(System.getProperty("nccl4j.test.backend", Backend.HOST.label()));

  static final long SEED = seed(System.getProperty("nccl4j.test.seed", "20260301"));

  /** Fails what hangs long before a test's own time is over. */
  static final CommunicatorConfig CONFIG =
      CommunicatorConfig.builder()
          .initTimeout(Duration.ofSeconds(30))
          .operationTimeout(Duration.ofSeconds(20))
          .closeTimeout(Duration.ofSeconds(5))
          .build();

  private TestBackend() {}

  private static long seed(String text) {
    long seed = text.equals("random") ? System.nanoTime() : Long.parseLong(text);
    System.out.println("conformance: backend " + BACKEND.label() + ", nccl4j.test.seed=" + seed);
    return seed;
  }

  /** The device of a rank; ranks share devices where there are fewer. */
  static Device device(int rank) {
    return Device.get(BACKEND, BACKEND == Backend.HOST ? rank : rank % Device.all(BACKEND).size());
  }

  static Communicators communicators(int nranks) {
    return communicators(nranks, CONFIG);
  }

  static Communicators communicators(int nranks, CommunicatorConfig config) {
    List<Device> devices = IntStream.range(0, nranks).mapToObj(TestBackend::device).toList();
    return Communicator.initAll(devices, config);
  }

  /** Asks again and again, for at most five seconds. */
  static boolean eventually(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > 5_000_000_000L) {
        return false;
      }
      LockSupport.parkNanos(100_000);
    }
    return true;
  }
}
