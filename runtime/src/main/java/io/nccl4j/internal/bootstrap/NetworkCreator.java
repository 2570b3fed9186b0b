package io.nccl4j.internal.bootstrap;

import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.spi.HelperThread;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Serves rendezvous to processes of any machine, at one TCP port: one daemon thread that accepts,
 * and a virtual thread for each connection.
 *
 * <p>Nothing that comes is looked at, besides a greeting of fixed size, before its sender has
 * proved to know the secret. Connections that have not are limited in number and time. The port is
 * closed when nothing is served at it any more.
 *
 * <p>No lock is held while a thread waits for the other side: it would hold up the carrier of a
 * virtual thread, and with that other ranks.
 */
public final class NetworkCreator {
  private static final Logger LOG = LogManager.getLogger(NetworkCreator.class);
  private static final int BACKLOG = 1024;

  /** Most connections that may be in the handshake; others wait in the listener's queue. */
  private static final int MAX_HANDSHAKES = 64;

  /** After that long a handshake may be dropped to make room for another one. */
  private static final long SLOW_HANDSHAKE_MILLIS = 1_000;

  /** After that long a handshake is dropped. */
  private static final long HANDSHAKE_MILLIS = 10_000;

  /** Perhaps there is no descriptor to spare. */
  private static final long PAUSE_MILLIS = 5;

  /**
   * How long ranks that come late are told what came of a rendezvous, at most: they are not
   * expected for longer than the first one.
   */
  private static final long LINGER_MILLIS = 5_000;

  /** How long the last answers may take to be sent. */
  private static final long TELLING_MILLIS = 500;

  private static final int HELLO_BYTES = Integer.BYTES + 2 * Long.BYTES + Session.NONCE_BYTES;

  /** Most bytes of a packet of somebody who knows the secret. */
  private static final int MAX_BYTES =
      Math.max(Seat.MAX_BYTES + BytesTable.MAX_BYTES, Failure.MAX_BYTES);

  private static final Map<InetSocketAddress, NetworkCreator> CREATORS = new HashMap<>();

  private final ServerSocket listener;
  private final Map<UUID, Served> served = new HashMap<>();

  /** Connections that have not proved to know a secret, and from when on they are slow. */
  private final LinkedHashMap<Socket, Deadline> handshakes = new LinkedHashMap<>();

  private NetworkCreator(ServerSocket listener) {
    this.listener = listener;
  }

  /** One rendezvous, or bytes that are handed out. */
  private static final class Served {
    final NetworkId id;
    final Gathering gathering = new Gathering();
    final BytesTable brought = new BytesTable();
    final BytesTable shared = new BytesTable();
    final byte @Nullable [] value;
    private final Set<PacketStream> connections = new HashSet<>();
    private boolean ended;

    /** Ranks that have not been told what came of it. */
    private int untold;

    Served(NetworkId id, byte @Nullable [] value) {
      this.id = id;
      this.value = value;
    }

    /** False if it is too late. */
    synchronized boolean enter(PacketStream connection) {
      return !ended && connections.add(connection);
    }

    synchronized void leave(PacketStream connection) {
      connections.remove(connection);
    }

    synchronized void toBeTold() {
      untold++;
    }

    synchronized void told() {
      untold--;
      notifyAll();
    }

    synchronized void awaitTold(Deadline deadline) throws InterruptedException {
      while (untold > 0 && !deadline.passed()) {
        wait(Math.max(1, deadline.remainingMillis()));
      }
    }

    synchronized void end() {
      ended = true;
      connections.forEach(NetworkCreator::closeQuietly);
    }
  }

  /**
   * Creates an id and serves its rendezvous, at a free port of this address.
   *
   * @param unused how long the first rank may take to come
   * @throws SystemErrorException if it cannot listen there
   */
  static NetworkId create(InetSocketAddress at, Deadline unused) {
    synchronized (CREATORS) {
      NetworkCreator creator = open(at);
      InetSocketAddress bound = new InetSocketAddress(at.getAddress(), creator.port());
      NetworkId id = NetworkId.create(bound);
      creator.serve(new Served(id, null), unused);
      return id;
    }
  }

