package io.nccl4j.internal.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.property.Property;
import org.junit.jupiter.api.Test;

/** Classes of sizes are in order, hold what they are for, and waste little. */
class SizeClassTest {
  @Test
  void anySize() {
    Property.holds(2000, draw -> check(draw.number("bytes", 0, SizeClass.LARGEST)));
  }

  @Test
  void anySmallSize() {
    Property.holds(2000, draw -> check(draw.number("bytes", 0, 1 << 20)));
  }

  private static void check(long bytes) {
    int sizeClass = SizeClass.of(bytes);
    long size = SizeClass.bytes(sizeClass);
    assertTrue(size >= bytes, () -> bytes + " bytes in a block of " + size);
    assertTrue(
        size <= 2048 ? size - bytes <= 256 : size <= bytes + bytes / 8,
        () -> bytes + " bytes in a block of " + size);
    assertEquals(sizeClass, SizeClass.of(size));
    assertEquals(0, size % 256);
    if (bytes >= 32768 || bytes > 0 && bytes % 4096 == 0) {
      assertEquals(0, size % 4096, () -> bytes + " bytes in a block of " + size);
    }
  }

  @Test
  void allClasses() {
    for (int i = 0; i < SizeClass.COUNT; i++) {
      long size = SizeClass.bytes(i);
      assertEquals(i, SizeClass.of(size), () -> "the class of " + size);
      if (i + 1 < SizeClass.COUNT) {
        assertEquals(i + 1, SizeClass.of(size + 1), () -> "the class of " + (size + 1));
      }
    }
    assertEquals(SizeClass.LARGEST, SizeClass.bytes(SizeClass.COUNT - 1));
  }
}
