package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.EngineWork;

/** Transfers that have begun and are waited for together. It is used again and again. */
final class Transfers {
  private final Transfer[] underWay;
  private int count;
  private int receives;

  /** Of none; later of {@code most} at most. */
  Transfers(int most) {
    underWay = new Transfer[most];
  }

  void add(Transfer t) {
    underWay[count++] = t;
    receives += t.sends ? 0 : 1;
  }

  boolean isEmpty() {
    return count == 0;
  }

  /** Whether receives are among them. */
  boolean hasReceives() {
    return receives > 0;
  }

  /** Gets on with them; whether some of them are done now, and so no more among these. */
  boolean advance(Wire wire) {
    boolean moved = false;
    for (int i = 0; i < count; ) {
      Transfer t = underWay[i];
      if (wire.isDone(t)) {
        receives -= t.sends ? 0 : 1;
        underWay[i] = underWay[--count];
        moved = true;
      } else {
        i++;
      }
    }
    return moved;
  }

  /** Notes a rank that a work waits for, if these are not done. */
  void noteWaiting(EngineWork w) {
    if (count > 0) {
      w.blockedOn = underWay[count - 1].link.peer;
    }
  }
}
