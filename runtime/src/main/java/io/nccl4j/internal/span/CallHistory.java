package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.operation.Signature;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The last collectives of one rank, by number. Their words are chained: from the first collective
 * in which two ranks differ, all words do, so two histories show which one that is.
 */
final class CallHistory {
  /**
   * How many are remembered; a power of two. A rank gets at most {@link Wire#SLOTS} transfers ahead
   * of one that it has sent something, so what two ranks differ in is not further back.
   */
  static final int CALLS = 64;

  /** Most bytes of {@link #words}. */
  static final int WORDS_BYTES = Long.BYTES + CALLS * Integer.BYTES;

  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

  private final long[] calls = new long[CALLS];
  private final int[] words = new int[CALLS];
  private final long[] codes = new long[CALLS];
  private final long[] counts = new long[CALLS];
  private long latest;

  /** The number of the last one; 0 if there is none. */
  long latest() {
    return latest;
  }

  /** Notes a collective. */
  void add(EngineWork w) {
    add(w.seq, w.signature, w.code(), w.count);
  }

  void add(long call, int word, long code, long count) {
    latest = call;
    int place = place(call);
    calls[place] = call;
    words[place] = word;
    codes[place] = code;
    counts[place] = count;
  }

  private static int place(long call) {
    return (int) call & CALLS - 1;
  }

  /** Whether a collective is remembered. */
  boolean has(long call) {
    return call > 0 && calls[place(call)] == call;
  }

  /** Whether one is remembered with that word. */
  boolean hasWord(long call, int word) {
    return has(call) && words[place(call)] == word;
  }

  /** The code of a collective; 0 if it is not remembered. */
  long code(long call) {
    return has(call) ? codes[place(call)] : 0;
  }

  /** The count of one that is. */
  long count(long call) {
    return counts[place(call)];
  }

  /** Whether one is remembered that can be the same as another rank's. */
  boolean agrees(long call, long code, long count) {
    return has(call) && Signature.agree(code(call), count(call), code, count);
  }

  /** The number of the oldest one from which on all are remembered. */
  private long oldest() {
    long first = latest;
    while (first > 1 && latest - first < CALLS - 1 && has(first - 1)) {
      first--;
    }
    return first;
  }

  /** The words of all, for another rank to compare. */
  MemorySegment words() {
    long first = oldest();
    int number = (int) (latest - first) + 1;
    MemorySegment all = Arena.ofAuto().allocate(Long.BYTES + (long) number * Integer.BYTES);
    all.set(LONG, 0, first);
    for (int i = 0; i < number; i++) {
      all.set(INT, Long.BYTES + (long) i * Integer.BYTES, words[place(first + i)]);
    }
    return all;
  }

  /** The first collective that both sides remember; what was before cannot be compared. */
  long firstInBoth(MemorySegment theirs, long offset) {
    return Math.max(theirs.get(LONG, offset), oldest());
  }

  /**
   * The first collective in which another rank's {@link #words} differ from this one's.
   *
   * @return its number; 0 if none that both remember differs
   */
  long firstDifference(MemorySegment theirs, long offset, long bytes) {
    long first = theirs.get(LONG, offset);
    long last = Math.min(latest, first + (bytes - Long.BYTES) / Integer.BYTES - 1);
    for (long call = firstInBoth(theirs, offset); call <= last; call++) {
      int word = theirs.get(INT, offset + Long.BYTES + (call - first) * Integer.BYTES);
      if (words[place(call)] != word) {
        return call;
      }
    }
    return 0;
  }
}
