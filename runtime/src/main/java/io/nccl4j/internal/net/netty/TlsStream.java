package io.nccl4j.internal.net.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.ssl.NotSslRecordException;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.security.GeneralSecurityException;
import java.util.ArrayDeque;
import java.util.Objects;
import java.util.Queue;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLPeerUnverifiedException;
import org.jspecify.annotations.Nullable;

/**
 * Lets a connection go through TLS and notice nothing of it: the connection begins when TLS has
 * been agreed on, what comes is put where {@link Destination} wants it, and what goes is encrypted
 * piece by piece as the network takes it, so that no large message is in memory twice.
 */
final class TlsStream extends ChannelDuplexHandler {
  /** What is encrypted before the network is asked whether it takes more. */
  private static final int PART_BYTES = 64 << 10;

  /** What is still to be encrypted. */
  private record Write(ByteBuf bytes, ChannelPromise promise) {}

  private final SSLEngine engine;
  private final Queue<Write> writes = new ArrayDeque<>();
  private @Nullable Destination destination;
  private byte[] fingerprint = {};

  /** Why TLS was not agreed on. */
  private @Nullable IOException refusal;

  TlsStream(SSLEngine engine) {
    this.engine = engine;
  }

  /** Fails where Netty's TLS is missing. */
  static void requireHandler() {
    Objects.requireNonNull(SslHandler.class);
  }

  /** Becomes part of a channel, whose connection is added next. */
  void join(ChannelPipeline pipeline, Destination ofConnection) {
    destination = ofConnection;
    SslHandler tls = new SslHandler(engine);
    // The port looks after what takes too long; its loop has no clock.
    tls.setHandshakeTimeoutMillis(0);
    tls.setCloseNotifyFlushTimeoutMillis(0);
    pipeline.addLast(tls, this);
  }

  /** Of the other end's certificate; empty before TLS has been agreed on. */
  byte[] fingerprint() {
    return fingerprint;
  }

  /** Whether all has been encrypted and handed on. */
  boolean isFlushed() {
    return writes.isEmpty();
  }

  // ---- the beginning

  @Override
  public void channelActive(ChannelHandlerContext context) {
    // That is said when TLS has been agreed on.
  }

  @Override
  public void userEventTriggered(ChannelHandlerContext context, Object event)
      throws GeneralSecurityException, SSLPeerUnverifiedException {
    if (event instanceof SslHandshakeCompletionEvent end) {
      if (end.isSuccess()) {
        fingerprint = TlsIdentity.fingerprint(engine.getSession().getPeerCertificates()[0]);
        context.fireChannelActive();
      } else {
        // Told to the other end first, and then to the connection.
        refusal = new IOException(inWords(end.cause()), end.cause());
      }
    }
  }

  private static String inWords(Throwable failure) {
    if (failure instanceof NotSslRecordException) {
      return "what listens there does not speak TLS";
    }
    return failure instanceof ClosedChannelException
        ? "it ended before TLS was agreed on"
        : "TLS 1.3 was not agreed on, " + failure.getMessage();
  }

  // ---- what comes

  @Override
  public void channelRead(ChannelHandlerContext context, Object read) {
    ByteBuf plain = (ByteBuf) read;
    Destination to = Objects.requireNonNull(destination);
    try {
      while (plain.isReadable() && context.channel().isOpen()) {
        ByteBuf next = to.allocate(context.alloc());
        int bytes = Math.min(plain.readableBytes(), next.writableBytes());
        if (bytes == 0) {
          // It goes on speaking while it is to listen.
          next.release();
          context.close();
          return;
        }
        plain.readBytes(next, bytes);
        context.fireChannelRead(next);
      }
    } finally {
      plain.release();
    }
  }

  // ---- what goes

  @Override
  public void write(ChannelHandlerContext context, Object bytes, ChannelPromise promise) {
    writes.add(new Write((ByteBuf) bytes, promise));
  }

  @Override
  public void flush(ChannelHandlerContext context) {
    int unflushed = 0;
    for (Write next = writes.peek();
        next != null && context.channel().isWritable();
        next = writes.peek()) {
      int most = PART_BYTES - unflushed;
      if (next.bytes.readableBytes() <= most) {
        writes.remove();
        unflushed += next.bytes.readableBytes();
        context.write(next.bytes, next.promise);
      } else {
        unflushed = PART_BYTES;
        context.write(next.bytes.readRetainedSlice(most), context.voidPromise());
      }
      if (unflushed == PART_BYTES) {
        unflushed = 0;
        context.flush();
      }
    }
    context.flush();
  }

  @Override
  public void channelWritabilityChanged(ChannelHandlerContext context) {
    if (!writes.isEmpty()) {
      flush(context);
    }
  }

  // ---- the end

  @Override
  @SuppressWarnings("deprecation") // Of a handler in general, not of one for what comes.
  public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
    Throwable origin = cause instanceof DecoderException ? cause.getCause() : cause;
    context.fireExceptionCaught(refusal == null ? origin : refusal);
  }

  @Override
  public void channelInactive(ChannelHandlerContext context) {
    if (refusal != null) {
      context.fireExceptionCaught(refusal);
    }
    context.fireChannelInactive();
  }

  /**
   * Without a word in TLS: the last frame says farewell, and an end without it is a failure. So
   * nobody has to wait until a peer takes the word.
   */
  @Override
  public void close(ChannelHandlerContext context, ChannelPromise promise) {
    context.pipeline().firstContext().close(promise);
  }

  @Override
  public void handlerRemoved(ChannelHandlerContext context) {
    for (Write unsent = writes.poll(); unsent != null; unsent = writes.poll()) {
      unsent.bytes.release();
      unsent.promise.tryFailure(new ClosedChannelException());
    }
  }
}
