package io.nccl4j.internal.schedule;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.internal.machine.Machine;
import java.util.Locale;

/**
 * The steps of a thread that waits by asking again and again: it spins, then yields its processor,
 * then sleeps between two questions. Yielding ends late by less than a microsecond as long as
 * nobody else wants the processor; a sleep by some 50 µs.
 *
 * <p>So a thread sleeps sooner where ranks share processors, and leaves them to the others. The
 * variable {@code NCCL4J_WAIT}, or the property {@code nccl4j.wait}, knows better.
 *
 * @param crowded whether ranks share processors
 * @param spinNanos how long it spins
 * @param yieldNanos after which it sleeps
 */
public record WaitSteps(boolean crowded, long spinNanos, long yieldNanos) {
  private static final long SPIN_NANOS = 100_000;

  /**
   * Longer than most waits within an operation: a rank that sleeps there delays all the others.
   * With 0.2 ms, an allReduce of 1 MiB took 1.5 times as long between two hosts of two ranks each
   * on two processors.
   */
  private static final long CROWDED_YIELD_NANOS = 1_000_000;

  private static final long SLEEP_NANOS_PER_RANK = 160_000;

  /** What can be asked for. */
  private enum Way {
    AUTO,
    SPIN,
    YIELD,
    SLEEP
  }

  /**
   * The steps where ranks wait for each other.
   *
   * @param ranks that wait at the same time and share processors, see {@link #sharing}
   * @param longestYield how long a thread with a processor of its own yields, in ns
   */
  public static WaitSteps of(int ranks, long longestYield) {
    return of(setting(), ranks, Machine.PROCESSORS, longestYield);
  }

  /**
   * Returns the longest sleep, in ns. It grows with the number of ranks per processor: if many woke
   * up often, they would leave little to those that compute.
   *
   * @param ranks as in {@link #of(int, long)}
   * @param least what it is where few ranks share a processor
   */
  public static long longestSleep(int ranks, long least) {
    return Math.max(least, ranks * SLEEP_NANOS_PER_RANK / Machine.PROCESSORS);
  }

  /**
   * Returns how many ranks share the processors that this process may use: the ranks of its host,
   * and if the machine has fewer processors than ranks, also those of its other hosts.
   *
   * @param here ranks of this host
   * @param onMachine ranks of all hosts on this machine
   */
  public static int sharing(int here, int onMachine) {
    return sharing(here, onMachine, Machine.allProcessors());
  }

  static int sharing(int here, int onMachine, int processors) {
    return onMachine > processors ? onMachine : here;
  }

  /**
   * Before there are ranks.
   *
   * @throws InvalidArgumentException if the setting is none
   */
  public static void requireKnown() {
    Way ignored = way(setting());
  }

  static WaitSteps of(String setting, int ranks, int processors, long longestYield) {
    boolean crowded = ranks > processors;
    return switch (way(setting)) {
      case AUTO ->
          crowded
              ? new WaitSteps(true, 0, CROWDED_YIELD_NANOS)
              : new WaitSteps(false, SPIN_NANOS, longestYield);
      case SPIN -> new WaitSteps(false, Long.MAX_VALUE, Long.MAX_VALUE);
      case YIELD -> new WaitSteps(crowded, crowded ? 0 : SPIN_NANOS, Long.MAX_VALUE);
      case SLEEP -> new WaitSteps(crowded, crowded ? 0 : SPIN_NANOS, 0);
    };
  }

  private static String setting() {
    String text = System.getProperty("nccl4j.wait");
    text = text == null ? System.getenv("NCCL4J_WAIT") : text;
    return text == null ? "auto" : text;
  }

  private static Way way(String setting) {
    for (Way way : Way.values()) {
      if (way.name().toLowerCase(Locale.ROOT).equals(setting)) {
        return way;
      }
    }
    throw new InvalidArgumentException(
        "NCCL4J_WAIT (or the property nccl4j.wait) is '" + setting + "'",
        "use auto, spin, yield or sleep");
  }
}
