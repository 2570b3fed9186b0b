package io.nccl4j.internal.host.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Copies and fills write exactly what they should, on either side of every threshold. */
class CopiesTest {
  private static final int GUARD = 128;
  private static final byte CANARY = (byte) 0xa5;

  @ParameterizedTest
  @ValueSource(
      longs = {
        0,
        1,
        7,
        8,
        9,
        63,
        64,
        65,
        1023,
        1024,
        1025,
        4096,
        65537,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        (3 << 20) + 5,
        (16 << 20) - 1,
        16 << 20,
        (16 << 20) + 3
      })
  void copiesAndFillsExactly(long bytes) {
    SplittableRandom random = new SplittableRandom(bytes);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment source = arena.allocate(bytes + 2 * GUARD + Long.BYTES, 64);
      for (long i = 0; i + Long.BYTES <= source.byteSize(); i += Long.BYTES) {
        source.set(ValueLayout.JAVA_LONG, i, random.nextLong());
      }
      MemorySegment target = arena.allocate(bytes + 2 * GUARD, 64).fill(CANARY);
      for (int misalignment : new int[] {0, 3}) {
        Copies.copy(source, misalignment, target, GUARD, bytes);
        MemorySegment copied = target.asSlice(GUARD, bytes);
        assertEquals(-1, source.asSlice(misalignment, bytes).mismatch(copied), "copied");
        Copies.copy(target, GUARD, target, GUARD, bytes);
        assertEquals(-1, source.asSlice(misalignment, bytes).mismatch(copied), "onto itself");
        checkCanaries(target, bytes);
      }
      Copies.fill(target, GUARD, bytes, (byte) 7);
      for (long i = 0; i < bytes; i++) {
        if (target.get(ValueLayout.JAVA_BYTE, GUARD + i) != 7) {
          assertEquals(7, target.get(ValueLayout.JAVA_BYTE, GUARD + i), "filled at " + i);
        }
      }
      checkCanaries(target, bytes);
    }
  }

  @Test
  void copiesBetweenArraysAtTheSameOffset() {
    MemorySegment source = MemorySegment.ofArray(new byte[2048]).fill((byte) 3);
    MemorySegment target = MemorySegment.ofArray(new byte[2048]);
    Copies.copy(source, 0, target, 0, 2048);
    assertEquals(-1, source.mismatch(target));
  }

  @Test
  void refusesRangesBeyondASegment() {
    MemorySegment source = MemorySegment.ofArray(new byte[100]);
    MemorySegment target = MemorySegment.ofArray(new byte[99]);
    assertThrows(IndexOutOfBoundsException.class, () -> Copies.copy(source, 0, target, 0, 100));
    assertThrows(IndexOutOfBoundsException.class, () -> Copies.fill(target, 0, 100, (byte) 0));
  }

  private static void checkCanaries(MemorySegment target, long bytes) {
    for (int i = 0; i < GUARD; i++) {
      assertEquals(CANARY, target.get(ValueLayout.JAVA_BYTE, i), "before");
      assertEquals(CANARY, target.get(ValueLayout.JAVA_BYTE, GUARD + bytes + i), "after");
    }
  }
}
