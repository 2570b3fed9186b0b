package io.nccl4j.internal.net.netty;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.net.MessageCheck;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.PeerTable;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.RequestTable;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/** A port on Netty: a listening socket, and a connection for each peer that it talks to. */
final class NettyPort implements Port {
  private static final int BACKLOG = 1024;

  /**
   * With at most this many connections, a poll of all peers reads every connection. With more, it
   * asks the system first which have data: each read that finds none takes as long as asking.
   */
  private static final int FEW_CONNECTIONS = 2;

  /** Of this many polls that await one peer, the last one looks at all peers. */
  private static final int POLLS_OF_ONE = 4;

  /** How often Netty's loop runs, for all else, while connections are read without it. */
  private static final long LOOP_NANOS = 200_000;

  private static final Landing NOBODY =
      (peer, tag, memory, offset, bytes) -> {
        throw new IllegalStateException("a message has come outside of a poll");
      };

  private final UUID id = UUID.randomUUID();
  private final NetworkConfig config;

  /** Null without TLS. */
  private final @Nullable TlsIdentity identity;

  private final Transport transport;
  private final OwnedLoop loop;
  private final Channel listener;
  private final byte[] address;
  private final PeerTable<Peer> peers = new PeerTable<>();
  private final RequestTable<Transfer> transfers = new RequestTable<>(Transfer::new);

  private final Beginnings beginnings;

  /** Connections that carry messages. */
  private final List<Connection> open = new ArrayList<>();

  /** Outlets with messages that wait for the next flush. */
  private final List<Outlet> unflushed = new ArrayList<>();

  private Landing landing = NOBODY;
  private int moved;
  private long looped;

  /** Counts down to the poll that looks at all peers. */
  private int pollsOfOne;

  private int failures;
  private boolean isClosed;

  NettyPort(NetworkConfig config, @Nullable TlsIdentity identity, Transport transport) {
    this.config = config;
    this.identity = identity;
    this.transport = transport;
    beginnings = new Beginnings(this, config.connectTimeout());
    loop = new OwnedLoop(transport.handlers());
    Channel bound = null;
    try {
      bound = listen(config.ports());
      InetSocketAddress at = (InetSocketAddress) bound.localAddress();
      address = new PortAddress(id, at, fingerprint()).toBytes();
      listener = bound;
    } finally {
      if (bound == null) {
        loop.end();
      }
    }
  }

  private byte[] fingerprint() {
    return identity == null ? new byte[0] : identity.fingerprint();
  }

