package io.nccl4j.bench.selftest;

import io.nccl4j.NcclException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What comes of an episode of the soak on one rank, whose thread uses it. Whatever fails is held
 * against the episode's fault; what is left becomes a problem, in words.
 */
final class SoakOutcome {
  private final SoakEpisode episode;
  private final int rank;
  private final List<String> problems = new ArrayList<>();
  private String at = "joining";
  private long operations;
  private long bytes;
  private long wrong;
  private boolean failed;

  /** Nothing yet. */
  SoakOutcome(SoakEpisode episode, int rank) {
    this.episode = episode;
    this.rank = rank;
  }

  /** Operations that completed on this rank. */
  long operations() {
    return operations;
  }

  /** Bytes that were compared. */
  long bytes() {
    return bytes;
  }

  /** Wrong elements of operations that were said to be complete. */
  long wrong() {
    return wrong;
  }

  /** Whether a call failed: then the episode is over for this rank. */
  boolean hasFailed() {
    return failed;
  }

  /** What must not be. */
  List<String> problems() {
    return problems;
  }

  /** Says where in the episode the rank is. */
  void at(String place) {
    at = place;
  }

  /** An operation completed. */
  void completed() {
    operations++;
  }

  /** Memory was compared with what it must hold. */
  void compared(long of, long wrongElements) {
    bytes += of;
    wrong += wrongElements;
  }

  /**
   * Holds a failure against the fault.
   *
   * @param ranks of the communicator that failed; null if it may be one of several
   */
  void failed(NcclException e, @Nullable List<Integer> ranks) {
    failed = true;
    Set<Integer> culprits = new HashSet<>();
    for (int culprit : e.failedRanks()) {
      if (ranks == null) {
        culprits.addAll(episode.fault().ranks());
      } else if (culprit < ranks.size()) {
        culprits.add(ranks.get(culprit));
      }
    }
    if (!episode.fault().allows(e, culprits, !episode.hasFamilies())) {
      problem(
          e
              + " (names "
              + culprits
              + "; "
              + episode.fault().kind().label()
              + " of "
              + episode.fault().ranks()
              + ")",
          e);
    }
  }

  /** Closes something that must be closable. */
  void close(String what, AutoCloseable thing) {
    try {
      thing.close();
    } catch (Exception e) {
      problem("close() of a " + what + ": " + e, e);
    }
  }

  void problem(String text, @Nullable Throwable cause) {
    StringBuilder where = new StringBuilder();
    for (Throwable t = cause; t != null; t = t.getCause()) {
      if (t != cause) {
        where.append("; caused by ").append(t);
      }
      List<StackTraceElement> stack = List.of(t.getStackTrace());
      stack.stream().limit(8).forEach(element -> where.append(" | ").append(element));
    }
    problems.add(
        "rank "
            + rank
            + ", "
            + at
            + ", fault "
            + episode.fault().kind().label()
            + ": "
            + text
            + where);
  }
}
