package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.bench.result.LineLatency;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.OptionalDouble;

/**
 * Measures {@link LineLatency}: two threads, bound to two processors, answer each other through one
 * cache line. The fastest of many short windows counts, so that neither compilers nor ranks that
 * wait on the same processors matter.
 */
final class LineProbe {
  /** Processors of this process; a thread that is bound would be told that there is one. */
  static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);

  // Far from the array's ends, so that nothing else is on its line.
  private static final int LENGTH = 64;
  private static final int INDEX = 32;

  private static final int WINDOW = 100;
  private static final int ENOUGH_WINDOWS = 200;
  private static final long LEAST_NANOS = 2_000_000;
  private static final long MOST_NANOS = 500_000_000;
  private static final int LOOK_SPINS = 1 << 12;

  // Rarely: on a busy machine, whoever yields early is seldom on its processor when the other is.
  private static final int YIELD_SPINS = 1 << 18;
  private static final int MOST_PAIRS = 8;
  private static final int MOST_TRIES = 8;
  private static final double ALIKE = 0.1;

  private final long[] line = new long[LENGTH];
  private volatile boolean over;

  private LineProbe() {}

  /**
   * Has the compilers see the code, until it gets no faster: interpreted, it is that which counts.
   */
  static void warmUp() {
    double last = 0;
    for (int i = 0; i < MOST_TRIES && PROCESSORS > 1; i++) {
      double nanos = new LineProbe().pair(0, 1);
      if (Math.abs(nanos - last) < ALIKE * nanos) {
        return;
      }
      last = nanos;
    }
  }

  /**
   * The time between the processors of neighbouring ranks, one way, in ns, of at most eight pairs
   * the longest one. Empty where there is only one processor, where threads cannot be bound, and
   * where other work keeps two of them from running at the same time for half a second.
   */
  static OptionalDouble nanos(int nranks) {
    int processors = Math.min(PROCESSORS, Math.max(2, nranks));
    double longest = -1;
    for (int i = 0; i + 1 < processors && i < MOST_PAIRS; i++) {
      double pair = new LineProbe().pair(i, i + 1);
      if (pair < 0) {
        return OptionalDouble.empty();
      }
      longest = Math.max(longest, pair);
    }
    return longest < 0 ? OptionalDouble.empty() : OptionalDouble.of(longest);
  }

  /** One way between two processors in ns; −1 if that cannot be measured. */
  private double pair(int first, int second) {
    double[] nanos = {-1};
    Thread answering =
        Thread.ofPlatform().daemon().name("line-answer").start(() -> bound(second, this::answer));
    Thread asking =
        Thread.ofPlatform()
            .daemon()
            .name("line-ask")
            .start(() -> bound(first, () -> nanos[0] = ask()));
    try {
      asking.join();
      over = true;
      answering.join();
    } catch (InterruptedException e) {
      over = true;
      Thread.currentThread().interrupt();
      return -1;
    }
    return nanos[0];
  }

  private void bound(int processor, Runnable task) {
    if (Device.get(Backend.HOST, processor).bindThread()) {
      task.run();
    }
  }

  /** The fastest window's mean; a round trip is two ways. */
  private double ask() {
    long start = System.nanoTime();
    long value = 0;
    double fastest = -1;
    for (int windows = 0;
        windows < ENOUGH_WINDOWS || System.nanoTime() - start < LEAST_NANOS;
        windows++) {
      long windowStart = System.nanoTime();
      for (int i = 0; i < WINDOW; i++) {
        CELL.setRelease(line, INDEX, value + 1);
        value += 2;
        for (int spins = 1; (long) CELL.getAcquire(line, INDEX) != value; spins++) {
          if (spins % LOOK_SPINS == 0) {
            if (over || System.nanoTime() - start > MOST_NANOS) {
              return fastest;
            }
          }
          if (spins % YIELD_SPINS == 0) {
            Thread.yield();
          }
        }
      }
      double mean = (System.nanoTime() - windowStart) / (2.0 * WINDOW);
      fastest = fastest < 0 ? mean : Math.min(fastest, mean);
    }
    return fastest;
  }

  private void answer() {
    long value = 1;
    for (int spins = 1; ; spins++) {
      if ((long) CELL.getAcquire(line, INDEX) == value) {
        CELL.setRelease(line, INDEX, value + 1);
        value += 2;
        spins = 0;
      } else if (spins % LOOK_SPINS == 0) {
        if (over) {
          return;
        }
        if (spins % YIELD_SPINS == 0) {
          Thread.yield();
        }
      }
    }
  }
}