  private Channel listen(PortRange range) {
    Throwable last = null;
    for (int port = range.first(); port <= range.last(); port++) {
      ServerSocketChannel server = transport.newListener();
      server.config().setBacklog(BACKLOG);
      server
          .pipeline()
          .addLast(
              new ChannelInboundHandlerAdapter() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object accepted) {
                  adopt((SocketChannel) accepted, null);
                }
              });
      ChannelFuture registered = loop.adopt(server);
      ChannelFuture bound = server.bind(new InetSocketAddress(config.local(), port));
      while (!registered.isDone() || !bound.isDone()) {
        loop.run();
      }
      if (bound.isSuccess()) {
        return server;
      }
      last = bound.cause();
      server.close();
      loop.run();
    }
    SystemErrorException failure =
        new SystemErrorException(
            "no network port can listen at "
                + config.local().getHostAddress()
                + ", TCP ports "
                + range
                + ": "
                + (last == null ? "" : last.getMessage()),
            "choose an address of this machine and ports that are free");
    failure.initCause(last);
    throw failure;
  }

  // ---- connections

  /** Makes a channel one of this port's connections; {@code to} is null if it was dialed. */
  private Connection adopt(SocketChannel channel, @Nullable Peer to) {
    TlsStream tls = identity == null ? null : new TlsStream(identity.engine(to != null));
    BareSocket socket = identity == null ? transport.bare(channel) : null;
    Connection connection = new Connection(this, channel, config, tls, socket, to);
    channel.config().setOption(ChannelOption.TCP_NODELAY, true);
    // What has come is read before the connection is given up.
    channel.config().setOption(ChannelOption.AUTO_CLOSE, false);
    channel.config().setAllocator(PooledByteBufAllocator.DEFAULT);
    if (tls == null) {
      channel.config().setRecvByteBufAllocator(connection.destination());
    } else {
      tls.join(channel.pipeline(), connection.destination());
    }
    channel.pipeline().addLast(connection);
    beginnings.add(connection);
    ChannelFuture ignored = loop.adopt(channel);
    return connection;
  }

  private SocketChannel channel() {
    SocketChannel channel = transport.newSocket();
    long timeout = config.connectTimeout().toMillis();
    channel.config().setConnectTimeoutMillis((int) Math.min(timeout, Integer.MAX_VALUE));
    return channel;
  }

  private void dial(Peer peer) {
    SocketChannel channel = channel();
    Connection connection = adopt(channel, peer);
    peer.dialing(connection);
    channel
        .connect(peer.address.socket())
        .addListener(
            done -> {
              if (!done.isSuccess() && peer.dialing() == connection) {
                String why = "it can't be connected to: " + done.cause().getMessage();
                connection.notOpened(why);
                failed(peer, why);
              }
            });
  }

  UUID id() {
    return id;
  }

  /** The connection's other end has proved that it is {@code from}; whether it is welcome now. */
  void proved(Connection connection, UUID from) {
    for (Peer peer : peers.all()) {
      if (peer.address.id().equals(from)) {
        settle(connection, peer);
        return;
      }
    }
    // It gets its number in a moment.
  }

  /** Both ends may have dialed: the connection of the port with the lower id counts. */
  private void settle(Connection connection, Peer peer) {
    if (peer.error() != null || !connection.isWith(peer)) {
      connection.drop();
    } else if (connection.watches()) {
      connection.welcome(peer);
      opened(connection, peer);
    } else if (peer.open() != null
        || peer.dialing() != null && id.compareTo(peer.address.id()) < 0) {
      connection.refuse();
    } else {
      Connection mine = peer.dialing();
      peer.dialing(null);
      if (mine != null) {
        mine.drop();
      }
      connection.welcome(peer);
      opened(connection, peer);
    }
  }

  void opened(Connection connection, Peer peer) {
    beginnings.remove(connection);
    connection.opened();
    if (connection.watches()) {
      connection.keepAlive(transport);
      peer.watch(connection);
    } else {
      open.add(connection);
      peer.opened(connection);
    }
  }

  /** A connection that carries nothing has ended; what carries messages shows why. */
  void unwatched(Peer peer) {
    peer.watch(null);
  }

  /** A connection has ended. */
  void forget(Connection connection) {
    beginnings.remove(connection);
    open.remove(connection);
    unflushed.remove(connection.outlet());
  }

  /** An outlet has messages that wait for the next flush. */
  void unflushed(Outlet outlet) {
    unflushed.add(outlet);
  }

  /** The other end wants its own connection to be used. */
  void refused(Connection connection, Peer peer) {
    if (peer.dialing() == connection) {
      peer.promises();
      beginnings.add(peer);
    }
    connection.drop();
  }

  void failed(Peer peer, String why) {
    if (peer.error() == null) {
      failures++;
      moved++;
      peer.fail(why);
    }
  }

  /** The peer closes its port. */
  void left(Peer peer) {
    moved++;
    peer.fail("it has closed its port");
  }

  // ---- what comes

  void landed(Peer peer, long tag, MemorySegment memory, long offset, long bytes) {
    moved++;
    landing.landed(peer.number, tag, memory, offset, bytes);
  }

  void moved() {
    moved++;
  }

  // ---- Port

  @Override
  public byte[] address() {
    return address.clone();
  }

  @Override
  public void addPeer(int peer, byte[] peerAddress) {
    own();
    peers.requireFree(peer);
    Peer added = new Peer(peer, PortAddress.of(peerAddress));
    if (added.address.fingerprint().length != fingerprint().length) {
      throw new InvalidArgumentException(
          "the address of peer "
              + peer
              + " is one "
              + (identity == null ? "with" : "without")
              + " TLS, this port is not",
          "give all processes the same NCCL4J_NETWORK_SECURITY");
    }
    peers.add(peer, added);
    for (Connection connection : beginnings.connections()) {
      if (added.address.id().equals(connection.provedId())) {
        settle(connection, added);
      }
    }
  }

  @Override
  public void watch(int number) {
    own();
    Peer peer = peers.get(number);
    if (peer.error() == null) {
      SocketChannel channel = channel();
      adopt(channel, peer).watch();
      // Where it cannot be made there is none: what carries messages will show why.
      ChannelFuture ignored = channel.connect(peer.address.socket());
    }
  }

  @Override
  public long send(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    own();
    MessageCheck.sent(tag, bytes);
    Peer to = connected(peer);
    if (to == null) {
      return transfers.failed();
    }
    Transfer data = transfers.take();
    long request = data.begin(tag, memory, offset, bytes);
    to.send(tag, data);
    return request;
  }

  @Override
  public void post(
      int peer,
      long tag,
      MemorySegment head,
      long headOffset,
      long headBytes,
      MemorySegment body,
      long bodyOffset,
      long bodyBytes) {
    own();
    MessageCheck.posted(tag, headBytes + bodyBytes);
    Peer to = connected(peer);
    if (to != null) {
      to.post(tag, head, headOffset, (int) headBytes, body, bodyOffset, (int) bodyBytes);
    }
  }

  /** A peer to which there is a connection, or soon will be; null if it has failed. */
  private @Nullable Peer connected(int number) {
    Peer peer = peers.get(number);
    if (peer.error() != null) {
      return null;
    }
    if (!peer.isConnected()) {
      dial(peer);
    }
    return peer;
  }

  @Override
  public void flush() {
    own();
    flushAll();
  }

  private void flushAll() {
    while (!unflushed.isEmpty()) {
      unflushed.removeLast().flush();
    }
  }

  @Override
  public long receive(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    own();
    MessageCheck.received(tag, bytes);
    Peer from = peers.get(peer);
    if (from.error() != null) {
      return transfers.failed();
    }
    Transfer data = transfers.take();
    long request = data.begin(tag, memory, offset, bytes);
    from.receives().add(data);
    return request;
  }

  @Override
  public int state(long request) {
    return transfers.state(request);
  }

  @Override
  public int poll(Landing to, int awaited) {
    own();
    moved = 0;
    landing = to;
    try {
      flushAll();
      boolean isRead = read(awaited);
      long now = System.nanoTime();
      if (!isRead || now - looped > LOOP_NANOS) {
        looped = now;
        loop.run();
        beginnings.dropLate();
      }
    } finally {
      landing = NOBODY;
    }
    return moved;
  }

  /** Reads connections without Netty's loop; returns whether that loop has nothing to do. */
  private boolean read(int awaited) {
    Connection only = awaited == ANY ? null : peers.get(awaited).open();
    boolean done = isSettled() && !loop.hasTasks();
    if (only != null && done && --pollsOfOne > 0) {
      return only.read();
    }
    pollsOfOne = POLLS_OF_ONE;
    if (open.isEmpty() || open.size() > FEW_CONNECTIONS) {
      return false;
    }
    for (int i = open.size() - 1; i >= 0; i--) {
      // One that ends is taken out.
      done &= i < open.size() && open.get(i).read();
    }
    return done;
  }

  /** Whether no connection is being made. */
  boolean isSettled() {
    return beginnings.isEmpty();
  }

  @Override
  public boolean isConnected(int peer) {
    Peer of = peers.get(peer);
    return of.error() == null && of.isConnected();
  }

  @Override
  public int failures() {
    return failures;
  }

  @Override
  public @Nullable String error(int peer) {
    return peers.get(peer).error();
  }

  @Override
  public boolean isFlushed() {
    for (Peer peer : peers.all()) {
      if (peer.error() == null) {
        Connection connection = peer.open();
        if (peer.hasWaiting() || connection != null && !connection.outlet().isFlushed()) {
          return false;
        }
      }
    }
    return true;
  }

  @Override
  public void close() {
    end(true);
  }

  @Override
  public void abort() {
    end(false);
  }

  private void end(boolean farewell) {
    if (isClosed) {
      return;
    }
    own();
    isClosed = true;
    for (Peer peer : peers.all()) {
      if (peer.error() == null) {
        for (Connection connection : new Connection[] {peer.open(), peer.watch()}) {
          if (connection != null && farewell) {
            connection.outlet().bidFarewell();
          }
        }
        peer.fail("this port is closed");
      }
    }
    for (Connection connection : beginnings.connections()) {
      connection.drop();
    }
    ChannelFuture ignored = listener.close();
    loop.run();
    loop.end();
  }

  /** The calling thread owns the port. */
  private void own() {
    if (isClosed) {
      throw new InvalidUsageException("the port is closed", "use it before it is closed");
    }
    loop.own();
  }

  @Override
  public String toString() {
    return "port " + id;
  }
}
