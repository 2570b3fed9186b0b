package io.nccl4j.bench.run;

import io.nccl4j.ExecutableGraph;
import io.nccl4j.bench.options.Blocking;
import java.util.List;

/**
 * The timed loop. Nothing here allocates, logs or looks at the clock between operations, but for
 * {@link Blocking#WAIT_THEN_UNTIMED_BARRIER}, which has to.
 */
final class Timing {
  private final RankSet ranks;
  private final Crew crew;
  private final int aggregated;

  // Where the next round goes on in the buffers.
  private int next;
  private long issueNanos;

  /**
   * Times operations of {@code ranks}.
   *
   * @param aggregated operations that each iteration issues as one group
   */
  Timing(RankSet ranks, Crew crew, int aggregated) {
    this.ranks = ranks;
    this.crew = crew;
    this.aggregated = aggregated;
  }

  /** Runs iterations of the case the ranks are prepared for; all ranks start together. */
  long nanos(int iterations, Blocking blocking) {
    crew.barrier();
    long nanos =
        switch (blocking) {
          case NONE -> queued(iterations);
          case WAIT -> waited(iterations, false);
          case WAIT_AND_BARRIER -> waited(iterations, true);
          case WAIT_THEN_UNTIMED_BARRIER -> withoutBarrier(iterations);
        };
    if (blocking != Blocking.NONE) {
      issueNanos = nanos;
    }
    return nanos;
  }

  /**
   * Of the last time, what passed until all was issued; all of it, if iterations are waited for.
   */
  long issueNanos() {
    return issueNanos;
  }

  private int after(int position, int positions) {
    int after = position + aggregated;
    return after < positions ? after : after % positions;
  }

  private long queued(int iterations) {
    int positions = ranks.first().positions();
    int position = next % positions;
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      ranks.launch(position, aggregated);
      position = after(position, positions);
    }
    issueNanos = System.nanoTime() - start;
    ranks.synchronize();
    next = position;
    return System.nanoTime() - start;
  }

  private long waited(int iterations, boolean barrier) {
    int positions = ranks.first().positions();
    int position = next % positions;
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      ranks.launch(position, aggregated);
      ranks.synchronize();
      if (barrier) {
        crew.barrier();
      }
      position = after(position, positions);
    }
    next = position;
    return System.nanoTime() - start;
  }

  private long withoutBarrier(int iterations) {
    int positions = ranks.first().positions();
    int position = next % positions;
    long nanos = 0;
    for (int i = 0; i < iterations; i++) {
      long start = System.nanoTime();
      ranks.launch(position, aggregated);
      ranks.synchronize();
      nanos += System.nanoTime() - start;
      crew.barrier();
      position = after(position, positions);
    }
    next = position;
    return nanos;
  }

  /** Issues iterations without waiting for them: what a graph captures. */
  void issue(int iterations) {
    int positions = ranks.first().positions();
    int position = 0;
    for (int i = 0; i < iterations; i++) {
      ranks.launch(position, aggregated);
      position = after(position, positions);
    }
  }

  /** Launches graphs, one for each rank; all ranks start together. */
  long replayNanos(List<ExecutableGraph> graphs, int launches) {
    crew.barrier();
    long start = System.nanoTime();
    for (int l = 0; l < launches; l++) {
      for (LocalRank rank : ranks) {
        graphs.get(rank.index()).launch(rank.stream());
      }
    }
    issueNanos = System.nanoTime() - start;
    ranks.synchronize();
    return System.nanoTime() - start;
  }

  /**
   * Runs iterations between marks in the streams, and returns the time of an operation of each, in
   * µs, of this thread's ranks the longest.
   */
  double[] eachMicros(int iterations, Blocking blocking) {
    boolean pairs = blocking == Blocking.WAIT_THEN_UNTIMED_BARRIER;
    for (LocalRank rank : ranks) {
      rank.prepareMarks(pairs ? 2 * iterations : iterations + 1);
    }
    int positions = ranks.first().positions();
    int position = next % positions;
    crew.barrier();
    for (int i = 0; i < iterations; i++) {
      ranks.mark(pairs ? 2 * i : i);
      ranks.launch(position, aggregated);
      if (pairs) {
        ranks.mark(2 * i + 1);
      }
      if (blocking != Blocking.NONE) {
        ranks.synchronize();
      }
      if (pairs || blocking == Blocking.WAIT_AND_BARRIER) {
        crew.barrier();
      }
      position = after(position, positions);
    }
    if (!pairs) {
      ranks.mark(iterations);
    }
    ranks.synchronize();
    next = position;
    double[] micros = new double[iterations];
    for (int i = 0; i < iterations; i++) {
      for (LocalRank rank : ranks) {
        double one = pairs ? rank.microsBetween(2 * i, 2 * i + 1) : rank.microsBetween(i, i + 1);
        micros[i] = Math.max(micros[i], one / aggregated);
      }
    }
    return micros;
  }
}
