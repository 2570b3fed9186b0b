package io.nccl4j.internal.net.ucx;

import io.nccl4j.internal.net.Port;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Small messages that leave together: for each its tag (8 bytes), its length (8 bytes) and itself,
 * filled up to a multiple of 8 bytes. Before them is room for a header. Reused.
 */
final class UcxFrame {
  static final int MESSAGE_HEADER_BYTES = 16;
  private static final int ALIGNMENT = 8;
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

  private final MemorySegment memory;
  private final long address;
  private long end;

  /** UCX's request, while it is being sent. */
  long request;

  UcxFrame(MemorySegment memory) {
    this.memory = memory;
    address = memory.address();
    end = UcxHeader.BYTES;
  }

  /** How large a frame's memory is: it holds the largest message. */
  static long size() {
    return UcxHeader.BYTES + MESSAGE_HEADER_BYTES + padded(Port.SMALL_BYTES);
  }

  static long padded(long bytes) {
    return bytes + ALIGNMENT - 1 & -ALIGNMENT;
  }

  boolean fits(long bytes) {
    return end + MESSAGE_HEADER_BYTES + padded(bytes) <= memory.byteSize();
  }

  void add(
      long tag,
      MemorySegment head,
      long headOffset,
      long headBytes,
      MemorySegment body,
      long bodyOffset,
      long bodyBytes) {
    memory.set(LONG, end, tag);
    memory.set(LONG, end + Long.BYTES, headBytes + bodyBytes);
    long at = end + MESSAGE_HEADER_BYTES;
    MemorySegment.copy(head, headOffset, memory, at, headBytes);
    MemorySegment.copy(body, bodyOffset, memory, at + headBytes, bodyBytes);
    end = at + padded(headBytes + bodyBytes);
  }

  long header() {
    return address;
  }

  long content() {
    return address + UcxHeader.BYTES;
  }

  long bytes() {
    return end - UcxHeader.BYTES;
  }

  void clear() {
    end = UcxHeader.BYTES;
  }
}
