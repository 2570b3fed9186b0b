package io.nccl4j.internal.host.engine;

/** What one step of a work came to. Plain ints, because this is the hot path. */
public final class Step {
  /** The work is complete. */
  public static final int DONE = 0;

  /** Something was moved; there is more to do. */
  public static final int MOVED = 1;

  /** It waits for another rank. */
  public static final int BLOCKED = 2;

  /** It waits for something that a stream of this process must do first. */
  public static final int DEPENDS = 3;

  private Step() {}
}
