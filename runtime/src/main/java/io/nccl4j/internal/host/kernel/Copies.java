package io.nccl4j.internal.host.kernel;

import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.MemoryAccess;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

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

  /** All memory, in which an address is its offset: a constant, so that little is checked. */
  private static final @Nullable MemorySegment MEMORY =
      Libc.isAvailable() ? MemoryAccess.everything() : null;

  private static final MemorySegment.Scope FOREVER = MemorySegment.NULL.scope();

  private Copies() {}

  /**
   * Copies {@code bytes} bytes. Once it has returned, a release store makes the copy visible to who
   * acquires it. The ranges do not overlap, except that they may be the same: then nothing changes.
   */
  public static void copy(
      MemorySegment src, long srcOffset, MemorySegment dst, long dstOffset, long bytes) {
    MemorySegment memory = MEMORY;
    if (memory != null
        && bytes <= TINY
        && bytes >= Long.BYTES
        && staysOpen(src)
        && staysOpen(dst)) {
      Objects.checkFromIndexSize(srcOffset, bytes, src.byteSize());
      Objects.checkFromIndexSize(dstOffset, bytes, dst.byteSize());
      copyTiny(memory, src.address() + srcOffset, dst.address() + dstOffset, bytes);
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

  /** Whether it is native memory that nobody can close: then only its bounds need checks. */
  public static boolean staysOpen(MemorySegment segment) {
    return segment.scope() == FOREVER;
  }

  /** Copies 8 to 32 bytes between addresses, in words of which the last ones may overlap. */
  private static void copyTiny(MemorySegment memory, long from, long to, long bytes) {
    long last = bytes - Long.BYTES;
    long head = memory.get(WORD, from);
    long tail = memory.get(WORD, from + last);
    if (last > Long.BYTES) {
      long second = memory.get(WORD, from + Long.BYTES);
      long third = memory.get(WORD, from + last - Long.BYTES);
      memory.set(WORD, to + Long.BYTES, second);
      memory.set(WORD, to + last - Long.BYTES, third);
    }
    memory.set(WORD, to, head);
    memory.set(WORD, to + last, tail);
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
