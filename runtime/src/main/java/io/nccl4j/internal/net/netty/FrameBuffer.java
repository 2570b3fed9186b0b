package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Port;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/**
 * Puts frames together: tag 8, length 4, flags 4, little-endian, then the bytes of the message. One
 * buffer serves again and again; only while the network has not taken what was in it, others do.
 */
final class FrameBuffer implements AutoCloseable {
  static final int HEADER_BYTES = 16;

  /** Flags: a message. */
  static final int MESSAGE = 0;

  /** Flags: the last frame, since the port closes. */
  static final int FAREWELL = 1;

  /** The largest small message, so that none needs a buffer of its own. */
  private static final int CAPACITY = HEADER_BYTES + Port.SMALL_BYTES;

  private final ByteBuf buffer;
  private final MemorySegment memory;

  /** Frames that have not been taken. */
  private @Nullable ByteBuf frames;

  private MemorySegment framesMemory = MemorySegment.NULL;

  FrameBuffer() {
    ByteBuffer direct = ByteBuffer.allocateDirect(CAPACITY);
    buffer = Unpooled.wrappedBuffer(direct);
    memory = MemorySegment.ofBuffer(direct);
  }

  /** Whether a message of that length fits behind the frames that are here. */
  boolean hasRoom(long length) {
    return frames == null || frames.writableBytes() >= HEADER_BYTES + length;
  }

  /** Adds a frame that is a header alone: what follows it is sent otherwise. */
  void add(long tag, int length, int flags) {
    room(0).writeLongLE(tag).writeIntLE(length).writeIntLE(flags);
  }

  /** Adds a message in two parts. */
  void add(
      long tag,
      MemorySegment head,
      long headOffset,
      int headBytes,
      MemorySegment body,
      long bodyOffset,
      int bodyBytes) {
    int length = headBytes + bodyBytes;
    ByteBuf to = room(length);
    to.writeLongLE(tag).writeIntLE(length).writeIntLE(MESSAGE);
    int at = to.writerIndex();
    MemorySegment.copy(head, headOffset, framesMemory, at, headBytes);
    MemorySegment.copy(body, bodyOffset, framesMemory, at + headBytes, bodyBytes);
    to.writerIndex(at + length);
  }

  private ByteBuf room(int length) {
    ByteBuf room = frames;
    if (room != null) {
      return room;
    }
    int needed = HEADER_BYTES + length;
    if (needed <= CAPACITY && buffer.refCnt() == 1) {
      room = buffer.retain().clear();
      framesMemory = memory;
    } else {
      int capacity = Math.max(CAPACITY, needed);
      room = PooledByteBufAllocator.DEFAULT.directBuffer(capacity, capacity);
      framesMemory = MemorySegment.ofBuffer(room.nioBuffer(0, capacity));
    }
    frames = room;
    return room;
  }

  /** Takes the frames that are here, in one piece; null if there are none. */
  @Nullable ByteBuf take() {
    ByteBuf taken = frames;
    frames = null;
    return taken;
  }

  @Override
  public void close() {
    ByteBuf unsent = take();
    if (unsent != null) {
      unsent.release();
    }
    buffer.release();
  }
}
