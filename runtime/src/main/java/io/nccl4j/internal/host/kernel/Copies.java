package io.nccl4j.internal.host.kernel;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/** Copies and fills of any size, each in the way that is fastest for its size. */
public final class Copies {
  /**
   * Copies are made in pieces of this size. From 2.5 MiB on the JVM writes past the caches, which
   * makes a copy of what fits a cache 1.3 to 1.7 times slower, and the reader's first access too.
   */
  private static final long PIECE = 1 << 20;

  /** Copies from this size on are made whole: past the caches is faster for what fits none. */
  private static final long WHOLE = 16 << 20;

  /**
   * The most that a step of an operation copies into one buffer before it looks whether somebody
   * has failed. Large enough to be copied past the caches.
   */
  public static final long STEP = 4 << 20;

  /** From this size on the JVM may use non-temporal stores, which later stores may overtake. */
  private static final long FENCED = 1 << 20;

  /** Shorter copies cost no more than finding out that there is nothing to do. */
  private static final long SMALL = 1 << 10;

  /** Up to here single loads and stores cost less than the call of a copying stub. */
  private static final long TINY = 32;

  private static final ValueLayout.OfLong WORD = ValueLayout.JAVA_LONG_UNALIGNED;

  private Copies() {}

  /**
   * Copies {@code bytes} bytes. Once it has returned, a release store makes the copy visible to who
   * acquires it. The ranges do not overlap, except that they may be the same: then nothing changes.
   */
  public static void copy(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset, long bytes) {
    if (bytes <= TINY && (bytes & Long.BYTES - 1) == 0) {
      for (long i = 0; i < bytes; i += Long.BYTES) {
        dst.set(WORD, dstOffset + i, src.get(WORD, srcOffset + i));
      }
    } else if (bytes <= SMALL) {
      MemorySegment.copy(src, srcOffset, dst, dstOffset, bytes);
    } else if (!isSame(src, srcOffset, dst, dstOffset)) {
      copyLong(src, srcOffset, dst, dstOffset, bytes);
    }
  }

  /**
   * Copies up to {@link #STEP} bytes, past the caches if that is wanted and the JVM does so with as
   * many; as {@link #copy} otherwise.
   */
  public static void copyPart(
      MemorySegment src,
      long srcOffset,
      MemorySegment dst,
      long dstOffset,
      long bytes,
      boolean past) {
    if (!past) {
      copy(src, srcOffset, dst, dstOffset, bytes);
    } else if (!isSame(src, srcOffset, dst, dstOffset)) {
      MemorySegment.copy(src, srcOffset, dst, dstOffset, bytes);
      VarHandle.fullFence();
    }
  }

  /** Sets {@code bytes} bytes to {@code value}; visible as after {@link #copy}. */
  public static void fill(MemorySegment dst, long off, long bytes, byte value) {
    dst.asSlice(off, bytes).fill(value);
    if (bytes >= FENCED) {
      VarHandle.fullFence();
    }
  }

  private static boolean isSame(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset) {
    return src.isNative()
        && dst.isNative()
        && src.address() + srcOffset == dst.address() + dstOffset;
  }

  private static void copyLong(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset, long bytes) {
    long piece = bytes < WHOLE ? PIECE : bytes;
    for (long done = 0; done < bytes; done += piece) {
      long length = Math.min(piece, bytes - done);
      MemorySegment.copy(src, srcOffset + done, dst, dstOffset + done, length);
    }
    if (bytes >= FENCED) {
      VarHandle.fullFence();
    }
  }
}
