package io.nccl4j.internal.host;

import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.layout.Ledger;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Padded;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/** How one rank's operations are numbered and signed, in the order of its calls. */
final class Numbers extends Padded {
  private static final VarHandle ISSUED;
  private static final VarHandle LANE = MethodHandles.arrayElementVarHandle(long[].class);

  static {
    try {
      ISSUED = MethodHandles.lookup().findVarHandle(Numbers.class, "issued", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Ledger ledger;
  private final int nranks;
  private final long[] sendSeq;
  private final long[] recvSeq;
  private long issued;
  private int signature;

  Numbers(Ledger ledger, int nranks) {
    this.ledger = ledger;
    this.nranks = nranks;
    sendSeq = new long[nranks + LONGS];
    recvSeq = new long[nranks + LONGS];
  }

  /** Numbers and signs a work, by the submitting thread, and notes it. */
  void assign(EngineWork work) {
    work.reset();
    if (work.isCollective()) {
      work.seq = issued + 1;
      ISSUED.setOpaque(this, work.seq);
      ledger.collective(work, work.seq);
      signature = Signature.chain(signature, sign(work));
      work.signature = signature;
    } else {
      work.seq = nextInLane(work);
      work.signature = sign(work);
    }
  }

  /** Numbers a send or receive, by the submitting thread, and notes it. It is not touched. */
  long nextInLane(EngineWork work) {
    long[] lane = work.operation == Operation.SEND ? sendSeq : recvSeq;
    long seq = lane[work.root] + 1;
    LANE.setOpaque(lane, work.root, seq);
    ledger.message(work, seq);
    return seq;
  }

  /** What a work adds to the signature, or its own one if it is a send or receive. */
  int sign(EngineWork work) {
    return work.isCollective()
        ? Signature.of(work.code(), work.signedCount(nranks))
        // Both sides of a lane must come to the same: only what both know.
        : Signature.of(Signature.code(Operation.SEND, work.type.ordinal(), 0, 0), work.count);
  }

  /**
   * Numbers and notes a graph's collectives, by the submitting thread.
   *
   * @param calls see {@link Ledger#collectives}
   * @return the number before the first
   */
  long issueAll(long[] calls) {
    long before = issued;
    ISSUED.setOpaque(this, ledger.collectives(calls, before));
    return before;
  }

  /**
   * Goes on to the signature of a graph's last collective.
   *
   * @param factor what all of them together multiply the signature before with
   * @param sum what they add then
   * @return the signature before
   */
  int signAll(int factor, int sum) {
    int before = signature;
    signature = before * factor + sum;
    return before;
  }

  /** Whether this rank has called what a work of another rank needs of it. Any thread. */
  boolean hasCalled(EngineWork work, int other) {
    long called =
        work.isCollective()
            ? collectives()
            : (long) LANE.getOpaque(work.operation == Operation.SEND ? recvSeq : sendSeq, other);
    return called >= work.seq;
  }

  /** How many collectives were called. Any thread, like the next two. */
  long collectives() {
    return (long) ISSUED.getOpaque(this);
  }

  long sends() {
    return sum(sendSeq);
  }

  long receives() {
    return sum(recvSeq);
  }

  private long sum(long[] lanes) {
    long sum = 0;
    for (int k = 0; k < nranks; k++) {
      sum += (long) LANE.getOpaque(lanes, k);
    }
    return sum;
  }
}
