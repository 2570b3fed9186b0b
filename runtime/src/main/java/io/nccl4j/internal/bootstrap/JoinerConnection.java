package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.ReceivedMessage;
import io.nccl4j.bindings.UnixSockets;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * One connection to a {@link Creator}: what its joiner says, which goes to the {@link Gathering},
 * and what it is told. Used by the creator's thread; nothing here waits.
 */
final class JoinerConnection {
  private static final Logger LOG = LogManager.getLogger(JoinerConnection.class);

  /** How long a joiner may take to fetch its answer. */
  static final long ANSWER_MILLIS = 10_000;

  /** Pause when this process, or the kernel, has no descriptor to spare. */
  static final long PAUSE_MILLIS = 5;

  /** After that long a handshake may be dropped to make room for another one. */
  private static final long SLOW_HANDSHAKE_MILLIS = 1_000;

  /** After that long a handshake is dropped. */
  private static final long HANDSHAKE_MILLIS = 10_000;

  /** Too many descriptors are on their way through sockets. */
  private static final int ETOOMANYREFS = 109;

  private static final int MAX_PACKET_BYTES = Session.HEADER_BYTES + 8 + Failure.MAX_BYTES;
  private static final int[] NO_FDS = {};

  private enum Phase {
    HELLO,
    JOIN,
    JOINED,
    PREPARING,
    READY,
    CLOSED
  }

  final int fd;
  private final RendezvousId id;
  private final Gathering gathering;
  private final Session session;
  private final Deadline slow = Deadline.afterMillis(SLOW_HANDSHAKE_MILLIS);
  private Phase phase = Phase.HELLO;

  /** Until when the handshake, then the rank's wait, then its fetching of the answer may last. */
  private Deadline deadline = Deadline.afterMillis(HANDSHAKE_MILLIS);

  /** Until when the rank waits for all others, and for what comes of it. */
  private Deadline patience = deadline;

  private @Nullable Seat seat;

  /** Its answer and where it stands; null until there is one. */
  private byte @Nullable [] answer;

  private int[] fds = NO_FDS;
  private int answerSent;
  private int fdsSent;
  private byte @Nullable [] packet;
  private int[] packetFds = NO_FDS;
  private @Nullable Deadline sendAgain;

  /** Whether something was received and not dealt with. */
  private boolean unheard;

  /** A connection that was just accepted; it owns {@code fd}. */
  JoinerConnection(RendezvousId id, Gathering gathering, int fd) {
    this.id = id;
    this.gathering = gathering;
    this.fd = fd;
    session = new Session(id, true);
  }

  // ---------------------------------------------------------------- how it is

  boolean isInHandshake() {
    return phase == Phase.HELLO || phase == Phase.JOIN;
  }

  /** Whether its handshake may be dropped. */
  boolean isSlow() {
    return slow.passed();
  }

  boolean isClosed() {
    return phase == Phase.CLOSED;
  }

  /** Whether an answer is to be sent. */
  boolean hasAnswer() {
    return answer != null;
  }

  /** Whether the kernel is to have a moment before more is sent. */
  boolean isPausing() {
    return sendAgain != null && !sendAgain.passed();
  }

  /** How long it may go on like this. */
  long remainingMillis() {
    return deadline.remainingMillis();
  }

  /** Ends the wait of its rank, or the connection, when the time for it is over. */
  void checkDeadline() {
    if (isClosed() || !deadline.passed()) {
      return;
    }
    if (answer == null && seat != null) {
      // Ends the rendezvous, and with it the wait of this connection.
      gathering.expire(seat, patience);
      deadline = Deadline.afterMillis(ANSWER_MILLIS);
    } else {
      LOG.debug("rendezvous {}: a connection is too slow and is dropped", id.name());
      close();
    }
  }

  // ---------------------------------------------------------------- what it says

  /** Takes the packet that has come. */
  void receive() {
    unheard = true;
    hear();
    unheard = false;
  }

  /** Ends it if what it said last was too much for this process. */
  void endIfUnheard() {
    if (unheard) {
      lost("its message could not be handled");
    }
  }

