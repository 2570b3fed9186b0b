package io.nccl4j.bench;

/**
 * The timed loop. Nothing here allocates, logs or looks at the clock between operations, but for
 * {@link Blocking#WAIT_THEN_UNTIMED_BARRIER}, which has to.
 */
final class Timing {
  private final RankSet ranks;
  private final Team team;

  // Where the next round goes on in the buffers.
  private int next;

  /** Times operations of {@code ranks}. */
  Timing(RankSet ranks, Team team) {
    this.ranks = ranks;
    this.team = team;
  }

  /** Runs operations of the case the ranks are prepared for; all ranks start together. */
  long nanos(int iterations, Blocking blocking) {
    team.barrier();
    return switch (blocking) {
      case NONE -> queued(iterations);
      case WAIT -> waited(iterations, false);
      case WAIT_AND_BARRIER -> waited(iterations, true);
      case WAIT_THEN_UNTIMED_BARRIER -> withoutBarrier(iterations);
    };
  }

  private long queued(int iterations) {
    int positions = ranks.first().positions();
    int position = next % positions;
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      ranks.launch(position);
      if (++position == positions) {
        position = 0;
      }
    }
    ranks.synchronize();
    next = position;
    return System.nanoTime() - start;
  }

  private long waited(int iterations, boolean barrier) {
    int positions = ranks.first().positions();
    int position = next % positions;
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      ranks.launch(position);
      ranks.synchronize();
      if (barrier) {
        team.barrier();
      }
      if (++position == positions) {
        position = 0;
      }
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
      ranks.launch(position);
      ranks.synchronize();
      nanos += System.nanoTime() - start;
      team.barrier();
      if (++position == positions) {
        position = 0;
      }
    }
    next = position;
    return nanos;
  }
}
