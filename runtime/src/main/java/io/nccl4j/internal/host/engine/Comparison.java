package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.schedule.Padded;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Finds collectives that the ranks of a host have called differently where carrying them out does
 * not show it: in one-way operations, in which not all ranks look at all others.
 */
public final class Comparison extends Padded {
  private static final int SIGNATURES = 16;
  private static final VarHandle UNCOMPARED;

  static {
    try {
      UNCOMPARED = MethodHandles.lookup().findVarHandle(Comparison.class, "uncompared", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final CollectiveEngine engine;
  private final RankView view;
  private final ControlBlock control;
  private final Accord accord;
  private final int[] here;
  private final int place;
  private final int nranks;

  /** Of the last collectives that this rank has told the others it completed. */
  private final int[] signatures = new int[SIGNATURES + REFERENCES];

  /** The last one-way collective; 0 when all ranks are known to have called the same since. */
  @SuppressWarnings("unused") // by VarHandle
  private long uncompared;

  /** What was compared last; only a hint, any thread may write it. */
  private long compared;

  Comparison(CollectiveEngine engine, RankView view) {
    this.engine = engine;
    this.view = view;
    control = view.control;
    accord = view.accord;
    here = view.here;
    place = view.placeOf[view.rank];
    nranks = here.length;
  }

  // ---- by whoever drives the collective

  /** Takes note of a one-way operation. */
  void noteOneWay(EngineWork w) {
    UNCOMPARED.setOpaque(this, w.seq);
  }

  /** Remembers what this rank tells the others it has completed. */
  void remember(EngineWork w) {
    signatures[(int) w.seq / Layout.DONE_INTERVAL & SIGNATURES - 1] = w.signature;
  }

  /**
   * Finds contradictions in one-way operations, where nobody looked at this rank's slot.
   *
   * @param doneWord what the rank at place {@code k} says it has completed
   */
  void check(EngineWork w, int k, long doneWord) {
    int seq = (int) doneWord;
    int behind = (int) engine.completed() - seq;
    if (seq != 0
        && behind >= 0
        && behind < SIGNATURES * Layout.DONE_INTERVAL
        && signatures[seq / Layout.DONE_INTERVAL & SIGNATURES - 1] != (int) (doneWord >>> 32)) {
      throw accord.mismatch(w, here[k]);
    }
  }

  // ---- by any thread

  /** Returns whether there were one-way operations, in which not all ranks look at all others. */
  public boolean isUncompared() {
    return (long) UNCOMPARED.getOpaque(this) != 0;
  }

  /**
   * Compares the last completed collective with what others have shown of it by now. As long as
   * there are new one-way operations, with the next rank only: each rank looks at another one so,
   * and a failure is told to all. Otherwise with all ranks, and if all have shown it, not again.
   *
   * @return a rank that called something else; −1 if none is known to have
   */
  public int compareLatest() {
    long oneWay = (long) UNCOMPARED.getOpaque(this);
    long last = engine.completed();
    boolean isNew = last == oneWay && last != compared;
    compared = last;
    long own = control.getAcquire(engine.slot(place, last));
    if ((int) own != (int) last) {
      // Another thread goes on at this moment.
      return -1;
    }
    boolean seen = true;
    for (int i = 1; i < nranks; i++) {
      int k = (place + i) % nranks;
      long shown = control.getAcquire(engine.slot(k, last));
      if ((int) shown != (int) last) {
        seen = false;
      } else if (shown != own) {
        return here[k];
      }
      if (isNew) {
        return -1;
      }
    }
    if (seen) {
      boolean ignored = UNCOMPARED.compareAndSet(this, oneWay, 0L);
    }
    return -1;
  }

  /**
   * Number of the last collective that this rank and another one have shown, if the two are not the
   * same; otherwise 0.
   */
  public long lastDifference(int k) {
    if (view.placeOf[k] < 0) {
      return 0;
    }
    long last = engine.completed();
    for (long seq = last; seq > Math.max(0, last - Layout.OUTBOX_SLOTS); seq--) {
      long own = control.getAcquire(engine.slot(place, seq));
      long shown = control.getAcquire(engine.slot(view.placeOf[k], seq));
      if ((int) own == (int) seq && (int) shown == (int) seq) {
        return own == shown ? 0 : seq;
      }
    }
    return 0;
  }
}