  private void hear() {
    ReceivedMessage message;
    try {
      message = UnixSockets.recvmsg(fd, MAX_PACKET_BYTES, 1, UnixSockets.MSG_DONTWAIT);
    } catch (LibcException e) {
      if (e.errno() != Errno.EAGAIN) {
        lost(e.errnoName());
      }
      return;
    }
    int heapFd = message.fds().length == 1 ? message.fds()[0] : -1;
    Session.Packet heard = Session.parse(message.bytes());
    if (message.bytes().length == 0) {
      lost("it died or gave up");
    } else if (heard == null) {
      lost("it sent garbage");
    } else if (phase == Phase.HELLO && heard.type() == Session.HELLO) {
      hello(heard.body());
    } else if (phase == Phase.JOIN && heard.type() == Session.JOIN) {
      joined(heard, heapFd);
      heapFd = -1;
    } else if (phase == Phase.JOIN && heard.type() == Session.DECLINE) {
      declined(heard);
    } else if (seat != null && phase != Phase.READY) {
      prepared(seat, heard);
    } else {
      lost("it sent a packet of type " + heard.type());
    }
    if (heapFd >= 0) {
      Descriptors.close(heapFd);
    }
  }

  private void hello(byte[] body) {
    if (body.length != Integer.BYTES + Session.NONCE_BYTES) {
      lost("it sent garbage");
    } else if (ByteBuffer.wrap(body).getInt() != RendezvousId.VERSION) {
      refuse(Session.OTHER_VERSION);
    } else {
      byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
      session.nonces(Arrays.copyOfRange(body, Integer.BYTES, body.length), nonce);
      phase = Phase.JOIN;
      send(session.seal(Session.PROOF, nonce), NO_FDS);
    }
  }

  /** Takes over the descriptor. */
  private void joined(Session.Packet join, int heapFd) {
    Seat joiner = null;
    long millis = 0;
    byte reason = Session.WRONG_SECRET;
    if (session.verify(join)) {
      reason = Session.OTHER_VERSION;
      ByteBuffer in = ByteBuffer.wrap(join.body());
      try {
        millis = in.getLong();
        joiner = Seat.decode(in);
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a joiner cannot be understood", id.name(), e);
      }
    }
    if (joiner == null || joiner.shareable() != (heapFd >= 0)) {
      if (heapFd >= 0) {
        Descriptors.close(heapFd);
      }
      refuse(reason);
      return;
    }
    phase = Phase.JOINED;
    seat = joiner;
    patience = Deadline.afterMillis(millis);
    deadline = patience;
    LOG.debug("rendezvous {}: {} joins", id.name(), joiner);
    Failure refusal = gathering.admit(joiner, heapFd);
    if (refusal != null) {
      answer(refusal.encode(), NO_FDS);
    }
  }

  /** A rank that will not join; the connection has no other use. */
  private void declined(Session.Packet decline) {
    if (session.verify(decline)) {
      try {
        Failure refusal = Failure.decodeWhole(decline.body());
        gathering.decline(refusal.rank(), refusal.by(refusal.rank()));
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a refusal cannot be understood", id.name(), e);
      }
    }
    close();
  }

  /** What a rank says that has the table of all ranks. */
  private void prepared(Seat joiner, Session.Packet heard) {
    boolean authentic = session.verify(heard);
    if (authentic && heard.type() == Session.READY && phase == Phase.PREPARING) {
      phase = Phase.READY;
      gathering.ready(joiner.rank());
    } else if (authentic && heard.type() == Session.DECLINE) {
      try {
        gathering.fail(Failure.decodeWhole(heard.body()).by(joiner.rank()));
      } catch (RuntimeException e) {
        LOG.debug("rendezvous {}: a refusal cannot be understood", id.name(), e);
      }
      lost("it refused to go on");
    } else {
      lost("it sent garbage");
    }
  }

  private void refuse(byte reason) {
    LOG.debug("rendezvous {}: a connection is refused for reason {}", id.name(), reason);
    send(Session.plain(Session.REFUSED, new byte[] {reason}), NO_FDS);
    close();
  }

