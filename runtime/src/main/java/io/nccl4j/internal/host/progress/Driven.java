package io.nccl4j.internal.host.progress;

import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.memory.BufferUser;
import io.nccl4j.internal.schedule.Padded;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * A queue as whoever waits for it moves it. The submitting thread releases the tail; whoever owns
 * the queue, by one compare-and-set, takes steps at the head. Ownership may change between any two
 * steps.
 */
public abstract class Driven extends Padded implements BufferUser {
  // Places in `cells`, 128 bytes apart because different threads write them.
  private static final int TAIL = 16;
  private static final int HEAD = 32;
  private static final int OWNER = 48;
  private static final int WANTED = 64;
  private static final int CELLS = 80;
  private static final int SUBMITTER = 32;

  private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);

  private final long[] cells = new long[CELLS];

  /**
   * The thread that submits, in the middle of its lines: others look at it often, and it seldom
   * changes.
   */
  private final @Nullable Thread[] submitter = new Thread[2 * SUBMITTER];

  /** Whether it had work that nobody drove at the last tick; the ticker's. */
  boolean wasLazy;

  /** How far it was after the last tick; the ticker's. */
  long tickedHead;

  /** An empty queue. */
  protected Driven() {}

  /** Makes what lies before {@code tail} visible, by the submitting thread. */
  protected final void show(long tail) {
    Thread me = Thread.currentThread();
    if (submitter[SUBMITTER] != me) {
      submitter[SUBMITTER] = me;
    }
    CELL.setRelease(cells, TAIL, tail);
  }

  /** Up to where all is submitted. */
  public final long tail() {
    return (long) CELL.getAcquire(cells, TAIL);
  }

  /** Up to where all is done. */
  public final long head() {
    return (long) CELL.getAcquire(cells, HEAD);
  }

  /** {@link #head()} for the owner. */
  protected final long ownedHead() {
    return (long) CELL.get(cells, HEAD);
  }

  /** Everything before {@code head} is done; by the owner. */
  protected final void advance(long head) {
    CELL.setRelease(cells, HEAD, head);
  }

  /** Whether something is not done. */
  public final boolean hasPending() {
    return head() != tail();
  }

  /** Whether this thread submitted last. */
  public final boolean isSubmittedBy(Thread thread) {
    return submitter[SUBMITTER] == thread;
  }

  /** Makes the caller the owner if there is none. */
  public final boolean tryOwn() {
    return (long) CELL.getOpaque(cells, OWNER) == 0 && CELL.compareAndSet(cells, OWNER, 0L, 1L);
  }

  /** Ends that. */
  public final void disown() {
    CELL.setRelease(cells, OWNER, 0L);
  }

  final boolean isOwned() {
    return (long) CELL.getOpaque(cells, OWNER) != 0;
  }

  /** Asks the owner to leave after its current step. */
  public final void want() {
    CELL.setOpaque(cells, WANTED, 1L);
  }

  final boolean takeWanted() {
    if ((long) CELL.getOpaque(cells, WANTED) == 0) {
      return false;
    }
    CELL.setOpaque(cells, WANTED, 0L);
    return true;
  }

  /** As {@link #run(long, int)}, looking once. */
  public final int run(long target) {
    return run(target, 0);
  }

  /**
   * Takes steps until everything before {@code target} is done or something must wait. The caller
   * owns the queue.
   *
   * @param patience how often a collective looks for its peers before it is said to be waiting
   * @return see {@link Step}
   */
  public abstract int run(long target, int patience);

  /** Looks whether a rank that the head waits for has failed or left; by the owner. */
  public abstract void checkFaults();

  /** Notes since when the head waits, and fails it when its deadline has passed; by the owner. */
  public abstract void checkDeadline(long now);

  /** Sees to it that the caller's thread is not in the way of the ranks it waits for. */
  public abstract void checkPlacement(long now);

  /** For messages; may be out of date when another thread drives. */
  public abstract String describeHead();
}
