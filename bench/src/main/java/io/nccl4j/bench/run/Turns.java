package io.nccl4j.bench.run;

import io.nccl4j.AbortedException;
import java.util.concurrent.locks.LockSupport;

/**
 * One thread's view of the turns that its run and another one take. The threads of the run that has
 * no turn sleep: whoever has one has the machine for himself, and what disturbs the machine meets
 * both runs alike.
 */
final class Turns {
  /** Often, it would take time from the other run: its ranks share the sleepers' processors. */
  private static final long LOOK_NANOS = 1_000_000;

  private static final int LOOKS_PER_CHECK = 1_000;

  private final TurnFile file;
  private final int side;
  private final boolean ends;

  /**
   * A view of {@code file}.
   *
   * @param side of the run
   * @param ends whether this thread is the one of the run that ends turns
   */
  Turns(TurnFile file, int side, boolean ends) {
    this.file = file;
    this.side = side;
    this.ends = ends;
  }

  /**
   * Ends the turn of the run, when all its threads are here, and returns in the next one: at once
   * if the other run has left.
   *
   * @throws AbortedException if nobody is there any more who would say that the other run left
   */
  void pass(Crew crew) {
    // Nobody but this run changes it now, and only when all have read it.
    long mine = file.number();
    crew.barrier();
    if (ends && !file.hasLeft(1 - side)) {
      file.end(mine);
    }
    for (int looks = 1; !isNext(mine); looks++) {
      if (looks % LOOKS_PER_CHECK == 0 && !file.isGiven()) {
        throw new AbortedException(
            "the process that lets two runs take turns has ended", "start ./nccl4j turns again");
      }
      LockSupport.parkNanos(this, LOOK_NANOS);
    }
  }

  private boolean isNext(long last) {
    long number = file.number();
    return number > last && number % 2 == side || file.hasLeft(1 - side);
  }
}
