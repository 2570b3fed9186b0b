package io.nccl4j.internal.cuda.driver;

import io.nccl4j.internal.schedule.Padded;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Keeps threads apart for the length of a few instructions or a native call that does not wait: a
 * lock without queue, because there is almost never a second thread. Not reentrant.
 */
public final class Guard extends Padded {
  private static final VarHandle HELD;

  static {
    try {
      HELD = MethodHandles.lookup().findVarHandle(Guard.class, "held", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("unused") // by VarHandle
  private int held;

  public void enter() {
    while (!tryEnter()) {
      Thread.yield();
    }
  }

  public boolean tryEnter() {
    return HELD.compareAndSet(this, 0, 1);
  }

  /** Waits for at most {@code nanos} ns; returns whether it was entered. */
  public boolean enterWithin(long nanos) {
    long start = System.nanoTime();
    while (!tryEnter()) {
      if (System.nanoTime() - start > nanos) {
        return false;
      }
      Thread.yield();
    }
    return true;
  }

  public void leave() {
    HELD.setRelease(this, 0);
  }
}
