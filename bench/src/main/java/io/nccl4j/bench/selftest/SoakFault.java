package io.nccl4j.bench.selftest;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import java.time.Duration;
import java.util.Locale;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * What goes wrong in an episode of the soak.
 *
 * @param kind what
 * @param ranks to which ranks of the world: all of a process, if it meets one
 * @param step before which step, of what a rank does itself
 * @param when of what comes from outside: a part of the time that an episode takes, from when all
 *     have joined; negative if while they join
 * @param lasts how long a stop lasts; or the most that a slow rank waits at a time
 */
record SoakFault(Kind kind, Set<Integer> ranks, int step, double when, Duration lasts) {
  private static final int SHORTEST_STOP_MILLIS = 20;
  private static final int LONGEST_SHORT_STOP_MILLIS = 800;
  private static final int LONGEST_MORE_MILLIS = 1500;
  private static final int SLOW_MILLIS = 20;

  /** What goes wrong. */
  enum Kind {
    NONE,
    /** A rank waits now and then. */
    SLOW,
    /** Another thread aborts all communicators of a rank. */
    ABORT,
    /** A rank closes everything and goes. */
    LEAVE,
    /** A process is killed. */
    KILL,
    /** A process is stopped for less than the deadline of operations, then goes on. */
    STOP_SHORT,
    /** A process is stopped for longer than that. */
    STOP_LONG;

    /** Its name for people. */
    String label() {
      return name().toLowerCase(Locale.ROOT).replace('_', ' ');
    }

    /** Whether the parent does it to a process. */
    boolean isFromOutside() {
      return compareTo(KILL) >= 0;
    }
  }

  /** The fault of an episode with so many steps. */
  static SoakFault draw(
      SplittableRandom random, Soak.Settings settings, int steps, Duration deadline) {
    Kind kind = kind(random, settings);
    int rank = random.nextInt(settings.ranks());
    int step = random.nextInt(steps);
    double when = random.nextInt(6) == 0 ? -random.nextDouble() : 1.2 * random.nextDouble();
    long millis =
        switch (kind) {
          case STOP_SHORT -> random.nextInt(SHORTEST_STOP_MILLIS, LONGEST_SHORT_STOP_MILLIS);
          case STOP_LONG ->
              deadline.toMillis() + random.nextInt(SHORTEST_STOP_MILLIS, LONGEST_MORE_MILLIS);
          case SLOW -> 1 + random.nextInt(SLOW_MILLIS);
          default -> 0;
        };
    Set<Integer> ranks = kind == Kind.NONE ? Set.of() : Set.of(rank);
    if (kind.isFromOutside()) {
      // A process has neighbouring ranks.
      int own = settings.ranks() / settings.processes();
      int first = rank / own * own;
      ranks = IntStream.range(first, first + own).boxed().collect(Collectors.toUnmodifiableSet());
    }
    return new SoakFault(kind, ranks, step, when, Duration.ofMillis(millis));
  }

  /** Whether it comes while ranks join. */
  boolean isEarly() {
    return when < 0 && kind.isFromOutside();
  }

  private static Kind kind(SplittableRandom random, Soak.Settings settings) {
    boolean processes = settings.processes() > 1;
    int percent = random.nextInt(100);
    if (percent < 8) {
      return Kind.SLOW;
    }
    if (percent < 18) {
      return Kind.ABORT;
    }
    if (percent < 26) {
      return Kind.LEAVE;
    }
    if (percent < 30) {
      return processes && settings.kills() ? Kind.KILL : Kind.NONE;
    }
    if (percent < 38) {
      return processes && settings.stops() ? Kind.STOP_SHORT : Kind.NONE;
    }
    return percent < 40 && processes && settings.stops() ? Kind.STOP_LONG : Kind.NONE;
  }

  /**
   * Whether a rank may fail so.
   *
   * @param culprits the ranks of the world that the failure names
   * @param alone whether there is no other communicator than the world: where there are, ranks that
   *     failed in one of them leave the others, and are what those meet first
   */
  boolean allows(NcclException failure, Set<Integer> culprits, boolean alone) {
    boolean named = !culprits.isEmpty() && (!alone || ranks.containsAll(culprits));
    return switch (kind) {
      case NONE, SLOW, STOP_SHORT -> false;
      // An aborted communicator fails the streams it is in, and they the others.
      case ABORT ->
          failure instanceof AbortedException && named
              || !alone && failure instanceof PeerFailedException;
      case LEAVE -> failure instanceof PeerFailedException && named || !alone && isDropped(failure);
      case KILL ->
          failure instanceof PeerFailedException && named
              || !alone && isDropped(failure)
              // A process killed before it joined looks like one that never started.
              || failure instanceof DeadlineException && isEarly();
      case STOP_LONG ->
          failure instanceof DeadlineException || failure instanceof PeerFailedException;
    };
  }

  /** Because a stream that it shared with another communicator failed for a rank that is gone. */
  private static boolean isDropped(NcclException failure) {
    Throwable cause = failure;
    while (cause instanceof AbortedException) {
      cause = cause.getCause();
    }
    return failure instanceof AbortedException && cause instanceof PeerFailedException;
  }
}
