package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Processes;
import io.nccl4j.bindings.UnixSockets;
import io.nccl4j.internal.spi.HelperThread;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Serves one rendezvous to other processes: one daemon thread that never blocks except in poll(2),
 * for a bounded time. What joiners say, and are told, is a {@link JoinerConnection}'s.
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

  /** How long to stay after a failure. */
  private static final long LINGER_MILLIS = 5_000;

  /** Longest poll. */
  private static final long SLICE_MILLIS = 5_000;

  private final RendezvousId id;
  private final Gathering gathering;
  private final int listener;
  private final Waker waker;
  private final int uid = Processes.getuid();
  private final List<JoinerConnection> connections = new ArrayList<>();
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

  /** Once around; what goes wrong costs at most the connections it concerns. */
  private boolean round() {
    if (!gaveUp && serve()) {
      return true;
    }
    connections.forEach(JoinerConnection::close);
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
    connections.forEach(JoinerConnection::endIfUnheard);
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
      connections.forEach(JoinerConnection::tellVerdict);
      end = Deadline.afterMillis(verdict != null ? JoinerConnection.ANSWER_MILLIS : LINGER_MILLIS);
    }
    if (end != null) {
      boolean waits =
          connections.stream().anyMatch(JoinerConnection::hasAnswer)
              || (verdict == null && !gathering.everybodyCame());
      if (!waits || end.passed()) {
        return false;
      }
    }
    waitForEvents(outcome == null || outcome.failure() != null, end);
    connections.forEach(JoinerConnection::checkDeadline);
    return true;
  }

  private void answerAll(Gathering.Outcome outcome) {
    Answer answer = outcome.answer();
    Failure failure = outcome.failure();
    byte[] bytes =
        answer != null ? answer.encode() : failure != null ? failure.encode() : new byte[0];
    connections.forEach(c -> c.tell(answer, bytes));
  }

  // ---------------------------------------------------------------- waiting

  private void waitForEvents(boolean accepting, @Nullable Deadline end) {
    boolean full = accepting && !roomForHandshake();
    // The numbers of closed descriptors may be those of other threads' files by now.
    connections.removeIf(JoinerConnection::isClosed);
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
    boolean paused = acceptAgain != null && !acceptAgain.passed();
    fds[1] = accepting && !full && !paused ? listener : -1;
    events[1] = Descriptors.POLLIN;
    if (full || paused) {
      wait = Math.min(wait, JoinerConnection.PAUSE_MILLIS);
    }
    for (int i = 0; i < count; i++) {
      JoinerConnection c = connections.get(i);
      boolean pausing = c.isPausing();
      fds[2 + i] = c.fd;
      events[2 + i] = Descriptors.POLLIN | (c.hasAnswer() && !pausing ? Descriptors.POLLOUT : 0);
      wait = Math.min(wait, pausing ? JoinerConnection.PAUSE_MILLIS : c.remainingMillis());
    }
    Descriptors.poll(fds, events, results, Math.max(0, wait));
    if (results[0] != 0) {
      Descriptors.eventfdRead(waker.fd);
    }
    for (int i = 0; i < count; i++) {
      JoinerConnection c = connections.get(i);
      if ((results[2 + i] & ~Descriptors.POLLOUT) != 0) {
        c.receive();
      }
      if ((results[2 + i] & Descriptors.POLLOUT) != 0 && !c.isClosed()) {
        c.flush();
      }
    }
    if (results[1] != 0) {
      accept();
    }
  }

  // ---------------------------------------------------------------- connections

  /** Makes room by dropping a slow handshake if there is no other way. */
  private boolean roomForHandshake() {
    long handshakes = connections.stream().filter(JoinerConnection::isInHandshake).count();
    if (handshakes < MAX_HANDSHAKES) {
      return true;
    }
    for (JoinerConnection c : connections) {
      if (c.isInHandshake() && c.isSlow()) {
        c.close();
        return true;
      }
    }
    return false;
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
          kept = connections.add(new JoinerConnection(id, gathering, fd));
        } else {
          strangers++;
        }
      } catch (LibcException e) {
        if (fd < 0 && e.errno() == Errno.EAGAIN) {
          return;
        }
        LOG.debug("rendezvous {}: a connection was not accepted", id.name(), e);
        acceptAgain = Deadline.afterMillis(JoinerConnection.PAUSE_MILLIS);
        return;
      } finally {
        if (fd >= 0 && !kept) {
          Descriptors.close(fd);
        }
      }
    }
  }
}
