package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;

/** Which collective two ranks differ in first, as far as both remember. */
class CallHistoryTest {
  private static final long LAST = 1000;

  /** A rank that has called {@code last} collectives, all of them other ones from one on. */
  private static CallHistory history(long last, long differing) {
    CallHistory history = new CallHistory();
    for (long call = 1; call <= last; call++) {
      history.add(call, (int) (call < differing ? call : -call), 7, call);
    }
    return history;
  }

  private static long difference(CallHistory one, CallHistory other) {
    MemorySegment words = other.words();
    assertTrue(words.byteSize() <= CallHistory.WORDS_BYTES);
    return one.firstDifference(words, 0, words.byteSize());
  }

  @Test
  void theFirstDifferenceIsFound() {
    for (long differing = 1; differing <= 40; differing++) {
      for (long last = differing; last <= 40; last++) {
        CallHistory usual = history(20 + last, Long.MAX_VALUE);
        CallHistory other = history(last, differing);
        assertEquals(differing, difference(usual, other));
        assertEquals(differing, difference(other, usual));
      }
    }
  }

  @Test
  void whoIsAheadStillFindsIt() {
    CallHistory usual = history(LAST, Long.MAX_VALUE);
    CallHistory ahead = history(LAST + Wire.SLOTS, LAST - 1);
    assertEquals(LAST - 1, difference(usual, ahead));
    assertEquals(LAST - 1, difference(ahead, usual));
  }

  @Test
  void whereTheOldestThatBothRememberDiffersItIsThat() {
    CallHistory usual = history(LAST, Long.MAX_VALUE);
    CallHistory other = history(LAST + 10, LAST / 2);
    long oldest = LAST + 10 - CallHistory.CALLS + 1;
    assertEquals(oldest, difference(usual, other));
    assertEquals(oldest, usual.firstInBoth(other.words(), 0));
    assertEquals(oldest, other.firstInBoth(usual.words(), 0));
  }

  @Test
  void whoHasCalledTheSameOrNothingInCommonDiffersNowhere() {
    CallHistory usual = history(LAST, Long.MAX_VALUE);
    assertEquals(0, difference(usual, history(LAST - 5, Long.MAX_VALUE)));
    assertEquals(0, difference(usual, history(LAST - CallHistory.CALLS, 1)));
    assertEquals(0, difference(usual, new CallHistory()));
    assertEquals(0, difference(new CallHistory(), usual));
  }

  @Test
  void onlyTheLastAreRemembered() {
    CallHistory history = history(LAST, Long.MAX_VALUE);
    assertTrue(history.has(LAST));
    assertTrue(history.has(LAST - CallHistory.CALLS + 1));
    assertFalse(history.has(LAST - CallHistory.CALLS));
    assertFalse(history.has(LAST + 1));
    assertFalse(new CallHistory().has(0));
    assertEquals(0, history.code(LAST - CallHistory.CALLS));
    assertTrue(history.agrees(LAST, 7, LAST));
    assertFalse(history.agrees(LAST, 7, LAST + 1));
  }
}
