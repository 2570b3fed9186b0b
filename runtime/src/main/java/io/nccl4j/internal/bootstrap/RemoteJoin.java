package io.nccl4j.internal.bootstrap;

import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Processes;
import io.nccl4j.bindings.ReceivedMessage;
import io.nccl4j.bindings.UnixSockets;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * One rank that joins a rendezvous of another process, on the calling thread. No native call waits
 * longer than {@value #SLICE_MILLIS} ms, and none at all in a virtual thread.
 */
final class RemoteJoin implements Membership.Link {
  private static final Logger LOG = LogManager.getLogger(RemoteJoin.class);

  /** An interrupt is seen after that long at most. */
  private static final long SLICE_MILLIS = 4;

  private static final long PAUSE_MILLIS = 2;

  /** How much longer than its deadline a rank waits to be told who is missing. */
  private static final long GRACE_MILLIS = 500;

  /** How long an interrupted rank waits to be told whether it has joined in that moment. */
  private static final long LAST_LOOK_MILLIS = 5;

  /** How long is tried to tell the creator that a rank does not come. */
  private static final long DECLINE_MILLIS = 2000;

  private static final int MAX_PACKET_BYTES = Session.HEADER_BYTES + Session.MAX_BODY_BYTES;
  private static final int MAX_ANSWER_BYTES = 1 << 20;
  private static final int[] NO_FDS = {};
  private static final byte[] NO_BYTES = {};

  private final RendezvousId id;
  private final int rank;
  private final Session session;
  private final int socket;
  private final Deadline deadline;
  private boolean open = true;

  /** Descriptors received and not handed on yet. */
  private int[] heapFds = NO_FDS;

  /** Whether this rank has said that it is ready: the creator may count on it. */
  private boolean ready;

  private boolean decided;

  /** Until when a verdict is waited for that is under way; null unless this rank gave up. */
  private @Nullable Deadline lastLook;

  private RemoteJoin(RendezvousId id, int rank, Deadline deadline) throws InterruptedException {
    this.id = id;
    this.deadline = deadline;
    this.rank = rank;
    this.socket = connect(id, rank, deadline);
    session = new Session(id, false);
  }

  /** As {@link Rendezvous#join}. */
  static Membership join(RendezvousId id, Joiner joiner, Deadline deadline) {
    AbsentCreator.requireReachable(id);
    try {
      RemoteJoin join = greeted(id, joiner.rank(), deadline);
      try {
        return join.finish(joiner);
      } catch (LibcException e) {
        NcclException failure = cannotJoin(joiner.rank(), e);
        join.refuse(Failure.refusal(joiner.rank(), failure));
        join.close();
        throw failure;
      } catch (RuntimeException | Error e) {
        join.close();
        throw e;
      }
    } catch (InterruptedException e) {
      NcclException failure = Failure.interrupted(joiner.rank(), e);
      declineLater(id, Failure.refusal(joiner.rank(), failure));
      throw failure;
    } catch (LibcException e) {
      throw cannotJoin(joiner.rank(), e);
    }
  }

  private static NcclException cannotJoin(int rank, LibcException e) {
    return Failure.ofSystem("rank " + rank + " cannot join", e);
  }

  /** As {@link Rendezvous#decline}. */
  static void decline(RendezvousId id, Failure refusal) throws InterruptedException {
    AbsentCreator.requireReachable(id);
    RemoteJoin link = greeted(id, refusal.rank(), Deadline.afterMillis(DECLINE_MILLIS));
    link.refuse(refusal);
    link.close();
  }

  /** In the background, since the rank waits no longer. */
  private static void declineLater(RendezvousId id, Failure refusal) {
    Thread.ofPlatform()
        .daemon()
        .name("nccl4j-decline-" + refusal.rank())
        .start(
            () -> {
              try {
                decline(id, refusal);
              } catch (NcclException | LibcException | InterruptedException e) {
                LOG.debug("rank {} cannot report that it does not join", refusal.rank(), e);
              }
            });
  }

  /** A connection on which both sides have proved to know the secret. */
  private static RemoteJoin greeted(RendezvousId id, int rank, Deadline deadline)
      throws InterruptedException {
    while (true) {
      RemoteJoin join = new RemoteJoin(id, rank, deadline);
      boolean greeted = false;
      try {
        greeted = join.greet();
      } finally {
        if (!greeted) {
          join.close();
        }
      }
      if (greeted) {
        return join;
      }
      pause(rank, deadline, id);
    }
  }

  // ---------------------------------------------------------------- after all have come

  @Override
  public @Nullable Failure agree() {
    try {
      if (!send(session.seal(Session.READY, NO_BYTES))) {
        throw AbsentCreator.gone(id);
      }
      ready = true;
      Failure failure = verdict(receiveAnswer(grace()));
      decided = true;
      return failure;
    } catch (InterruptedException e) {
      throw Failure.interrupted(rank, e);
    } catch (NcclException e) {
      if (lastLook != null) {
        throw Failure.interrupted(rank, e);
      }
      throw e;
    } catch (LibcException e) {
      throw cannotJoin(rank, e);
    } finally {
      if (lastLook != null) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Why no rank goes on; null if all do. */
  private @Nullable Failure verdict(ByteBuffer encoded) {
    try {
      byte kind = encoded.get();
      if (kind == Answer.FAILED) {
        return Failure.decode(encoded);
      }
      if (kind == Answer.AGREED) {
        return null;
      }
    } catch (RuntimeException e) {
      throw broken("a verdict that cannot be understood").causedBy(e);
    }
    throw broken("an invalid verdict");
  }

  @Override
  public boolean isUndecided() {
    return ready && !decided;
  }

  @Override
  public void refuse(Failure reason) {
    try {
      if (!send(session.seal(Session.DECLINE, reason.encode()))) {
        LOG.debug("rank {}: the creator is gone and cannot receive the refusal", rank);
      }
    } catch (LibcException e) {
      // The creator sees the end of the connection, if not the reason.
      LOG.debug("rank {}: the creator is not told why it refuses", rank, e);
    }
  }

  private Deadline grace() {
    return Deadline.afterMillis(deadline.remainingMillis() + GRACE_MILLIS);
  }

  @Override
  public void close() {
    if (!open) {
      return;
    }
    open = false;
    for (int fd : heapFds) {
      Descriptors.close(fd);
    }
    heapFds = NO_FDS;
    Descriptors.close(socket);
  }

  // ---------------------------------------------------------------- reaching the creator

  private static int connect(RendezvousId id, int rank, Deadline deadline)
      throws InterruptedException {
    while (true) {
      int socket = UnixSockets.socket(Creator.SOCKET_TYPE);
      try {
        UnixSockets.connectAbstract(socket, id.socketName());
        int uid = UnixSockets.peerCredentials(socket).uid();
        if (uid != Processes.getuid()) {
          throw new InvalidUsageException(
              "the unique id is served by user "
                  + Integer.toUnsignedString(uid)
                  + ", this process runs as user "
                  + Integer.toUnsignedString(Processes.getuid()),
              "run all ranks under one user");
        }
        return socket;
      } catch (LibcException e) {
        Descriptors.close(socket);
        if (e.errno() == Errno.ECONNREFUSED) {
          throw AbsentCreator.nobodyServes(id).causedBy(e);
        }
        if (e.errno() != Errno.EAGAIN) {
          throw e;
        }
      } catch (RuntimeException e) {
        Descriptors.close(socket);
        throw e;
      }
      pause(rank, deadline, id);
    }
  }

  // ---------------------------------------------------------------- the conversation

  /** Both sides prove that they know the secret; false if the creator dropped the connection. */
  private boolean greet() throws InterruptedException {
    byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
    byte[] hello =
        ByteBuffer.allocate(Integer.BYTES + nonce.length)
            .putInt(RendezvousId.VERSION)
            .put(nonce)
            .array();
    if (!send(Session.plain(Session.HELLO, hello))) {
      return false;
    }
    Session.Packet proof = receive(deadline);
    if (proof == null) {
      return false;
    }
    expect(Session.PROOF, proof);
    session.nonces(nonce, proof.body());
    if (proof.body().length != Session.NONCE_BYTES || !session.verify(proof)) {
      throw new InvalidUsageException(
          "whoever serves the unique id does not know its secret",
          "pass the id on unchanged, all " + UniqueId.BYTES + " bytes");
    }
    return true;
  }

  private Membership finish(Joiner joiner) throws InterruptedException {
    ByteBuffer body = ByteBuffer.allocate(Long.BYTES + Seat.MAX_BYTES);
    body.putLong(deadline.remainingMillis());
    Seat.here(joiner).encode(body);
    byte[] join = session.seal(Session.JOIN, Arrays.copyOf(body.array(), body.position()));
    boolean sent = joiner.heapFd() >= 0 ? send(join, joiner.heapFd()) : send(join);
    if (!sent) {
      throw AbsentCreator.gone(id);
    }
    Deadline grace = grace();
    Answer answer = decode(receiveAnswer(grace), joiner);
    List<UUID> peers = answer.processesBut(joiner.process());
    while (heapFds.length < peers.size()) {
      int had = heapFds.length;
      Session.Packet packet = receive(grace);
      if (packet == null) {
        throw AbsentCreator.gone(id);
      }
      expectVerified(Session.FDS, packet);
      if (heapFds.length == had || heapFds.length > peers.size()) {
        throw broken("descriptors " + heapFds.length + " of " + peers.size());
      }
    }
    int[] fds = heapFds;
    heapFds = NO_FDS;
    return Membership.of(answer, peers, fds, this);
  }

  /** The table, which fits what this rank asked for; throws why the rendezvous failed. */
  private Answer decode(ByteBuffer encoded, Joiner joiner) {
    NcclException failure;
    try {
      if (encoded.get() == Answer.COMPLETE) {
        Answer answer = Answer.decode(encoded);
        if (answer.fits(joiner)) {
          return answer;
        }
        failure = broken("a table of ranks that is not the one it was asked for");
      } else {
        failure = Failure.decode(encoded).toException();
      }
    } catch (RuntimeException e) {
      failure = broken("an answer that cannot be understood").causedBy(e);
    }
    throw failure;
  }

  private ByteBuffer receiveAnswer(Deadline grace) throws InterruptedException {
    byte[] answer = NO_BYTES;
    int filled = 0;
    do {
      Session.Packet packet = receive(grace);
      if (packet == null) {
        throw AbsentCreator.gone(id);
      }
      expectVerified(Session.ANSWER, packet);
      ByteBuffer in = ByteBuffer.wrap(packet.body());
      int total = in.getInt();
      int offset = in.getInt();
      if (total < 1 || total > MAX_ANSWER_BYTES || offset != filled || !in.hasRemaining()) {
        throw broken("answer of " + total + " B at " + offset);
      }
      if (filled == 0) {
        answer = new byte[total];
      }
      int length = in.remaining();
      in.get(answer, filled, length);
      filled += length;
    } while (filled < answer.length);
    return ByteBuffer.wrap(answer);
  }

  private void expect(byte type, Session.Packet packet) {
    if (packet.type() == Session.REFUSED && packet.body().length == 1) {
      throw switch (packet.body()[0]) {
        case Session.WRONG_SECRET ->
            new InvalidUsageException(
                "the creator refuses the secret of the unique id", "pass the id on unchanged");
        default ->
            new InvalidUsageException(
                "the creator speaks another version of the protocol",
                "use the same nccl4j jars in all processes");
      };
    }
    if (packet.type() != type) {
      throw broken("packet of type " + packet.type() + " instead of " + type);
    }
  }

  private void expectVerified(byte type, Session.Packet packet) {
    expect(type, packet);
    if (!session.verify(packet)) {
      throw broken("a packet that is not authentic");
    }
  }

  private NcclException broken(String what) {
    return new InternalErrorException(
        "process " + id.place().pid() + " answers a rendezvous with " + what, "");
  }

  // ---------------------------------------------------------------- packets

  /** False if the creator has closed the connection. */
  private boolean send(byte[] packet, int... fds) {
    try {
      // There is room: these packets are the first ones, and small.
      UnixSockets.sendmsg(socket, packet, 0, packet.length, fds, UnixSockets.MSG_DONTWAIT);
      return true;
    } catch (LibcException e) {
      if (e.errno() == Errno.EPIPE || e.errno() == Errno.ECONNRESET) {
        LOG.debug("rank {}: the creator closed the connection", rank, e);
        return false;
      }
      throw e;
    }
  }

  /**
   * The next packet, null if the creator has closed the connection. Its descriptors are added to
   * {@link #heapFds}.
   */
  private Session.@Nullable Packet receive(Deadline until) throws InterruptedException {
    while (true) {
      ReceivedMessage message;
      try {
        message =
            UnixSockets.recvmsg(
                socket, MAX_PACKET_BYTES, Session.FDS_PER_PACKET, UnixSockets.MSG_DONTWAIT);
      } catch (LibcException e) {
        if (e.errno() == Errno.ECONNRESET) {
          LOG.debug("rank {}: the creator closed the connection", rank, e);
          return null;
        }
        if (e.errno() != Errno.EAGAIN) {
          throw e;
        }
        awaitReadable(until);
        continue;
      }
      int had = heapFds.length;
      heapFds = Arrays.copyOf(heapFds, had + message.fds().length);
      System.arraycopy(message.fds(), 0, heapFds, had, message.fds().length);
      if (message.bytes().length == 0) {
        return null;
      }
      Session.Packet packet = Session.parse(message.bytes());
      if (packet == null) {
        throw broken(message.bytes().length + " B of garbage");
      }
      return packet;
    }
  }

  private void awaitReadable(Deadline given) throws InterruptedException {
    Deadline until = lastLook == null ? given : lastLook;
    try {
      if (Thread.currentThread().isVirtual()) {
        pause(rank, until, id);
        return;
      }
      long millis = Math.min(SLICE_MILLIS, until.remainingMillis());
      if (Descriptors.poll(socket, Descriptors.POLLIN, millis) == 0 && until.passed()) {
        throw AbsentCreator.late(rank, until, id);
      }
      if (Thread.interrupted()) {
        throw new InterruptedException();
      }
    } catch (InterruptedException e) {
      if (!ready) {
        throw e;
      }
      giveUp();
    }
  }

  /**
   * This rank waits no longer. The creator tells the others, unless all were ready: then its
   * verdict is under way, and this rank must not be missing.
   */
  private void giveUp() {
    if (lastLook == null) {
      lastLook = Deadline.afterMillis(LAST_LOOK_MILLIS);
      try {
        UnixSockets.shutdown(socket, UnixSockets.SHUT_WR);
      } catch (LibcException e) {
        LOG.debug("rank {}: the creator closed the connection", rank, e);
      }
    }
  }

  private static void pause(int rank, Deadline deadline, RendezvousId id)
      throws InterruptedException {
    if (deadline.passed()) {
      throw AbsentCreator.late(rank, deadline, id);
    }
    Thread.sleep(PAUSE_MILLIS);
  }
}
