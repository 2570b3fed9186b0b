package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/**
 * Text in memory that processes share, preceded by its length. Both are accessed without ordering:
 * the writer must release something afterwards, which the reader must acquire first.
 */
final class SharedText {
  private SharedText() {}

  /** Writes as much of a text as {@code size} bytes from {@code at} hold. */
  static void write(MemorySegment memory, long at, int size, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int length = Math.min(bytes.length, most(size));
    memory.set(ValueLayout.JAVA_LONG, at, length);
    MemorySegment.copy(bytes, 0, memory, ValueLayout.JAVA_BYTE, at + Long.BYTES, length);
  }

  /**
   * Reads it, fit for logs and terminals; it ends with an ellipsis if some of it may be missing.
   */
  static String read(MemorySegment memory, long at, int size) {
    long length = memory.get(ValueLayout.JAVA_LONG, at);
    byte[] bytes = new byte[Math.clamp(length, 0, most(size))];
    MemorySegment.copy(memory, ValueLayout.JAVA_BYTE, at + Long.BYTES, bytes, 0, bytes.length);
    return Failures.printable(bytes) + (bytes.length == most(size) ? "…" : "");
  }

  private static int most(int size) {
    return size - Long.BYTES;
  }
}
