package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.internal.operation.Signature;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * What a rank has called with each single peer, one direction: the last {@value #ENTRIES} messages
 * of a pair. Written by the submitting thread, read by any to explain.
 */
final class PairLedger {
  static final int ENTRIES = 256;

  // Of an entry: its number, code, count, the chain up to it.
  private static final int FIELDS = 4;
  private static final int CHAIN = 3;
  private static final VarHandle LONG = MethodHandles.arrayElementVarHandle(long[].class);

  /** By peer, made at its first message: the number of messages, then the entries. */
  private final AtomicReferenceArray<long[]> pairs;

  /** By peer: messages up to this one are known to agree. */
  private final AtomicLongArray agreed;

  PairLedger(int nranks) {
    pairs = new AtomicReferenceArray<>(nranks);
    agreed = new AtomicLongArray(nranks);
  }

  /** Notes a message and returns its number. */
  long note(int peer, long code, long count) {
    long[] pair = pairs.getOpaque(peer);
    if (pair == null) {
      pair = new long[1 + ENTRIES * FIELDS];
      pairs.setRelease(peer, pair);
    }
    long seq = (long) LONG.getOpaque(pair, 0) + 1;
    int at = at(seq);
    LONG.setOpaque(pair, at + 1, code);
    LONG.setOpaque(pair, at + 2, count);
    int before = seq == 1 ? 0 : (int) (long) LONG.getOpaque(pair, at(seq - 1) + CHAIN);
    int chain = Signature.chain(before, Signature.of(type(code), count));
    LONG.setOpaque(pair, at + CHAIN, (long) chain);
    LONG.setRelease(pair, at, seq);
    LONG.setRelease(pair, 0, seq);
    return seq;
  }

  private static int at(long seq) {
    return 1 + (int) (seq % ENTRIES) * FIELDS;
  }

  /** Number of messages with a peer so far. */
  long messages(int peer) {
    long[] pair = pairs.getAcquire(peer);
    return pair == null ? 0 : (long) LONG.getAcquire(pair, 0);
  }

  boolean has(int peer, long seq) {
    long[] pair = pairs.getAcquire(peer);
    return pair != null && (long) LONG.getAcquire(pair, at(seq)) == seq;
  }

  long code(int peer, long seq) {
    return (long) LONG.getOpaque(pairs.getAcquire(peer), at(seq) + 1);
  }

  long count(int peer, long seq) {
    return (long) LONG.getOpaque(pairs.getAcquire(peer), at(seq) + 2);
  }

  /**
   * The first message, of the last so many and those that were not compared before, in which what
   * one rank sends is not what the other expects; 0 if there is none.
   *
   * @param sent what {@code sender} notes with {@code receiver}
   * @param expected what {@code receiver} notes with {@code sender}
   */
  static long difference(PairLedger sent, int receiver, PairLedger expected, int sender) {
    long last = Math.min(sent.messages(receiver), expected.messages(sender));
    long agreed = sent.agreed.getOpaque(receiver);
    if (last <= agreed) {
      // Nothing is written: the line is shared by the two ranks' threads.
      return 0;
    }
    boolean same =
        sent.chain(receiver, last) == expected.chain(sender, last)
            && sent.has(receiver, last)
            && expected.has(sender, last);
    long first = same ? last + 1 : Math.max(agreed, last - ENTRIES) + 1;
    for (long seq = first; seq <= last; seq++) {
      boolean differ =
          type(sent.code(receiver, seq)) != type(expected.code(sender, seq))
              || sent.count(receiver, seq) != expected.count(sender, seq);
      if (differ && sent.has(receiver, seq) && expected.has(sender, seq)) {
        return seq;
      }
    }
    sent.agreed.setOpaque(receiver, last);
    return 0;
  }

  /** What all messages with a peer up to one come to, if that one is still recorded. */
  private long chain(int peer, long seq) {
    return (long) LONG.getOpaque(pairs.getAcquire(peer), at(seq) + CHAIN);
  }

  private static long type(long code) {
    return code >>> 8 & 0xff;
  }
}
