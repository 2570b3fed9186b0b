package io.nccl4j.internal.schedule;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The bounded queue of a communicator's unfinished works, in order of submission.
 *
 * <p>A ring of works, allocated at once. A place is taken by the submitting thread and given back
 * by whoever completes or discards the work, each exactly once; that may be in any order, but room
 * is counted from the oldest unfinished work to the newest one. An empty FIFO starts at its first
 * place again, so that a program that waits for each operation keeps using the same few cache
 * lines. Taking more than half for one plan is refused, so that a plan can always be put together
 * while another one runs.
 *
 * <p>Methods are for the submitting thread unless they say that any thread may ask.
 *
 * @param <W> the backend's work
 */
public final class WorkFifo<W extends Work> extends Padded {
  private static final VarHandle FIRST;
  private static final VarHandle USED;
  private static final VarHandle HIGH_WATER;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      FIRST = lookup.findVarHandle(WorkFifo.class, "first", int.class);
      USED = lookup.findVarHandle(WorkFifo.class, "used", int.class);
      HIGH_WATER = lookup.findVarHandle(WorkFifo.class, "highWater", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final W[] ring;
  private final int mask;
  private int first;
  private int used;
  private int highWater;

  /** Whether a group was ever discarded, so that places at the new end may be free. */
  private volatile boolean discards;

  /**
   * A FIFO of {@code bytes} bytes.
   *
   * @param bytes a power of two
   * @param factory makes one work; called for every place
   */
  @SuppressWarnings("unchecked")
  public WorkFifo(long bytes, Supplier<W> factory) {
    int places = (int) (bytes / Work.BYTES);
    ring = (W[]) new Work[places];
    for (int i = 0; i < places; i++) {
      ring[i] = factory.get();
    }
    mask = places - 1;
  }

  /** Number of works it holds. */
  public int capacity() {
    return ring.length;
  }

  /** Number of works one plan may have. */
  public int planLimit() {
    return ring.length / 2;
  }

  /** Whether {@link #take()} would find room. */
  public boolean hasRoom() {
    return used < ring.length
        || reclaim() < ring.length
        || discards && reclaimNewest() < ring.length;
  }

  /** Takes the next place; there must be room. */
  public W take() {
    int before = reclaim();
    W work = ring[first + before & mask];
    work.take();
    USED.setRelease(this, before + 1);
    if (before >= highWater) {
      HIGH_WATER.setOpaque(this, before + 1);
    }
    return work;
  }

  /** Gives back a work that was taken and never published. Any thread may, once. */
  void discard(Work work) {
    work.free();
    discards = true;
  }

  /** The oldest unfinished work, if there is one; otherwise any. */
  public W oldest() {
    return ring[first];
  }

  /**
   * Passes over what is complete at the old end; returns the number of places that are still taken.
   */
  private int reclaim() {
    int left = used;
    int oldest = first;
    while (left > 0 && !ring[oldest].isInUse()) {
      oldest = oldest + 1 & mask;
      left--;
    }
    FIRST.setOpaque(this, left == 0 ? 0 : oldest);
    USED.setRelease(this, left);
    return left;
  }

  /**
   * The same at the new end, where groups are discarded while older works run. Only a full FIFO is
   * worth the look.
   */
  private int reclaimNewest() {
    int left = used;
    while (left > 0 && !ring[first + left - 1 & mask].isInUse()) {
      left--;
    }
    USED.setRelease(this, left);
    return left;
  }

  /**
   * Number of works in use now. Any thread may ask; while works are taken and completed the answer
   * is about right.
   */
  public int inUse() {
    int oldest = (int) FIRST.getOpaque(this);
    int left = (int) USED.getOpaque(this);
    int count = 0;
    for (int i = 0; i < left; i++) {
      if (ring[oldest + i & mask].isInUse()) {
        count++;
      }
    }
    return count;
  }

  /**
   * The work that was taken first among those in use, or null; as {@link #oldestInUse(Predicate)}.
   */
  public @Nullable W oldestInUse() {
    return oldestInUse(work -> true);
  }

  /**
   * The work that was taken first among those in use that are {@code wanted}, or null. Any thread
   * may ask: a work that it knows to have been taken is found if it is in use all the time; of
   * others the answer held a moment ago. Only the taken places are looked at, since a sweep through
   * all of them would drive everything else out of the processor's caches.
   */
  public @Nullable W oldestInUse(Predicate<? super W> wanted) {
    int oldest = (int) FIRST.getAcquire(this);
    W found = search(oldest, (int) USED.getAcquire(this), wanted);
    // Where the submitter has passed over complete works in between, the two may not belong
    // together.
    return found != null || (int) FIRST.getAcquire(this) == oldest
        ? found
        : search(oldest, ring.length, wanted);
  }

  /**
   * Calls {@code action} for every work in use, under the same conditions as {@link
   * #oldestInUse(Predicate)}; for some of them perhaps twice.
   */
  public void forEachInUse(Consumer<? super W> action) {
    @Nullable W none =
        oldestInUse(
            work -> {
              action.accept(work);
              return false;
            });
    assert none == null;
  }

  private @Nullable W search(int start, int places, Predicate<? super W> wanted) {
    for (int i = 0; i < places; i++) {
      W work = ring[start + i & mask];
      if (work.isInUse() && wanted.test(work)) {
        return work;
      }
    }
    return null;
  }

  /**
   * Bytes that are taken now, from the oldest unfinished work to the newest one. Any thread may
   * ask; while works are taken and completed the answer is about right.
   */
  public long takenBytes() {
    int oldest = (int) FIRST.getOpaque(this);
    int left = (int) USED.getOpaque(this);
    // The submitter passes over complete works only when it looks for room.
    while (left > 0 && !ring[oldest & mask].isInUse()) {
      oldest++;
      left--;
    }
    while (discards && left > 0 && !ring[oldest + left - 1 & mask].isInUse()) {
      left--;
    }
    return (long) left * Work.BYTES;
  }

  /**
   * The most bytes that were ever taken at once, from the oldest unfinished work to the newest one.
   * Any thread may ask.
   */
  public long highWaterBytes() {
    return (long) (int) HIGH_WATER.getOpaque(this) * Work.BYTES;
  }

  /** The work in place {@code index}, 0 to capacity−1, for diagnosis. Any thread may ask. */
  public W at(int index) {
    return ring[index];
  }
}
