package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Processes;
import io.nccl4j.bindings.ReceivedMessage;
import io.nccl4j.bindings.UnixSockets;
import io.nccl4j.internal.spi.HelperThread;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Serves one rendezvous to other processes: one daemon thread that never blocks except in poll(2),
 * for a bounded time.
 *
 * <p>Connections of other users are closed when they are accepted. Those that have not proved to
 * know the secret are limited in number and time; only one that has can influence the rendezvous.
 * After success the thread ends when all joiners have their answer; after a failure it stays up to
 * {@value #LINGER_MILLIS} ms to tell those who come late.
 */
final class Creator {
  private static final Logger LOG = LogManager.getLogger(Creator.class);

  static final int SOCKET_TYPE =
      UnixSockets.SOCK_SEQPACKET | UnixSockets.SOCK_NONBLOCK | UnixSockets.SOCK_CLOEXEC;
  private static final int BACKLOG = 1024;

  /** Most connections that may be in the handshake; others wait in the listener's queue. */
  private static final int MAX_HANDSHAKES = 64;

  /** Most connections that are accepted before those that are there are looked at again. */
  private static final int MAX_ACCEPTS = 256;

  /** After that long a handshake may be dropped to make room for another one. */
  private static final long SLOW_HANDSHAKE_MILLIS = 1_000;

  /** After that long a handshake is dropped. */
  private static final long HANDSHAKE_MILLIS = 10_000;

  /** How long to stay after a failure. */
  private static final long LINGER_MILLIS = 5_000;

  /** How long a joiner may take to fetch its answer. */
  private static final long ANSWER_MILLIS = 10_000;

  /** Longest poll. */
  private static final long SLICE_MILLIS = 5_000;

  /** Pause when this process, or the kernel, has no descriptor to spare. */
  private static final long PAUSE_MILLIS = 5;

  /** Too many descriptors are on their way through sockets. */
  private static final int ETOOMANYREFS = 109;

  static final int FDS_PER_PACKET = 64;

  private static final String GAVE_UP = "it died or gave up";
  private static final int MAX_PACKET_BYTES = Session.HEADER_BYTES + 8 + Failure.MAX_BYTES;
  private static final int[] NO_FDS = {};

  private final RendezvousId id;
  private final Gathering gathering;
  private final int listener;
  private final Waker waker;
  private final int uid = Processes.getuid();
  private final List<Connection> connections = new ArrayList<>();
  private @Nullable Deadline acceptAgain;

  /** Until when some rank has to come; null once that is settled. */
  private @Nullable Deadline unused;

  /** Connections of other users that were closed. */
  private long strangers;

  /** Whether the outcome was told to all who wait for it. */
  private boolean answered;

  /** Until when answers are fetched; null as long as the ranks meet. */
  private @Nullable Deadline end;

  private boolean gaveUp;
  private boolean finished;

  private Creator(
      RendezvousId id, Gathering gathering, int listener, Waker waker, Deadline unused) {
    this.id = id;
    this.gathering = gathering;
    this.listener = listener;
    this.waker = waker;
    this.unused = unused;
  }

  /**
   * Opens the socket and starts the thread.
   *
   * @param unused until when some rank has to come, or the id is of no more use
   * @throws io.nccl4j.SystemErrorException if the socket cannot be opened
   */
  static void start(RendezvousId id, Gathering gathering, Deadline unused) {
    int socket = -1;
    Waker waker = null;
    boolean started = false;
    try {
      socket = UnixSockets.socket(SOCKET_TYPE);
      UnixSockets.bindAbstract(socket, id.socketName());
      UnixSockets.listen(socket, BACKLOG);
      waker = new Waker();
      Creator creator = new Creator(id, gathering, socket, waker, unused);
      gathering.retain();
      gathering.onEnd(outcome -> creator.waker.wake());
      CompletableFuture<Void> ignored =
          gathering.verdict().thenAccept(verdict -> creator.waker.wake());
      new HelperThread("nccl4j-" + id.name(), creator::round, creator::giveUp).start();
      started = true;
    } catch (LibcException e) {
      throw Failure.ofSystem("cannot serve a rendezvous", e);
    } finally {
      if (!started && waker != null) {
        waker.close();
      }
      if (!started && socket >= 0) {
        Descriptors.close(socket);
      }
    }
  }

  /** Wakes the thread up; safe against a descriptor that is closed meanwhile. */
  private static final class Waker {
    final int fd = Descriptors.eventfd(0, Descriptors.EFD_CLOEXEC | Descriptors.EFD_NONBLOCK);
    private boolean closed;

    synchronized void wake() {
      if (!closed) {
        Descriptors.eventfdWrite(fd, 1);
      }
    }

    synchronized void close() {
      closed = true;
      Descriptors.close(fd);
    }
  }

  private enum Phase {
    HELLO,
    JOIN,
    JOINED,
    PREPARING,
    READY,
    CLOSED
  }

  private final class Connection {
    final int fd;
    final Session session = new Session(id, true);
    final Deadline slow = Deadline.afterMillis(SLOW_HANDSHAKE_MILLIS);
    Phase phase = Phase.HELLO;

    /** Until when the handshake, then the rank's wait, then its fetching of the answer may last. */
    Deadline deadline = Deadline.afterMillis(HANDSHAKE_MILLIS);

    /** Until when the rank waits for all others, and for what comes of it. */
    Deadline patience = deadline;

    @Nullable Seat seat;

    /** Its answer and where it stands; null until there is one. */
    byte @Nullable [] answer;

    int[] fds = NO_FDS;
    int answerSent;
    int fdsSent;
    byte @Nullable [] packet;
    int[] packetFds = NO_FDS;
    @Nullable Deadline sendAgain;

    /** Whether something was received and not dealt with. */
    boolean unheard;

    Connection(int fd) {
      this.fd = fd;
    }
  }

  /** Once around; what goes wrong costs at most the connections it concerns. */
  private boolean round() {
    if (!gaveUp && serve()) {
      return true;
    }
    connections.forEach(this::close);
    if (!finished) {
      finished = true;
      Descriptors.close(listener);
      waker.close();
      gathering.release();
      if (strangers > 0) {
        LOG.info("rendezvous {}: closed {} connections of other users", id.name(), strangers);
      }
    }
    return false;
  }

  private void giveUp(Throwable cause) {
    gaveUp = true;
    gathering.fail(
        new Failure(
            Failure.Kind.SYSTEM, -1, "the rendezvous cannot be served: " + cause.getMessage(), ""));
  }

  /** Whether there is more to do. */
  private boolean serve() {
    for (Connection c : connections) {
      if (c.unheard) {
        lost(c, "its message could not be handled");
      }
    }
    if (unused != null && unused.passed()) {
      gathering.expireUnused(unused);
      unused = null;
    }
    Gathering.Outcome outcome = gathering.outcome().getNow(null);
    Optional<Failure> verdict = gathering.verdict().getNow(null);
    if (outcome != null && !answered) {
      answerAll(outcome);
      answered = true;
    }
    if (end == null && outcome != null && (outcome.failure() != null || verdict != null)) {
      LOG.debug("rendezvous {} ended: {}, {}", id.name(), outcome, verdict);
      connections.stream().filter(this::hasTable).forEach(this::tellVerdict);
      end = Deadline.afterMillis(verdict != null ? ANSWER_MILLIS : LINGER_MILLIS);
    }
    if (end != null) {
      boolean waits =
          connections.stream().anyMatch(c -> c.answer != null)
              || (verdict == null && !gathering.everybodyCame());
      if (!waits || end.passed()) {
        return false;
      }
    }
    waitForEvents(outcome == null || outcome.failure() != null, end);
    checkDeadlines();
    connections.removeIf(c -> c.phase == Phase.CLOSED);
    return true;
  }

  // ---------------------------------------------------------------- waiting

  private void waitForEvents(boolean accepting, @Nullable Deadline end) {
    int count = connections.size();
    int[] fds = new int[2 + count];
    int[] events = new int[2 + count];
    int[] results = new int[2 + count];
    long wait = Math.min(SLICE_MILLIS, end == null ? SLICE_MILLIS : end.remainingMillis());
    if (unused != null) {
      wait = Math.min(wait, unused.remainingMillis());
    }
    fds[0] = waker.fd;
    events[0] = Descriptors.POLLIN;
    boolean full = accepting && !roomForHandshake();
    boolean paused = acceptAgain != null && !acceptAgain.passed();
    fds[1] = accepting && !full && !paused ? listener : -1;
    events[1] = Descriptors.POLLIN;
    if (full || paused) {
      wait = Math.min(wait, PAUSE_MILLIS);
    }
    for (int i = 0; i < count; i++) {
      Connection c = connections.get(i);
      boolean pausing = c.sendAgain != null && !c.sendAgain.passed();
      fds[2 + i] = c.fd;
      events[2 + i] = Descriptors.POLLIN | (c.answer != null && !pausing ? Descriptors.POLLOUT : 0);
      wait = Math.min(wait, pausing ? PAUSE_MILLIS : c.deadline.remainingMillis());
    }
    Descriptors.poll(fds, events, results, Math.max(0, wait));
    if (results[0] != 0) {
      Descriptors.eventfdRead(waker.fd);
    }
    for (int i = 0; i < count; i++) {
      Connection c = connections.get(i);
      if ((results[2 + i] & ~Descriptors.POLLOUT) != 0) {
        receive(c);
      }
      if ((results[2 + i] & Descriptors.POLLOUT) != 0 && c.phase != Phase.CLOSED) {
        flush(c);
      }
    }
    if (results[1] != 0) {
      accept();
    }
  }

  private void checkDeadlines() {
    for (Connection c : connections) {
      if (c.phase == Phase.CLOSED || !c.deadline.passed()) {
        continue;
      }
      if (c.answer == null && c.seat != null) {
        // Ends the rendezvous, and with it the wait of this connection.
        gathering.expire(c.seat, c.patience);
        c.deadline = Deadline.afterMillis(ANSWER_MILLIS);
      } else {
        LOG.debug("rendezvous {}: a connection is too slow and is dropped", id.name());
        close(c);
      }
    }
  }

  // ---------------------------------------------------------------- connections

  /** Makes room by dropping a slow handshake if there is no other way. */
  private boolean roomForHandshake() {
    long handshakes = connections.stream().filter(this::inHandshake).count();
    if (handshakes < MAX_HANDSHAKES) {
      return true;
    }
    for (Connection c : connections) {
      if (inHandshake(c) && c.slow.passed()) {
        close(c);
        return true;
      }
    }
    return false;
  }

  private boolean inHandshake(Connection c) {
    return c.phase == Phase.HELLO || c.phase == Phase.JOIN;
  }

  /**
   * Takes what waits in the listener's queue. Connections of other users, who can see the socket's
   * name, are closed at once: they never take a place, however many there are.
   */
  private void accept() {
    for (int i = 0; i < MAX_ACCEPTS && roomForHandshake(); i++) {
      int fd = -1;
      boolean kept = false;
      try {
        fd = UnixSockets.accept4(listener, UnixSockets.SOCK_NONBLOCK | UnixSockets.SOCK_CLOEXEC);
        if (UnixSockets.peerCredentials(fd).uid() == uid) {
          kept = connections.add(new Connection(fd));
        } else {
          strangers++;
        }
      } catch (LibcException e) {
        if (fd < 0 && e.errno() == Errno.EAGAIN) {
          return;
        }
        LOG.debug("rendezvous {}: a connection was not accepted", id.name(), e);
        acceptAgain = Deadline.afterMillis(PAUSE_MILLIS);
        return;
      } finally {
        if (fd >= 0 && !kept) {
          Descriptors.close(fd);
        }
      }
    }
  }

  private void receive(Connection c) {
    c.unheard = true;
    hear(c);
    c.unheard = false;
  }

  private void hear(Connection c) {
    ReceivedMessage message;
    try {
      message = UnixSockets.recvmsg(c.fd, MAX_PACKET_BYTES, 1, UnixSockets.MSG_DONTWAIT);
    } catch (LibcException e) {
      if (e.errno() != Errno.EAGAIN) {
        lost(c, e.errnoName());
      }
      return;
    }
    int heapFd = message.fds().length == 1 ? message.fds()[0] : -1;
    Session.Packet packet = Session.parse(message.bytes());
    if (message.bytes().length == 0) {
      lost(c, GAVE_UP);
    } else if (packet == null) {
      lost(c, "it sent garbage");
    } else if (c.phase == Phase.HELLO && packet.type() == Session.HELLO) {
      hello(c, packet.body());
    } else if (c.phase == Phase.JOIN && packet.type() == Session.JOIN) {
      joined(c, packet, heapFd);
      heapFd = -1;
    } else if (c.phase == Phase.JOIN && packet.type() == Session.DECLINE) {
      declined(c, packet);
    } else if (c.seat != null && c.phase != Phase.READY) {
      prepared(c, c.seat, packet);
    } else {
      lost(c, "it sent a packet of type " + packet.type());
    }
    if (heapFd >= 0) {
      Descriptors.close(heapFd);
    }
  }

  private void hello(Connection c, byte[] body) {
    if (body.length != Integer.BYTES + Session.NONCE_BYTES) {
      lost(c, "it sent garbage");
    } else if (ByteBuffer.wrap(body).getInt() != RendezvousId.VERSION) {
      refuse(c, Session.OTHER_VERSION);
    } else {
      byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
      c.session.nonces(Arrays.copyOfRange(body, Integer.BYTES, body.length), nonce);
      c.phase = Phase.JOIN;
      send(c, c.session.seal(Session.PROOF, nonce), NO_FDS);
    }
  }

  /** Takes over the descriptor. */
  private void joined(Connection c, Session.Packet packet, int heapFd) {
    Seat seat = null;
    long millis = 0;
    byte reason = Session.WRONG_SECRET;
    if (c.session.verify(packet)) {
      reason = Session.OTHER_VERSION;
      ByteBuffer in = ByteBuffer.wrap(packet.body());
      try {
        millis = in.getLong();
        seat = Seat.decode(in);
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a joiner cannot be understood", id.name(), e);
      }
    }
    if (seat == null || seat.shareable() != (heapFd >= 0)) {
      if (heapFd >= 0) {
        Descriptors.close(heapFd);
      }
      refuse(c, reason);
      return;
    }
    c.phase = Phase.JOINED;
    c.seat = seat;
    c.patience = Deadline.afterMillis(millis);
    c.deadline = c.patience;
    LOG.debug("rendezvous {}: {} joins", id.name(), seat);
    Failure refusal = gathering.admit(seat, heapFd);
    if (refusal != null) {
      answer(c, refusal.encode(), NO_FDS);
    }
  }

  /** A rank that will not join; the connection has no other use. */
  private void declined(Connection c, Session.Packet packet) {
    if (c.session.verify(packet)) {
      try {
        Failure refusal = Failure.decodeWhole(packet.body());
        gathering.decline(refusal.rank(), refusal.by(refusal.rank()));
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a refusal cannot be understood", id.name(), e);
      }
    }
    close(c);
  }

  /** What a rank says that has the table of all ranks. */
  private void prepared(Connection c, Seat seat, Session.Packet packet) {
    boolean authentic = c.session.verify(packet);
    if (authentic && packet.type() == Session.READY && c.phase == Phase.PREPARING) {
      c.phase = Phase.READY;
      gathering.ready(seat.rank());
    } else if (authentic && packet.type() == Session.DECLINE) {
      try {
        gathering.fail(Failure.decodeWhole(packet.body()).by(seat.rank()));
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a refusal cannot be understood", id.name(), e);
      }
      lost(c, "it refused to go on");
    } else {
      lost(c, "it sent garbage");
    }
  }

  private void refuse(Connection c, byte reason) {
    LOG.debug("rendezvous {}: a connection is refused for reason {}", id.name(), reason);
    send(c, Session.plain(Session.REFUSED, new byte[] {reason}), NO_FDS);
    close(c);
  }

  /** The connection is of no more use; if it was a rank's, the rendezvous has failed. */
  private void lost(Connection c, String why) {
    LOG.debug("rendezvous {}: a connection ended in phase {}: {}", id.name(), c.phase, why);
    Seat seat = c.seat;
    boolean turnedAway = c.answer != null && c.answer[0] == Answer.FAILED;
    if (seat != null && !turnedAway) {
      gathering.fail(Failure.gone(seat, why));
    }
    close(c);
  }

  private void close(Connection c) {
    if (c.phase != Phase.CLOSED) {
      c.phase = Phase.CLOSED;
      c.answer = null;
      Descriptors.close(c.fd);
    }
  }

  // ---------------------------------------------------------------- answers

  private void answerAll(Gathering.Outcome outcome) {
    Answer answer = outcome.answer();
    Failure failure = outcome.failure();
    byte[] bytes =
        answer != null ? answer.encode() : failure != null ? failure.encode() : new byte[0];
    for (Connection c : connections) {
      if (c.seat != null && c.answer == null && c.phase == Phase.JOINED) {
        List<UUID> peers = answer == null ? List.of() : answer.processesBut(c.seat.process());
        answer(c, bytes, gathering.heaps(peers));
      } else if (answer != null && inHandshake(c)) {
        close(c);
      }
    }
    connections.removeIf(c -> c.phase == Phase.CLOSED);
  }

  private boolean hasTable(Connection c) {
    return c.answer == null && (c.phase == Phase.PREPARING || c.phase == Phase.READY);
  }

  private void tellVerdict(Connection c) {
    Optional<Failure> verdict = gathering.verdict().getNow(null);
    if (verdict != null) {
      answer(c, verdict.map(Failure::encode).orElse(new byte[] {Answer.AGREED}), NO_FDS);
    }
  }

  /** The answer is sent. Who has the table of all ranks is waited for, and told the verdict. */
  private void answered(Connection c, byte[] answer) {
    if (answer[0] == Answer.COMPLETE) {
      c.answer = null;
      c.phase = Phase.PREPARING;
      c.deadline = c.patience;
      tellVerdict(c);
    } else {
      close(c);
    }
  }

  private void answer(Connection c, byte[] answer, int[] fds) {
    c.answer = answer;
    c.answerSent = 0;
    c.fds = fds;
    c.fdsSent = 0;
    c.deadline = Deadline.afterMillis(ANSWER_MILLIS);
    flush(c);
  }

  /** Sends what the socket takes, and closes it after the last packet. */
  private void flush(Connection c) {
    byte[] answer = c.answer;
    while (answer != null) {
      if (c.packet == null) {
        c.packetFds = NO_FDS;
        if (c.answerSent < answer.length) {
          int length = Math.min(answer.length - c.answerSent, Session.MAX_BODY_BYTES - 8);
          ByteBuffer body = ByteBuffer.allocate(2 * Integer.BYTES + length);
          body.putInt(answer.length).putInt(c.answerSent).put(answer, c.answerSent, length);
          c.packet = c.session.seal(Session.ANSWER, body.array());
          c.answerSent += length;
        } else if (c.fdsSent < c.fds.length) {
          int end = Math.min(c.fds.length, c.fdsSent + FDS_PER_PACKET);
          c.packetFds = Arrays.copyOfRange(c.fds, c.fdsSent, end);
          ByteBuffer body = ByteBuffer.allocate(2 * Integer.BYTES);
          body.putInt(c.fdsSent).putInt(c.packetFds.length);
          c.packet = c.session.seal(Session.FDS, body.array());
          c.fdsSent = end;
        } else {
          answered(c, answer);
          return;
        }
      }
      if (!send(c, c.packet, c.packetFds)) {
        return;
      }
      c.packet = null;
    }
  }

  /** False if it has to be sent again later, or never. */
  private boolean send(Connection c, byte[] packet, int[] fds) {
    try {
      UnixSockets.sendmsg(c.fd, packet, 0, packet.length, fds, UnixSockets.MSG_DONTWAIT);
      return true;
    } catch (LibcException e) {
      if (e.errno() == Errno.EAGAIN) {
        return false;
      }
      if (e.errno() == ETOOMANYREFS) {
        c.sendAgain = Deadline.afterMillis(PAUSE_MILLIS);
        return false;
      }
      lost(c, e.errnoName());
      return false;
    }
  }
}
