package io.nccl4j.internal.net.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/**
 * Puts frames together: tag 8, length 4, flags 4, little-endian, then the bytes of the message. One
 * buffer serves again and again; only while the network has not taken its last frame, others do.
 */
final class FrameBuffer implements AutoCloseable {
  static final int HEADER_BYTES = 16;

  /** Flags: a message. */
  static final int MESSAGE = 0;

  /** Flags: the last frame, since the port closes. */
  static final int FAREWELL = 1;

  private final int capacity;
  private final ByteBuf buffer;
  private final MemorySegment memory;

  /** For messages that are copied, of up to {@code most} bytes. */
  FrameBuffer(int most) {
    capacity = HEADER_BYTES + most;
    ByteBuffer direct = ByteBuffer.allocateDirect(capacity);
    buffer = Unpooled.wrappedBuffer(direct);
    memory = MemorySegment.ofBuffer(direct);
  }

  /** A header alone. */
  ByteBuf frame(long tag, int length, int flags) {
    ByteBuf frame =
        isFree()
            ? buffer.retain().clear()
            : PooledByteBufAllocator.DEFAULT.directBuffer(HEADER_BYTES);
    return frame.writeLongLE(tag).writeIntLE(length).writeIntLE(flags);
  }

  /** A message with its header. */
  ByteBuf frame(long tag, MemorySegment from, long offset, int length) {
    boolean again = isFree();
    ByteBuf frame =
        again ? buffer.retain().clear() : PooledByteBufAllocator.DEFAULT.directBuffer(capacity);
    frame.writeLongLE(tag).writeIntLE(length).writeIntLE(MESSAGE);
    MemorySegment to = again ? memory : MemorySegment.ofBuffer(frame.nioBuffer(0, capacity));
    MemorySegment.copy(from, offset, to, HEADER_BYTES, length);
    return frame.writerIndex(HEADER_BYTES + length);
  }

  private boolean isFree() {
    return buffer.refCnt() == 1;
  }

  @Override
  public void close() {
    buffer.release();
  }
}
