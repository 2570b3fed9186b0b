package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.observe.Recorder.ConnectEvent;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Objects;
import java.util.UUID;
import javax.net.ssl.SSLException;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * A TCP connection: its handshake, then frames, each of which is taken apart as it comes. It sends
 * through its {@link Outlet}.
 */
final class Connection extends ChannelInboundHandlerAdapter {
  /** What the other end says next. */
  private enum Stage {
    HELLO(Handshake.HELLO_BYTES),
    CHALLENGE(Handshake.CHALLENGE_BYTES),
    PROOF(Handshake.PROOF_BYTES),
    VERDICT(Handshake.VERDICT_BYTES),
    /** Nothing until it has heard the verdict. */
    SILENCE(Integer.MAX_VALUE),
    FRAMES(FrameBuffer.HEADER_BYTES),
    NOTHING(Integer.MAX_VALUE);

    private final int bytes;

    Stage(int bytes) {
      this.bytes = bytes;
    }
  }

  private static final Logger LOG = LogManager.getLogger(Connection.class);

  /**
   * From silence to the first question whether the other end's machine is there, and between two.
   */
  private static final int KEEPALIVE_SECONDS = 1;

  private static final int KEEPALIVE_COUNT = 2;

  private final NettyPort port;
  private final Channel channel;
  private final Handshake handshake;
  private final @Nullable TlsStream tls;

  /** The channel's, to read frames without Netty's loop; null if only the channel can read. */
  private final @Nullable BareSocket socket;

  private final Destination destination = new Destination();
  private final Outlet outlet;
  private final long since = System.nanoTime();
  private final @Nullable Peer dialed;
  private final ConnectEvent event;
  private @Nullable Peer peer;
  private @Nullable UUID from;
  private @Nullable UUID proved;
  private Stage stage;
  private boolean hasLeft;

  /** Why nothing can be sent or received any more. */
  private @Nullable String broken;

  /**
   * A connection that has said nothing yet.
   *
   * @param tls what everything goes through; null without TLS
   * @param socket the channel's, if there is no TLS
   * @param dialed whom this end has dialed; null if it was dialed
   */
  Connection(
      NettyPort port,
      Channel channel,
      NetworkConfig config,
      @Nullable TlsStream tls,
      @Nullable BareSocket socket,
      @Nullable Peer dialed) {
    this.port = port;
    this.channel = channel;
    this.tls = tls;
    this.socket = socket;
    this.dialed = dialed;
    outlet = new Outlet(port, channel, tls, socket);
    handshake = new Handshake(config);
    stage = dialed == null ? Stage.HELLO : Stage.CHALLENGE;
    SocketAddress other = dialed == null ? channel.remoteAddress() : dialed.address.socket();
    event =
        Recorder.HERE.connect(tls == null ? "TCP" : "TLS", String.valueOf(other), dialed != null);
  }

  /** It carries frames from now on. */
  void opened() {
    event.ended("");
  }

  /** It can't be made. */
  void notOpened(String why) {
    event.ended(why);
  }

  /** It carries nothing, and notices that the other end's machine is out of reach. */
  void watch() {
    handshake.watch();
  }

  /** Whether it does that. */
  boolean watches() {
    return handshake.watches();
  }

  /** Lets the system ask the other end's system whether it is there. */
  void keepAlive(Transport transport) {
    channel.config().setOption(ChannelOption.SO_KEEPALIVE, true);
    transport.keepAlive(channel.config(), KEEPALIVE_SECONDS, KEEPALIVE_COUNT);
  }

  /** What leaves by it. */
  Outlet outlet() {
    return outlet;
  }

  Destination destination() {
    return destination;
  }

  /** When it began, by {@link System#nanoTime}. */
  long since() {
    return since;
  }

  /** The peer that this end has dialed; null if the other end has. */
  @Nullable Peer dialed() {
    return dialed;
  }

  /** The port that the other end has proved to be, and that waits for a verdict. */
  @Nullable UUID provedId() {
    return proved;
  }

  // ---- handshake

  @Override
  public void channelActive(ChannelHandlerContext context) {
    if (dialed != null) {
      if (isWith(dialed)) {
        say(handshake.hello(port.id(), dialed.address.id()));
      } else {
        lose("what listens there has another certificate than its address says");
      }
    }
  }

