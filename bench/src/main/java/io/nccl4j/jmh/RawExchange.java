package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * What two threads need at least to exchange two floats and add them up: a word of data and a
 * number each, in cache lines of their own, and nothing of nccl4j. The bound of {@link TwoRanks}.
 */
final class RawExchange implements AutoCloseable {
  private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);
  private static final int SLOTS = 16;
  private static final int SLOT = 64;
  private static final int SIDE = SLOTS * SLOT;
  private static final float GO = 1;
  private static final float STOP = 100;

  private final long[] cells = new long[3 * SIDE];
  private final Side mine = new Side(SIDE / 2, SIDE / 2 + SIDE);
  private final Side other = new Side(SIDE / 2 + SIDE, SIDE / 2);
  private final int batch;
  private final Thread thread;
  private volatile @Nullable Throwable failure;

  /** One thread's place in the exchange. */
  private final class Side {
    private final int own;
    private final int peers;
    private final float[] in = {GO, GO};
    private final float[] out = new float[in.length];
    private long number;

    Side(int own, int peers) {
      this.own = own;
      this.peers = peers;
    }

    void step() {
      for (int i = 0; i < batch; i++) {
        exchange();
      }
    }

    private void exchange() {
      int slot = (int) (++number & SLOTS - 1) * SLOT;
      WORD.set(cells, own + slot + 1, pack(in[0], in[1]));
      WORD.setRelease(cells, own + slot, number);
      while ((long) WORD.getAcquire(cells, peers + slot) != number) {
        Thread.onSpinWait();
      }
      long data = (long) WORD.get(cells, peers + slot + 1);
      out[0] = in[0] + Float.intBitsToFloat((int) data);
      out[1] = in[1] + Float.intBitsToFloat((int) (data >>> 32));
    }

    private static long pack(float low, float high) {
      return (long) Float.floatToRawIntBits(high) << 32
          | Float.floatToRawIntBits(low) & 0xffffffffL;
    }
  }

  /**
   * Two sides, of which the second one begins.
   *
   * @param batch exchanges of one step
   */
  RawExchange(int batch) {
    this.batch = batch;
    thread = Thread.ofPlatform().daemon().name("side-1").start(this::follow);
  }

  private void follow() {
    Device.get(Backend.HOST, 1).bindThread();
    try {
      do {
        other.step();
      } while (other.out[0] == GO + GO);
    } catch (Throwable e) {
      failure = e;
    }
  }

  /** One step of the first side; its first sum. */
  float step() {
    mine.step();
    return mine.out[0];
  }

  @Override
  public void close() {
    mine.in[0] = STOP;
    mine.step();
    try {
      thread.join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted before the other side had ended", e);
    }
    if (failure != null) {
      throw new IllegalStateException("the other side failed", failure);
    }
  }
}
