package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.Work;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * What a rank has called: counts, and the last {@value #ENTRIES} collectives. Written by the
 * submitting thread, read by any to explain.
 */
public final class CudaLedger extends Padded {
  static final int ENTRIES = 1024;

  // Of an entry: its number, code, count, signature, the size of its group, the chain up to it.
  private static final int FIELDS = 6;
  private static final int CHAIN = 5;
  private static final VarHandle LONG = MethodHandles.arrayElementVarHandle(long[].class);
  private static final VarHandle COLLECTIVES = field("collectives");
  private static final VarHandle SENDS = field("sends");
  private static final VarHandle RECEIVES = field("receives");

  private final int nranks;
  private final long[] entries = new long[ENTRIES * FIELDS];

  /** Written by the submitting thread, without a fence, as are the next two. */
  private long collectives;

  private final PairLedger sent;
  private final PairLedger expected;
  private final PairLedger blocksSent;
  private final PairLedger blocksExpected;
  private long sends;
  private long receives;

  /** The submitting thread's. */
  private long oneSided;

  /** What all collectives so far come to; the submitting thread's. */
  private int chain;

  private volatile long agreed;

  private static VarHandle field(String name) {
    try {
      return MethodHandles.lookup().findVarHandle(CudaLedger.class, name, long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  CudaLedger(int nranks) {
    this.nranks = nranks;
    sent = new PairLedger(nranks);
    expected = new PairLedger(nranks);
    blocksSent = new PairLedger(nranks);
    blocksExpected = new PairLedger(nranks);
  }

  /** Sends, by peer. */
  PairLedger sent() {
    return sent;
  }

  /** Receives, by peer. */
  PairLedger expected() {
    return expected;
  }

  /** Blocks of collectives whose counts only a pair knows, sent by this rank. */
  PairLedger blocksSent() {
    return blocksSent;
  }

  /** As {@link #blocksSent}, expected by this rank. */
  PairLedger blocksExpected() {
    return blocksExpected;
  }

  public long collectives() {
    return (long) COLLECTIVES.getAcquire(this);
  }

  /** Collectives up to this one are known to agree with the other ranks of this process. */
  long agreed() {
    return agreed;
  }

  void agreedUpTo(long seq) {
    if (seq != agreed) {
      agreed = seq;
    }
  }

  public long sends() {
    return (long) SENDS.getAcquire(this);
  }

  public long receives() {
    return (long) RECEIVES.getAcquire(this);
  }

  /**
   * Notes an operation and returns its number.
   *
   * @param signature what of its counts all ranks know
   */
  public long note(long code, long count, long signature) {
    Operation operation = Signature.operation(code);
    if (operation.isOneSided()) {
      return ++oneSided;
    }
    int peer = (int) (code >>> 32);
    if (operation == Operation.SEND) {
      SENDS.setRelease(this, sends + 1);
      return sent.note(peer, code, count);
    }
    if (operation == Operation.RECV) {
      RECEIVES.setRelease(this, receives + 1);
      return expected.note(peer, code, count);
    }
    long seq = collectives + 1;
    int at = at(seq);
    LONG.setOpaque(entries, at + 1, code);
    LONG.setOpaque(entries, at + 2, count);
    LONG.setOpaque(entries, at + 3, signature);
    LONG.setOpaque(entries, at + 4, 1L);
    chain = Signature.chain(chain, Signature.of(code, signature));
    LONG.setOpaque(entries, at + CHAIN, (long) chain);
    LONG.setRelease(entries, at, seq);
    COLLECTIVES.setRelease(this, seq);
    return seq;
  }

  /** Notes that a collective starts in a group of as many of this communicator. */
  public void noteGroup(long seq, int size) {
    LONG.setOpaque(entries, at(seq) + 4, (long) size);
  }

  /** How many collectives of this communicator the group of one holds, itself included. */
  long groupSize(long seq) {
    return (long) LONG.getOpaque(entries, at(seq) + 4);
  }

  /** Notes the blocks of a collective whose counts only a pair knows. */
  public void noteBlocks(Work work, int rank) {
    Operation operation = work.operation;
    if (!operation.hasPairCounts()) {
      return;
    }
    for (int k = 0; k < nranks; k++) {
      if (work.sends(rank) && operation.receives(k == work.root)) {
        blocksSent.note(k, work.code(), work.sendCount(k));
      }
      if (work.receives(rank) && operation.sends(k == work.root)) {
        blocksExpected.note(k, work.code(), work.recvCount(k));
      }
    }
  }

  private static int at(long seq) {
    return (int) (seq % ENTRIES) * FIELDS;
  }

  boolean has(long seq) {
    return (long) LONG.getAcquire(entries, at(seq)) == seq;
  }

  /**
   * Whether two ranks are known to have called the same collectives up to one, at the price of a
   * single comparison; if not, the entries tell.
   */
  boolean agreesUpTo(CudaLedger other, long seq) {
    int at = at(seq) + CHAIN;
    return (long) LONG.getOpaque(entries, at) == (long) LONG.getOpaque(other.entries, at)
        && has(seq)
        && other.has(seq);
  }

  /** Whether two ranks' entries are the same, or one of them is not recorded any more. */
  boolean agrees(CudaLedger other, long seq) {
    int at = at(seq);
    boolean same =
        (long) LONG.getOpaque(entries, at + 1) == (long) LONG.getOpaque(other.entries, at + 1)
            && (long) LONG.getOpaque(entries, at + 3)
                == (long) LONG.getOpaque(other.entries, at + 3);
    return same || !has(seq) || !other.has(seq);
  }

  String describe(long seq) {
    int at = at(seq);
    String text =
        Signature.describe(
            (long) LONG.getOpaque(entries, at + 1), (long) LONG.getOpaque(entries, at + 2));
    return has(seq) ? text : "an operation that is no longer recorded";
  }
}
