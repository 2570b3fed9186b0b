package io.nccl4j.internal.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.property.Property;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The allocator against a map of single bytes. */
class RangeAllocatorTest {
  private static final int START = 5;
  private static final int END = 700;

  private record Range(long offset, long size) {}

  /** Whether there is any room for this many bytes at a multiple of the alignment. */
  private static boolean fits(BitSet used, int size, int alignment) {
    for (int at = START + alignment - 1 & -alignment; at + size <= END; at += alignment) {
      int next = used.nextSetBit(at);
      if (next < 0 || next >= at + size) {
        return true;
      }
    }
    return false;
  }

  /**
   * Allocates and frees in any order: three of four numbers allocate, with size and alignment from
   * the number; the others free.
   */
  @Test
  void anyHistory() {
    Property.holds(
        500,
        draw -> {
          int[] actions = draw.list("actions", 150, 0, 1 << 20);
          RangeAllocator allocator = new RangeAllocator(START, END);
          BitSet used = new BitSet(END);
          List<Range> ranges = new ArrayList<>();
          for (int action : actions) {
            int number = action / 4;
            if (action % 4 != 3) {
              int size = 1 + number % (number % 5 == 0 ? 200 : 30);
              int alignment = 1 << number / 7 % 7;
              long offset = allocator.allocate(size, alignment);
              assertEquals(fits(used, size, alignment), offset >= 0, "room for " + size);
              if (offset >= 0) {
                assertTrue(offset >= START && offset + size <= END);
                assertEquals(0, offset % alignment);
                assertTrue(
                    used.get((int) offset, (int) offset + size).isEmpty(), "given out twice");
                used.set((int) offset, (int) offset + size);
                ranges.add(new Range(offset, size));
              }
            } else if (!ranges.isEmpty()) {
              Range range = ranges.remove(number % ranges.size());
              allocator.free(range.offset, range.size);
              used.clear((int) range.offset, (int) (range.offset + range.size));
            }
            assertEquals(END - START - used.cardinality(), allocator.freeBytes());
          }
          for (Range range : ranges) {
            allocator.free(range.offset, range.size);
          }
          assertEquals(END - START, allocator.freeBytes());
          assertEquals(
              START, allocator.allocate(END - START, 1), "all neighbours are joined again");
        });
  }

  @Test
  void theSmallestRoomThatFitsIsTaken() {
    RangeAllocator allocator = new RangeAllocator(0, 1000);
    long a = allocator.allocate(100, 1);
    long keep = allocator.allocate(1, 1);
    long b = allocator.allocate(50, 1);
    assertTrue(allocator.allocate(1, 1) >= 0 && keep >= 0);
    allocator.free(a, 100);
    allocator.free(b, 50);
    assertEquals(b, allocator.allocate(40, 1));
    assertEquals(a, allocator.allocate(90, 1));
  }
}
