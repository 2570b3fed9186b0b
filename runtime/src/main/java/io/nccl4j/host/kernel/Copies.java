package io.nccl4j.host.kernel;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/** Copies and fills of any size, each with the method that is fastest for its size. */
public final class Copies {
  private static final long SMALL = 64;

  /** Longer copies are made in pieces of this size: beyond, the JVM may write past the caches. */
  private static final long PIECE = 1 << 20;

  /** From here on the data does not stay in a cache anyway, and writing past it is faster. */
  private static final long WHOLE = 16 << 20;

  /** The JVM may use non-temporal stores from here on, which later stores may overtake. */
  private static final long FENCED = 1 << 20;

  private Copies() {}

  /**
   * Copies {@code bytes} bytes. Once it has returned, a release store makes the copy visible. The
   * ranges do not overlap, except that copying a range onto itself does nothing.
   */
  public static void copy(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset, long bytes) {
    if (bytes <= SMALL) {
      copySmall(src, srcOffset, dst, dstOffset, bytes);
      return;
    }
    if (src.address() + srcOffset == dst.address() + dstOffset) {
      return;
    }
    if (bytes >= WHOLE || bytes <= PIECE) {
      MemorySegment.copy(src, srcOffset, dst, dstOffset, bytes);
    } else {
      for (long done = 0; done < bytes; done += PIECE) {
        long piece = Math.min(PIECE, bytes - done);
        MemorySegment.copy(src, srcOffset + done, dst, dstOffset + done, piece);
      }
    }
    if (bytes >= FENCED) {
      VarHandle.fullFence();
    }
  }

  /** Sets {@code bytes} bytes to {@code value}; visible as after {@link #copy}. */
  public static void fill(MemorySegment dst, long off, long bytes, byte value) {
    if (bytes <= SMALL) {
      for (long i = 0; i < bytes; i++) {
        dst.set(JAVA_BYTE, off + i, value);
      }
      return;
    }
    dst.asSlice(off, bytes).fill(value);
    if (bytes >= FENCED) {
      VarHandle.fullFence();
    }
  }

  private static void copySmall(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset, long bytes) {
    long i = 0;
    for (; i + Long.BYTES <= bytes; i += Long.BYTES) {
      dst.set(JAVA_LONG_UNALIGNED, dstOffset + i, src.get(JAVA_LONG_UNALIGNED, srcOffset + i));
    }
    for (; i < bytes; i++) {
      dst.set(JAVA_BYTE, dstOffset + i, src.get(JAVA_BYTE, srcOffset + i));
    }
  }
}
