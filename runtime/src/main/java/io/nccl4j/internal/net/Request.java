package io.nccl4j.internal.net;

/**
 * Data that a port sends or receives. Reused: {@link RequestTable} gives it to one after another.
 */
public class Request {
  private final int index;
  private int generation;
  private long tag;
  private long bytes;
  private int state = Port.COMPLETE;

  protected Request(int index) {
    this.index = index;
  }

  /** Begins anew. */
  protected final void begin(long withTag, long length) {
    tag = withTag;
    bytes = length;
    state = Port.PENDING;
    generation++;
  }

  /** What the port's user knows it by. */
  public final long number() {
    return (long) generation << Integer.SIZE | index + 1L;
  }

  static int indexOf(long number) {
    return (int) number - 1;
  }

  final boolean is(long number) {
    return (int) (number >>> Integer.SIZE) == generation;
  }

  public final long tag() {
    return tag;
  }

  public final long bytes() {
    return bytes;
  }

  /** {@link Port#PENDING}, {@link Port#COMPLETE} or {@link Port#FAILED}. */
  public int state() {
    return state;
  }

  /** Ends it, unless it has ended. */
  public void end(int as) {
    if (state == Port.PENDING) {
      state = as;
    }
  }

  /** Given back: its number is no more. */
  protected void retire() {
    generation++;
  }
}
