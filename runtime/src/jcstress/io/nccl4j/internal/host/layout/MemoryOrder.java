package io.nccl4j.internal.host.layout;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;
import org.openjdk.jcstress.infra.results.I_Result;

/**
 * The rules of docs/host-engine.md, "Memory order", each between two ranks. Accesses are those of
 * {@link ControlBlock}, the order of them is that of the engine.
 */
public final class MemoryOrder {
  private MemoryOrder() {}

  /** Two lines beside the header of a control block, zero at first. */
  static class Lines {
    /** More than are in use at a time: a state takes the place of one long before. */
    private static final int PLACES = 1 << 16;

    private static final long PLACE_BYTES = 1024;
    private static final MemorySegment ALL =
        Arena.global().allocate(PLACES * PLACE_BYTES, Layout.LINE);
    private static final AtomicInteger NEXT = new AtomicInteger();

    static final long FIRST = 4L * Layout.LINE;
    static final long SECOND = 5L * Layout.LINE;
    static final long DATA = FIRST + Long.BYTES;

    final ControlBlock control;

    Lines() {
      long place = (NEXT.getAndIncrement() & PLACES - 1) * PLACE_BYTES;
      MemorySegment own = ALL.asSlice(place, PLACE_BYTES);
      control = new ControlBlock(own.fill((byte) 0), 0, 2);
    }
  }

  /** An outbox slot, a lane slot, a sync counter, a ledger: data first, then the word. */
  @JCStressTest
  @Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "not shown yet")
  @Outcome(id = "0, 7", expect = ACCEPTABLE, desc = "not shown yet, and not looked at")
  @Outcome(id = "1, 7", expect = ACCEPTABLE, desc = "shown")
  @Outcome(id = "1, 0", expect = FORBIDDEN, desc = "the word without its data")
  @State
  public static class DataComesWithItsWord extends Lines {
    @Actor
    public void owner() {
      control.setPlain(DATA, 7);
      control.setRelease(FIRST, 1);
    }

    @Actor
    public void peer(II_Result r) {
      r.r1 = (int) control.getAcquire(FIRST);
      r.r2 = (int) control.getPlain(DATA);
    }
  }

  /** Done, ack, taken: a slot is written again only when its reader has said that it is done. */
  @JCStressTest
  @Outcome(id = "0", expect = ACCEPTABLE, desc = "what was there")
  @Outcome(id = "7", expect = FORBIDDEN, desc = "what comes after it")
  @State
  public static class SlotsAreUsedAgainAfterTheirReader extends Lines {
    @Actor
    public void reader(I_Result r) {
      r.r1 = (int) control.getPlain(DATA);
      control.setRelease(SECOND, 1);
    }

    @Actor
    public void owner() {
      if (control.getAcquire(SECOND) == 1) {
        control.setPlain(DATA, 7);
      }
    }
  }

  /** Whoever sees a new epoch sees the state: it looks only once for each epoch. */
  @JCStressTest
  @Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "nothing has happened")
  @Outcome(id = "0, 3", expect = ACCEPTABLE, desc = "the epoch comes later")
  @Outcome(id = "1, 3", expect = ACCEPTABLE, desc = "a failure")
  @Outcome(id = "1, 0", expect = FORBIDDEN, desc = "a failure that is never looked at again")
  @State
  public static class TheEpochComesAfterTheState extends Lines {
    @Actor
    public void failing() {
      if (control.compareAndSet(FIRST, 0, 3)) {
        control.advanceEpoch();
      }
    }

    @Actor
    public void peer(II_Result r) {
      r.r1 = (int) control.epoch();
      r.r2 = (int) control.getAcquire(FIRST);
    }
  }

  /** A failed rank's program may change its buffers: who has read them looks at the epoch. */
  @JCStressTest
  @Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "the data, and no failure")
  @Outcome(id = "0, 1", expect = ACCEPTABLE, desc = "the data, and a failure")
  @Outcome(id = "7, 1", expect = ACCEPTABLE, desc = "changed, and a failure")
  @Outcome(id = "7, 0", expect = FORBIDDEN, desc = "changed data taken for good")
  @State
  public static class ChangesComeAfterTheEpoch extends Lines {
    @Actor
    public void failing() {
      control.advanceEpoch();
      VarHandle.fullFence();
      control.setPlain(DATA, 7);
    }

    @Actor
    public void reader(II_Result r) {
      r.r1 = (int) control.getPlain(DATA);
      VarHandle.acquireFence();
      r.r2 = (int) control.epoch();
    }
  }

  /** Two ranks that leave: at least the one that leaves last sees what the other has called. */
  @JCStressTest
  @Outcome(id = "1, 1", expect = ACCEPTABLE, desc = "both see it")
  @Outcome(id = "0, 1", expect = ACCEPTABLE, desc = "the second sees it")
  @Outcome(id = "1, 0", expect = ACCEPTABLE, desc = "the first sees it")
  @Outcome(id = "0, 0", expect = FORBIDDEN, desc = "a contradiction that nobody finds")
  @State
  public static class OneOfTwoLeavingSeesTheOther extends Lines {
    @Actor
    public void first(II_Result r) {
      control.setRelease(FIRST, 1);
      VarHandle.fullFence();
      r.r1 = (int) control.getAcquire(SECOND);
    }

    @Actor
    public void second(II_Result r) {
      control.setRelease(SECOND, 1);
      VarHandle.fullFence();
      r.r2 = (int) control.getAcquire(FIRST);
    }
  }

  /** Survivors: who gives up sees the decision, or who decides sees that it has given up. */
  @JCStressTest
  @Outcome(id = "1, 2", expect = ACCEPTABLE, desc = "both see it")
  @Outcome(id = "0, 2", expect = ACCEPTABLE, desc = "the other sees that it gave up")
  @Outcome(id = "1, 0", expect = ACCEPTABLE, desc = "it sees the decision")
  @Outcome(id = "0, 0", expect = FORBIDDEN, desc = "all wait for a rank that does not come")
  @State
  public static class GivingUpMeetsTheDecision extends Lines {
    @Actor
    public void givingUp(II_Result r) {
      control.setRelease(FIRST, 2);
      VarHandle.fullFence();
      r.r1 = (int) control.getAcquire(control.decided());
    }

    @Actor
    public void deciding(II_Result r) {
      if (control.compareAndSet(control.decided(), 0, 1)) {
        VarHandle.fullFence();
        r.r2 = (int) control.getAcquire(FIRST);
      }
    }
  }
}