  /** Whether the other end has the certificate of this peer; without TLS there is none. */
  boolean isWith(Peer other) {
    boolean is = tls == null || Arrays.equals(tls.fingerprint(), other.address.fingerprint());
    if (!is) {
      LOG.warn("{} has another certificate than peer {}", channel.remoteAddress(), other.number);
    }
    return is;
  }

  private void handshake(ByteBuf in) {
    switch (stage) {
      case HELLO -> {
        from = handshake.hear(in, port.id());
        if (from == null) {
          LOG.debug("{} said no hello to this port", channel.remoteAddress());
          drop();
          return;
        }
        stage = Stage.PROOF;
        say(handshake.challenge());
      }
      case CHALLENGE -> {
        if (!handshake.acceptChallenge(in)) {
          lose("what listens there does not know the secret of this job");
          return;
        }
        stage = Stage.VERDICT;
        say(handshake.proof());
      }
      case PROOF -> {
        if (!handshake.acceptProof(in)) {
          LOG.warn("{} does not know the secret of this job", channel.remoteAddress());
          drop();
          return;
        }
        proved = from;
        stage = Stage.SILENCE;
        port.proved(this, Objects.requireNonNull(proved));
      }
      case VERDICT -> hearVerdict(in.readLong());
      default -> throw new IllegalStateException("no handshake any more");
    }
  }

  private void hearVerdict(long verdict) {
    Peer to = Objects.requireNonNull(dialed);
    if (verdict == Handshake.TAKE_MINE) {
      port.refused(this, to);
    } else if (verdict == Handshake.WELCOME) {
      frames(to);
      port.opened(this, to);
    } else {
      lose("it gave no verdict");
    }
  }

  /** This end accepts it, as the connection to {@code from}. */
  void welcome(Peer other) {
    proved = null;
    frames(other);
    say(verdict(Handshake.WELCOME));
  }

  /** From now on frames come. */
  private void frames(Peer sender) {
    peer = sender;
    stage = Stage.FRAMES;
    destination.expects(sender.receives());
  }

  /** This end has dialed as well, and that connection counts. */
  void refuse() {
    proved = null;
    stage = Stage.NOTHING;
    say(verdict(Handshake.TAKE_MINE));
  }

  private static byte[] verdict(long verdict) {
    return ByteBuffer.allocate(Handshake.VERDICT_BYTES).putLong(verdict).array();
  }

  private void say(byte[] bytes) {
    // Not from the pool: its first use takes a chunk of memory and starts the flight recorder.
    ByteBuf own = Unpooled.directBuffer(bytes.length).writeBytes(bytes);
    channel.writeAndFlush(own, channel.voidPromise());
  }

  // ---- receiving

  /**
   * Reads what has arrived, without Netty's loop.
   *
   * @return whether that loop has nothing to do for this connection
   */
  boolean read() {
    // Once a channel is closed, its descriptor may belong to another one.
    if (socket == null || stage != Stage.FRAMES || !channel.isOpen()) {
      return false;
    }
    int read;
    destination.reset(channel.config());
    do {
      ByteBuf to = destination.allocate(channel.alloc());
      read = read(socket, to);
      if (read <= 0) {
        to.release();
      } else {
        destination.lastBytesRead(read);
        destination.incMessagesRead(1);
        take(to.writerIndex(to.writerIndex() + read));
      }
    } while (read > 0 && stage == Stage.FRAMES && destination.continueReading());
    return read >= 0 && stage == Stage.FRAMES && outlet.isChannelEmpty();
  }

  private int read(BareSocket from, ByteBuf to) {
    try {
      return from.read(to.internalNioBuffer(to.writerIndex(), to.writableBytes()));
    } catch (IOException e) {
      // Told to this connection, as the channel tells it.
      channel.pipeline().fireExceptionCaught(e);
      return -1;
    }
  }

  @Override
  public void channelRead(ChannelHandlerContext context, Object read) {
    take((ByteBuf) read);
  }

  private void take(ByteBuf bytes) {
    try {
      Transfer data = destination.data();
      if (data != null) {
        data.move(bytes.readableBytes());
        destination.forget();
        port.moved();
        if (data.left() == 0) {
          destination.data(null);
        }
      } else {
        takeApart(bytes);
      }
    } finally {
      bytes.release();
    }
  }

