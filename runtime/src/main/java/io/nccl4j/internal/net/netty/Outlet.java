package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Port;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelOutboundBuffer;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * The sending side of a connection. Small messages are gathered until the next flush, which writes
 * them straight to the socket if it can; data leaves through the channel at once.
 */
final class Outlet implements AutoCloseable {
  private static final Logger LOG = LogManager.getLogger(Outlet.class);

  private final NettyPort port;
  private final Channel channel;
  private final @Nullable TlsStream tls;
  private final @Nullable BareSocket socket;
  private final FrameBuffer frames = new FrameBuffer();
  private boolean isUnflushed;

  /**
   * An outlet that has sent nothing.
   *
   * @param tls what everything goes through; null without TLS
   * @param socket the channel's, to write to it directly; null if everything goes through the
   *     channel
   */
  Outlet(NettyPort port, Channel channel, @Nullable TlsStream tls, @Nullable BareSocket socket) {
    this.port = port;
    this.channel = channel;
    this.tls = tls;
    this.socket = socket;
  }

  /** Sends a small message with the next flush. */
  void post(
      long tag,
      MemorySegment head,
      long headOffset,
      int headBytes,
      MemorySegment body,
      long bodyOffset,
      int bodyBytes) {
    if (!frames.hasRoom((long) headBytes + bodyBytes)) {
      writeFrames();
    }
    frames.add(tag, head, headOffset, headBytes, body, bodyOffset, bodyBytes);
    if (!isUnflushed) {
      isUnflushed = true;
      port.unflushed(this);
    }
  }

  /** Sends data, and all messages before it. */
  void send(long tag, Transfer data) {
    addHeader(tag, (int) data.bytes(), FrameBuffer.MESSAGE);
    writeFrames();
    ByteBuf rest = Unpooled.wrappedBuffer(data.rest(Long.MAX_VALUE).asByteBuffer());
    channel
        .write(rest)
        .addListener(
            written -> {
              data.end(written.isSuccess() ? Port.COMPLETE : Port.FAILED);
              port.moved();
            });
    flush();
  }

  /** Says that nothing follows. */
  void bidFarewell() {
    addHeader(0, 0, FrameBuffer.FAREWELL);
    flush();
  }

  private void addHeader(long tag, int length, int flags) {
    if (!frames.hasRoom(0)) {
      writeFrames();
    }
    frames.add(tag, length, flags);
  }

  /** Hands what was sent over to the system; what it does not accept goes to the channel. */
  void flush() {
    isUnflushed = false;
    if (socket != null && isChannelEmpty()) {
      writeStraight(socket);
    } else {
      writeFrames();
      channel.flush();
    }
  }

  private void writeFrames() {
    ByteBuf together = frames.take();
    if (together != null) {
      channel.write(together, channel.voidPromise());
    }
  }

  private void writeStraight(BareSocket to) {
    ByteBuf together = frames.take();
    if (together == null) {
      return;
    }
    int bytes = together.readableBytes();
    int written = 0;
    try {
      written = to.write(together.internalNioBuffer(together.readerIndex(), bytes));
    } catch (IOException e) {
      LOG.debug("{}: the channel will find out, too: {}", channel, e.getMessage());
    }
    if (written == bytes) {
      together.release();
    } else {
      channel.writeAndFlush(together.skipBytes(Math.max(written, 0)), channel.voidPromise());
    }
  }

  /** Whether the channel is open and has nothing left to write. */
  boolean isChannelEmpty() {
    ChannelOutboundBuffer unsent = channel.unsafe().outboundBuffer();
    return unsent != null && unsent.totalPendingWriteBytes() == 0;
  }

  /**
   * Whether the system has taken all that was sent, or never will because the channel is closed.
   */
  boolean isFlushed() {
    if (isUnflushed || tls != null && !tls.isFlushed()) {
      return false;
    }
    ChannelOutboundBuffer unsent = channel.unsafe().outboundBuffer();
    return unsent == null || unsent.isEmpty();
  }

  @Override
  public void close() {
    frames.close();
  }
}