  /** The connection is of no more use; if it was a rank's, the rendezvous has failed. */
  private void lost(String why) {
    LOG.debug("rendezvous {}: a connection ended in phase {}: {}", id.name(), phase, why);
    boolean turnedAway = answer != null && answer[0] == Answer.FAILED;
    if (seat != null && !turnedAway) {
      gathering.fail(Failure.gone(seat, why));
    }
    close();
  }

  void close() {
    if (!isClosed()) {
      phase = Phase.CLOSED;
      answer = null;
      Descriptors.close(fd);
    }
  }

  // ---------------------------------------------------------------- what it is told

  /**
   * Tells the outcome to a rank that waits for it. Once all ranks have come, a connection without
   * one is of no more use and is closed.
   *
   * @param table of all ranks; null if the rendezvous has failed
   * @param encoded the table, or why it has failed
   */
  void tell(@Nullable Answer table, byte[] encoded) {
    if (seat != null && answer == null && phase == Phase.JOINED) {
      List<UUID> peers = table == null ? List.of() : table.processesBut(seat.process());
      answer(encoded, gathering.heaps(peers));
    } else if (table != null && isInHandshake()) {
      close();
    }
  }

  /** Tells a rank that has the table whether all go on, once that is known. */
  void tellVerdict() {
    Optional<Failure> verdict = gathering.verdict().getNow(null);
    boolean hasTable = phase == Phase.PREPARING || phase == Phase.READY;
    if (verdict != null && hasTable && answer == null) {
      answer(verdict.map(Failure::encode).orElse(new byte[] {Answer.AGREED}), NO_FDS);
    }
  }

  /** The answer is sent. Who has the table of all ranks is waited for, and told the verdict. */
  private void answered(byte[] sent) {
    if (sent[0] == Answer.COMPLETE) {
      answer = null;
      phase = Phase.PREPARING;
      deadline = patience;
      tellVerdict();
    } else {
      close();
    }
  }

  private void answer(byte[] bytes, int[] descriptors) {
    answer = bytes;
    answerSent = 0;
    fds = descriptors;
    fdsSent = 0;
    deadline = Deadline.afterMillis(ANSWER_MILLIS);
    flush();
  }

  /** Sends what the socket takes, and closes it after the last packet. */
  void flush() {
    byte[] sending = answer;
    while (sending != null) {
      if (packet == null) {
        packetFds = NO_FDS;
        if (answerSent < sending.length) {
          int length = Math.min(sending.length - answerSent, Session.MAX_BODY_BYTES - 8);
          ByteBuffer body = ByteBuffer.allocate(2 * Integer.BYTES + length);
          body.putInt(sending.length).putInt(answerSent).put(sending, answerSent, length);
          packet = session.seal(Session.ANSWER, body.array());
          answerSent += length;
        } else if (fdsSent < fds.length) {
          int end = Math.min(fds.length, fdsSent + Session.FDS_PER_PACKET);
          packetFds = Arrays.copyOfRange(fds, fdsSent, end);
          ByteBuffer body = ByteBuffer.allocate(2 * Integer.BYTES);
          body.putInt(fdsSent).putInt(packetFds.length);
          packet = session.seal(Session.FDS, body.array());
          fdsSent = end;
        } else {
          answered(sending);
          return;
        }
      }
      if (!send(packet, packetFds)) {
        return;
      }
      packet = null;
    }
  }

  /** False if it has to be sent again later, or never. */
  private boolean send(byte[] bytes, int[] descriptors) {
    try {
      UnixSockets.sendmsg(fd, bytes, 0, bytes.length, descriptors, UnixSockets.MSG_DONTWAIT);
      return true;
    } catch (LibcException e) {
      if (e.errno() == Errno.EAGAIN) {
        return false;
      }
      if (e.errno() == ETOOMANYREFS) {
        sendAgain = Deadline.afterMillis(PAUSE_MILLIS);
        return false;
      }
      lost(e.errnoName());
      return false;
    }
  }
}