  private void takeApart(ByteBuf in) {
    while (in.readableBytes() >= stage.bytes && destination.data() == null) {
      if (stage != Stage.FRAMES) {
        handshake(in);
      } else if (!takeFrame(in, Objects.requireNonNull(peer))) {
        return;
      }
    }
  }

  /** Takes the frame at the front; false if there is too little of it, or it breaks the rules. */
  private boolean takeFrame(ByteBuf in, Peer sender) {
    int start = in.readerIndex();
    long tag = in.getLongLE(start);
    int length = in.getIntLE(start + Long.BYTES);
    int flags = in.getIntLE(start + Long.BYTES + Integer.BYTES);
    int begin = start + FrameBuffer.HEADER_BYTES;
    if (flags == FrameBuffer.FAREWELL) {
      hasLeft = true;
      if (watches()) {
        endWatch(sender);
      } else {
        port.left(sender);
      }
      return false;
    }
    if (watches()) {
      lose("it sent something over a connection that carries nothing");
      return false;
    }
    if (flags != FrameBuffer.MESSAGE || length < 0) {
      lose("it sent what is no message");
      return false;
    }
    if (tag >>> Port.KIND_SHIFT >= Port.DATA) {
      return takeData(in, sender, tag, length, begin);
    }
    if (length > Port.SMALL_BYTES) {
      lose("it sent a small message of " + length + " bytes");
      return false;
    }
    if (in.writerIndex() - begin < length) {
      return false;
    }
    in.readerIndex(begin + length);
    port.landed(sender, tag, destination.memory(), begin, length);
    return true;
  }

  private boolean takeData(ByteBuf in, Peer sender, long tag, int length, int begin) {
    Transfer data = sender.receives().take(tag);
    if (data == null || data.bytes() != length) {
      lose(
          "it sent "
              + length
              + " bytes with tag "
              + Long.toHexString(tag)
              + (data == null ? ", which nothing waits for" : ", not " + data.bytes()));
      if (data != null) {
        data.end(Port.FAILED);
      }
      return false;
    }
    int there = Math.min(length, in.writerIndex() - begin);
    in.readerIndex(begin + there);
    data.take(destination.memory(), begin, there);
    port.moved();
    if (data.left() > 0) {
      destination.data(data);
    }
    return true;
  }

  // ---- the end

  @Override
  public void channelInactive(ChannelHandlerContext context) {
    Peer watched = peer;
    if (watched != null && watches() && broken == null) {
      // Its port has closed, or its process died. What else it sent may still come.
      endWatch(watched);
      return;
    }
    lose(
        broken != null
            ? broken
            : "its connection has ended: its process died, or its machine is out of reach");
  }

  @Override
  @SuppressWarnings("deprecation") // Of a handler in general, not of one for what comes.
  public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
    String why =
        (watches() ? "its machine is out of reach: " : "its connection is broken: ")
            + cause.getMessage();
    if (cause instanceof IOException && !(cause instanceof SSLException)) {
      // Perhaps it cannot be written to. What the other end sent before that is read all the same,
      // since it may say why; the channel becomes inactive then.
      broken = broken == null ? why : broken;
    } else {
      lose(why);
    }
  }

  private void endWatch(Peer watched) {
    port.unwatched(watched);
    drop();
  }

  /** The connection is of no use any more, and so is the peer that depends on it. */
  private void lose(String why) {
    Transfer unfinished = destination.data();
    if (unfinished != null) {
      unfinished.end(Port.FAILED);
    }
    Peer lost = peer;
    if (lost == null && dialed != null && dialed.dialing() == this) {
      lost = dialed;
    }
    if (stage != Stage.FRAMES && stage != Stage.NOTHING) {
      notOpened(why);
    }
    if (lost != null && !hasLeft) {
      port.failed(lost, why);
    }
    drop();
  }

  /** Closes it; nobody hears of that. */
  void drop() {
    // Even if nothing is left to close: this end has refused it, and the other end has closed it.
    port.forget(this);
    if (stage != Stage.NOTHING || channel.isOpen()) {
      stage = Stage.NOTHING;
      peer = null;
      Transfer unfinished = destination.data();
      if (unfinished != null) {
        unfinished.end(Port.FAILED);
        destination.data(null);
      }
      ChannelFuture ignored = channel.close();
    }
  }

  @Override
  public void handlerRemoved(ChannelHandlerContext context) {
    destination.close();
    outlet.close();
  }
}
