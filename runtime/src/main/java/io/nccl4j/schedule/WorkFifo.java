package io.nccl4j.schedule;

import java.util.function.Supplier;

/**
 * The bounded queue of a communicator's unfinished works, in order of submission.
 *
 * <p>It is a ring of works. A slot is taken by the submitting thread and given back by whoever
 * completes the work, each exactly once; the next slot in the ring is the only one that can be
 * taken, so that room is one test. Taking more than half for one plan is refused, so that a plan
 * can always be put together while another one runs.
 *
 * @param <W> the backend's work
 */
public final class WorkFifo<W extends Work> {
  private final W[] ring;
  private final int mask;
  private long taken;

  /**
   * A FIFO of {@code bytes} bytes.
   *
   * @param bytes a power of two
   * @param factory makes one work; called for every slot
   */
  @SuppressWarnings("unchecked")
  public WorkFifo(long bytes, Supplier<W> factory) {
    int slots = (int) (bytes / Work.BYTES);
    ring = (W[]) new Work[slots];
    for (int i = 0; i < slots; i++) {
      ring[i] = factory.get();
    }
    mask = slots - 1;
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
    return ring[(int) taken & mask].isFree();
  }

  /** Takes the next slot, which must be free. */
  public W take() {
    W work = ring[(int) taken++ & mask];
    work.take();
    return work;
  }

  /** The work that holds the next slot. */
  public W oldest() {
    return ring[(int) taken & mask];
  }

  /** Gives back the slot that was taken last, which was not published. */
  public void giveBack() {
    ring[(int) --taken & mask].free();
  }

  /** Number of slots taken since the start. */
  public long taken() {
    return taken;
  }

  /** The work in slot {@code index}, 0 to capacity−1, for diagnosis. */
  public W at(int index) {
    return ring[index];
  }
}