  /**
   * Serves the rendezvous of an id.
   *
   * @param value what is handed out to all who ask for it; null where ranks meet
   * @param unused how long that lasts, or the first rank may take to come
   * @throws SystemErrorException if it cannot listen there
   */
  public static void serve(NetworkId id, byte @Nullable [] value, Deadline unused) {
    synchronized (CREATORS) {
      NetworkCreator creator = CREATORS.get(id.address());
      if (creator == null) {
        creator = open(id.address());
      }
      creator.serve(new Served(id, value), unused);
    }
  }

  /** Under the lock of all creators. */
  private static NetworkCreator open(InetSocketAddress at) {
    ServerSocket listener = null;
    boolean started = false;
    try {
      listener = new ServerSocket();
      listener.setReuseAddress(true);
      listener.bind(at, BACKLOG);
      NetworkCreator creator = new NetworkCreator(listener);
      new HelperThread("nccl4j-port-" + creator.port(), creator::accept, creator::giveUp).start();
      started = true;
      CREATORS.put(new InetSocketAddress(at.getAddress(), creator.port()), creator);
      return creator;
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "no rendezvous can be served at "
                      + at.getAddress().getHostAddress()
                      + ", TCP port "
                      + at.getPort()
                      + ": "
                      + e.getMessage(),
                  "choose an address of this machine, where rank 0 runs, and a port that is free: "
                      + MeetingAddress.VARIABLE
                      + "=tcp://node0:29400")
              .causedBy(e);
    } finally {
      if (!started && listener != null) {
        closeQuietly(listener);
      }
    }
  }

  /**
   * Waits until all ranks were told what came of a rendezvous, if this process serves it: it may
   * end as soon as its own rank goes on. An interrupt ends the wait, and stays set.
   */
  static void awaitTold(NetworkId id) {
    Served one;
    synchronized (CREATORS) {
      NetworkCreator creator = CREATORS.get(id.address());
      one = creator == null ? null : creator.served.get(id.name());
    }
    if (one != null) {
      try {
        one.awaitTold(Deadline.afterMillis(TELLING_MILLIS));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private int port() {
    return listener.getLocalPort();
  }

  /** Under the lock of all creators. */
  private void serve(Served one, Deadline unused) {
    served.put(one.id.name(), one);
    long linger = Math.min(LINGER_MILLIS, unused.lengthMillis());
    // The timer goes when there is an outcome.
    CompletableFuture<Void> _ =
        one.gathering
            .outcome()
            .copy()
            .orTimeout(unused.remainingMillis(), TimeUnit.MILLISECONDS)
            .handle(
                (outcome, late) -> {
                  if (late != null) {
                    one.gathering.expireUnused(unused);
                  }
                  return null;
                });
    CompletableFuture<Void> _ =
        one.gathering
            .outcome()
            .thenAccept(
                outcome -> {
                  if (outcome.failure() != null) {
                    endLater(one, linger);
                  }
                });
    CompletableFuture<Void> _ =
        one.gathering.verdict().thenAccept(verdict -> endLater(one, linger));
  }

  private void endLater(Served one, long millis) {
    CompletableFuture.delayedExecutor(millis, TimeUnit.MILLISECONDS).execute(() -> end(one));
  }

  private void end(Served one) {
    one.end();
    synchronized (CREATORS) {
      // The same id may be served again by now.
      served.remove(one.id.name(), one);
      if (served.isEmpty()) {
        close();
      }
    }
  }

  /** Under the lock of all creators. */
  private void close() {
    CREATORS.values().remove(this);
    closeQuietly(listener);
    synchronized (handshakes) {
      handshakes.keySet().forEach(NetworkCreator::closeQuietly);
    }
  }

  private static void closeQuietly(Closeable connection) {
    try {
      connection.close();
    } catch (IOException e) {
      LOG.debug("a connection cannot be closed", e);
    }
  }

  private void giveUp(Throwable cause) {
    List<Served> all;
    synchronized (CREATORS) {
      all = List.copyOf(served.values());
      close();
    }
    for (Served one : all) {
      one.gathering.fail(
          new Failure(
              Failure.Kind.SYSTEM,
              -1,
              "the rendezvous cannot be served: " + cause.getMessage(),
              ""));
    }
  }

  private @Nullable Served find(UUID name) {
    synchronized (CREATORS) {
      return served.get(name);
    }
  }

  // ---- its threads

  /** Once around; false at the end. */
  private boolean accept() {
    try {
      awaitRoom();
      Socket socket = listener.accept();
      synchronized (handshakes) {
        handshakes.put(socket, Deadline.afterMillis(SLOW_HANDSHAKE_MILLIS));
      }
      Thread.ofVirtual().name("nccl4j-rendezvous").start(() -> talk(socket));
    } catch (IOException e) {
      LOG.debug("port {} accepts nothing", port(), e);
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(PAUSE_MILLIS));
    } catch (InterruptedException e) {
      LOG.debug("port {} goes on", port(), e);
    }
    return !listener.isClosed();
  }

  /** Makes room by dropping a slow handshake if there is no other way. */
  private void awaitRoom() throws InterruptedException {
    synchronized (handshakes) {
      while (handshakes.size() >= MAX_HANDSHAKES && !listener.isClosed()) {
        Map.Entry<Socket, Deadline> oldest = handshakes.firstEntry();
        long patience = oldest.getValue().remainingMillis();
        if (patience > 0) {
          handshakes.wait(patience);
        } else {
          closeQuietly(oldest.getKey());
          handshakes.remove(oldest.getKey());
        }
      }
    }
  }

  private void endHandshake(Socket socket) {
    synchronized (handshakes) {
      if (handshakes.remove(socket) != null) {
        handshakes.notifyAll();
      }
    }
  }

  private void talk(Socket socket) {
    try (socket;
        PacketStream packets = new PacketStream(socket)) {
      Greeted greeted = greet(packets, Deadline.afterMillis(HANDSHAKE_MILLIS));
      endHandshake(socket);
      if (greeted != null) {
        greeted.talk();
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("a connection to port {} ended", port(), e);
    } finally {
      endHandshake(socket);
    }
  }

  /** Null if the other side has not proved to know the secret. */
  private @Nullable Greeted greet(PacketStream packets, Deadline deadline) throws IOException {
    Session.Packet hello = packets.receive(HELLO_BYTES, deadline);
    if (hello.type() != Session.HELLO || hello.body().length != HELLO_BYTES) {
      return null;
    }
    ByteBuffer in = ByteBuffer.wrap(hello.body());
    if (in.getInt() != NetworkId.VERSION) {
      packets.send(Session.plain(Session.REFUSED, new byte[] {Session.OTHER_VERSION}));
      return null;
    }
    Served wanted = find(new UUID(in.getLong(), in.getLong()));
    if (wanted == null) {
      packets.send(Session.plain(Session.REFUSED, new byte[] {Session.UNKNOWN}));
      return null;
    }
    byte[] theirs = new byte[Session.NONCE_BYTES];
    in.get(theirs);
    byte[] own = RendezvousId.random(Session.NONCE_BYTES);
    Session session = new Session(wanted.id.name(), wanted.id.secret(), true);
    session.nonces(theirs, own);
    packets.send(session.seal(Session.PROOF, own));
    Session.Packet proof = packets.receive(0, deadline);
    if (proof.type() != Session.PROOF || !session.verify(proof)) {
      packets.send(Session.plain(Session.REFUSED, new byte[] {Session.WRONG_SECRET}));
      return null;
    }
    return new Greeted(wanted, packets, session);
  }

  /** A connection whose other side knows the secret. */
  private static final class Greeted {
    private final Served served;
    private final PacketStream packets;
    private final Session session;

    Greeted(Served served, PacketStream packets, Session session) {
      this.served = served;
      this.packets = packets;
      this.session = session;
    }

    private Session.Packet receive() throws IOException {
      Session.Packet packet = packets.receive(MAX_BYTES, Deadline.never());
      synchronized (session) {
        if (!session.verify(packet)) {
          throw new IOException("a packet was changed on its way");
        }
      }
      return packet;
    }

    /** By one thread at a time, so that packets leave in their order. */
    private void answer(byte[] body) {
      byte[] packet;
      synchronized (session) {
        packet = session.seal(Session.ANSWER, body);
      }
      try {
        packets.send(packet);
      } catch (IOException e) {
        LOG.debug("an answer cannot be sent", e);
      }
    }

    void talk() throws IOException {
      if (served.enter(packets)) {
        try {
          hear(receive());
        } finally {
          served.leave(packets);
        }
      }
    }

    private void hear(Session.Packet first) throws IOException {
      byte[] value = served.value;
      if (value != null) {
        answer(hidden(value));
      } else if (first.type() == Session.JOIN) {
        join(first);
      } else if (first.type() == Session.DECLINE) {
        Failure reason = Failure.decodeWhole(first.body());
        served.gathering.decline(reason.rank(), reason);
      }
    }

    /** It may hold a secret, as NCCL's unique id does. */
    private byte[] hidden(byte[] value) {
      synchronized (session) {
        return session.hidden(value);
      }
    }

    private void join(Session.Packet first) throws IOException {
      ByteBuffer body = ByteBuffer.wrap(first.body());
      Seat seat = Seat.decode(body);
      byte[] brings = new byte[body.remaining()];
      body.get(brings);
      int nranks = seat.joiner().nranks();
      served.brought.put(seat.rank(), nranks, brings);
      Gathering gathering = served.gathering;
      Failure refusal = gathering.admit(seat, -1);
      if (refusal != null) {
        answer(refusal.encode());
        return;
      }
      served.toBeTold();
      Thread.ofVirtual().name("nccl4j-answers").start(this::tell);
      String why = "it broke off";
      try {
        while (true) {
          Session.Packet packet = receive();
          switch (packet.type()) {
            case Session.SHARE -> served.shared.put(seat.rank(), nranks, packet.body());
            case Session.READY -> gathering.ready(seat.rank());
            case Session.LATE -> gathering.expire(seat, late(packet));
            case Session.DECLINE ->
                gathering.fail(Failure.decodeWhole(packet.body()).by(seat.rank()));
            default -> throw new IOException("a packet of type " + packet.type());
          }
        }
      } catch (EOFException e) {
        why = "it died or gave up";
      } catch (IOException | RuntimeException e) {
        why = "its connection broke: " + e.getMessage();
      } finally {
        // Of no consequence when all have agreed.
        gathering.fail(Failure.gone(seat, why));
      }
    }

    private static Deadline late(Session.Packet packet) {
      return Deadline.afterMillis(ByteBuffer.wrap(packet.body()).getLong());
    }

    private void tell() {
      try {
        answerAll();
      } finally {
        served.told();
      }
    }

    /** Tells what comes of it, step by step. */
    private void answerAll() {
      Gathering gathering = served.gathering;
      Failure failure = gathering.outcome().join().failure();
      if (failure != null) {
        answer(failure.encode());
        return;
      }
      answer(served.brought.whole().join());
      Object next = CompletableFuture.anyOf(served.shared.whole(), gathering.verdict()).join();
      if (next instanceof byte[] shared) {
        answer(shared);
      }
      Optional<Failure> verdict = gathering.verdict().join();
      answer(verdict.map(Failure::encode).orElse(new byte[] {Answer.AGREED}));
    }
  }
}
