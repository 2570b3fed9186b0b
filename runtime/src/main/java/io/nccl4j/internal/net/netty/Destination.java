package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Expected;
import io.nccl4j.internal.net.Port;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelConfig;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.util.UncheckedBooleanSupplier;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/**
 * Where the next bytes of a connection are read to: straight to the memory that waits for data, or
 * to a buffer for headers and small messages.
 */
final class Destination implements RecvByteBufAllocator, RecvByteBufAllocator.ExtendedHandle {
  /** Holds the largest small message and some more. */
  private static final int BUFFER_BYTES = 2 * Port.SMALL_BYTES;

  /**
   * As much is read to the buffer at first while data is expected. What follows its header there
   * has to be copied: the less, the better.
   */
  private static final int HEADERS_BYTES = 1 << 10;

  /** As much as is read straight to memory at once, which keeps it in a processor's cache. */
  private static final int PART_BYTES = 256 << 10;

  /** Reads in a row while there is more; then other connections have their turn. */
  private static final int MOST_READS = 16;

  private final ByteBuf buffer;
  private final MemorySegment memory;

  /** The buffer's first bytes, for headers alone. */
  private final ByteBuf headers;

  /** What is expected of the other end; null while nothing is. */
  private @Nullable Expected<Transfer> expected;

  private @Nullable Transfer data;

  /** The next part of its memory. */
  private @Nullable ByteBuf straight;

  private int attempted;
  private int last;
  private int reads;

  Destination() {
    ByteBuffer direct = ByteBuffer.allocateDirect(BUFFER_BYTES);
    buffer = Unpooled.wrappedBuffer(direct).clear();
    memory = MemorySegment.ofBuffer(direct);
    headers = Unpooled.wrappedBuffer(direct.slice(0, HEADERS_BYTES)).clear();
  }

  /** The other end may send data from now on: what waits for it is in {@code receives}. */
  void expects(Expected<Transfer> receives) {
    expected = receives;
  }

  /** The buffer's memory, by the same indices. */
  MemorySegment memory() {
    return memory;
  }

  /** The data that is being read; null between messages. */
  @Nullable Transfer data() {
    return data;
  }

  /** What is read next belongs to {@code transfer}, or to no data. */
  void data(@Nullable Transfer transfer) {
    forget();
    data = transfer;
  }

  /** Something was read to where data goes. */
  void forget() {
    if (straight != null) {
      straight.release();
      straight = null;
    }
  }

  void close() {
    data(null);
    buffer.release();
    headers.release();
  }

  @Override
  public ExtendedHandle newHandle() {
    return this;
  }

  @Override
  public ByteBuf allocate(ByteBufAllocator allocator) {
    if (data != null) {
      ByteBuf part = straight;
      if (part == null) {
        part = Unpooled.wrappedBuffer(data.rest(PART_BYTES).asByteBuffer());
        straight = part;
      }
      attempted = part.capacity();
      return part.retain().clear();
    }
    ByteBuf next = nextBuffer();
    attempted = next.writableBytes();
    return next.retain();
  }

  /** The buffer behind what was read and not looked at yet. */
  private ByteBuf nextBuffer() {
    if (headers.isReadable()) {
      buffer.setIndex(headers.readerIndex(), headers.writerIndex());
    }
    headers.clear();
    buffer.discardReadBytes();
    return buffer.isReadable() || expected == null || expected.isEmpty() ? buffer : headers;
  }

  @Override
  public int guess() {
    return BUFFER_BYTES;
  }

  @Override
  public void reset(ChannelConfig config) {
    reads = 0;
    last = 0;
  }

  @Override
  public void incMessagesRead(int count) {
    reads += count;
  }

  @Override
  public void lastBytesRead(int bytes) {
    last = bytes;
  }

  @Override
  public int lastBytesRead() {
    return last;
  }

  @Override
  public void attemptedBytesRead(int bytes) {
    // It knows better.
  }

  @Override
  public int attemptedBytesRead() {
    return attempted;
  }

  @Override
  public boolean continueReading() {
    return last == attempted && reads < MOST_READS;
  }

  @Override
  public boolean continueReading(UncheckedBooleanSupplier maybeMoreData) {
    return continueReading();
  }

  @Override
  public void readComplete() {}
}
