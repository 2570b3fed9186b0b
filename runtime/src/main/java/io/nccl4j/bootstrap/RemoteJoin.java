package io.nccl4j.bootstrap;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.Libc;
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
final class RemoteJoin implements AutoCloseable {
  private static final Logger LOG = LogManager.getLogger(RemoteJoin.class);

  /** An interrupt is seen after that long at most. */
  private static final long SLICE_MILLIS = 4;

  private static final long PAUSE_MILLIS = 2;

  /** How much longer than its deadline a rank waits to be told who is missing. */
  private static final long GRACE_MILLIS = 500;

  /** How long an interrupted rank waits to be told whether it has joined in that moment. */
  private static final long LAST_LOOK_MILLIS = 5;

  /** How long is tried, in the background, to tell the creator that a rank does not come. */
  private static final long DECLINE_MILLIS = 2000;

  private static final int MAX_PACKET_BYTES = Session.HEADER_BYTES + Session.MAX_BODY_BYTES;
  private static final int MAX_ANSWER_BYTES = 1 << 20;
  private static final int[] NO_FDS = {};
  private static final byte[] NO_BYTES = {};

  private final RendezvousId id;
  private final Joiner joiner;
  private final Session session;
  private final int socket;

  /** Descriptors received and not handed on yet. */
  private int[] heapFds = NO_FDS;

  /** Whether the creator counts this rank as one that has come. */
  private boolean joined;

  /** Until when an answer is waited for that is under way; null unless this rank gave up. */
  private @Nullable Deadline lastLook;

  private RemoteJoin(RendezvousId id, Joiner joiner, int socket) {
    this.id = id;
    this.joiner = joiner;
    this.socket = socket;
    session = new Session(id, false);
  }

  /** As {@link Rendezvous#join}. */
  static Membership join(RendezvousId id, Joiner joiner, Deadline deadline) {
    checkReachable(id);
    try {
      while (true) {
        try (RemoteJoin join = new RemoteJoin(id, joiner, connect(id, joiner, deadline))) {
          if (join.greet(deadline)) {
            return join.finish(deadline);
          }
        }
        pause(joiner, deadline, id);
      }
    } catch (InterruptedException e) {
      decline(id, joiner);
      throw Rendezvous.interrupted(joiner.rank(), e);
    } catch (LibcException e) {
      throw Rendezvous.systemError("rank " + joiner.rank() + " cannot join", e);
    }
  }

  /**
   * Tells the creator that a rank does not come, which ends the rendezvous for all; in the
   * background, since the rank waits no longer.
   */
  private static void decline(RendezvousId id, Joiner joiner) {
    Thread.ofPlatform()
        .daemon()
        .name("nccl4j-decline-" + joiner.rank())
        .start(
            () -> {
              Deadline deadline = Deadline.afterMillis(DECLINE_MILLIS);
              try (RemoteJoin join = new RemoteJoin(id, joiner, connect(id, joiner, deadline))) {
                if (join.greet(deadline)) {
                  ByteBuffer seat = ByteBuffer.allocate(Seat.MAX_BYTES);
                  Seat.here(joiner).encode(seat);
                  join.send(
                      join.session.seal(
                          Session.DECLINE, Arrays.copyOf(seat.array(), seat.position())));
                }
              } catch (NcclException | LibcException | InterruptedException e) {
                LOG.debug("rank {} cannot say that it does not come", joiner.rank(), e);
              }
            });
  }

  @Override
  public void close() {
    for (int fd : heapFds) {
      Descriptors.close(fd);
    }
    heapFds = NO_FDS;
    Descriptors.close(socket);
  }

  // ---------------------------------------------------------------- reaching the creator

  private static void checkReachable(RendezvousId id) {
    Place here = Place.HERE;
    Place creator = id.place();
    if (!here.sameMachine(creator)) {
      throw new SystemErrorException(
          "the unique id was created on machine '"
              + creator.host()
              + "' (boot id "
              + creator.boot()
              + "), this is machine '"
              + here.host()
              + "' (boot id "
              + here.boot()
              + ")",
          id.orOld("the host backend joins ranks of one machine; the cuda backend joins machines"));
    }
    if (!here.sameNetwork(creator)) {
      throw new SystemErrorException(
          "the unique id was created in container '"
              + creator.host()
              + "', this is '"
              + here.host()
              + "' in another network namespace",
          id.orOld(
              "run all ranks in one container, or in containers that share the network namespace"));
    }
    if (!id.served()) {
      throw new BackendUnavailableException(
          "process "
              + creator.pid()
              + " that created the unique id has no access to the C library,"
              + " so only its own threads can join",
          "start it with " + Libc.nativeAccessOption() + ", on Linux");
    }
    if (!Libc.isAvailable()) {
      throw new BackendUnavailableException(
          "ranks in several processes need the C library: " + Libc.unavailableReason(), "");
    }
  }

  private static NcclException nobodyServes(RendezvousId id) {
    Place creator = id.place();
    if (!Place.HERE.samePids(creator)) {
      return new SystemErrorException(
          "nobody serves the unique id: its creator, process "
              + creator.pid()
              + " of container '"
              + creator.host()
              + "', is gone, or the id was used before",
          id.orOld("keep the creator alive until all ranks have joined, and use an id once"));
    }
    long started = Place.startOf(creator.pid());
    if (started != 0 && started == creator.started()) {
      return new InvalidUsageException(
          "process "
              + creator.pid()
              + " no longer serves the unique id: it was used before, its rendezvous failed, or no"
              + " rank came by it in time",
          id.orOld("create a new one for each communicator"));
    }
    return new SystemErrorException(
        "process " + creator.pid() + " that created the unique id is gone",
        id.orOld("keep it alive until all ranks have joined"));
  }

  private static int connect(RendezvousId id, Joiner joiner, Deadline deadline)
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
          throw nobodyServes(id).causedBy(e);
        }
        if (e.errno() != Errno.EAGAIN) {
          throw e;
        }
      } catch (RuntimeException e) {
        Descriptors.close(socket);
        throw e;
      }
      pause(joiner, deadline, id);
    }
  }

  // ---------------------------------------------------------------- the conversation

  /** Both sides prove that they know the secret; false if the creator dropped the connection. */
  private boolean greet(Deadline deadline) throws InterruptedException {
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

  private Membership finish(Deadline deadline) throws InterruptedException {
    try {
      return joinAndWait(deadline);
    } catch (NcclException e) {
      if (lastLook != null) {
        throw Rendezvous.interrupted(joiner.rank(), e);
      }
      throw e;
    } finally {
      if (lastLook != null) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private Membership joinAndWait(Deadline deadline) throws InterruptedException {
    ByteBuffer body = ByteBuffer.allocate(Long.BYTES + Seat.MAX_BYTES);
    body.putLong(deadline.remainingMillis());
    Seat.here(joiner).encode(body);
    byte[] join = session.seal(Session.JOIN, Arrays.copyOf(body.array(), body.position()));
    boolean sent = joiner.heapFd() >= 0 ? send(join, joiner.heapFd()) : send(join);
    if (!sent) {
      throw creatorGone();
    }
    joined = true;
    Deadline grace = Deadline.afterMillis(deadline.remainingMillis() + GRACE_MILLIS);
    Answer answer = decode(receiveAnswer(grace));
    List<UUID> peers = answer.processesBut(joiner.process());
    while (heapFds.length < peers.size()) {
      int had = heapFds.length;
      Session.Packet packet = receive(grace);
      if (packet == null) {
        throw creatorGone();
      }
      expectVerified(Session.FDS, packet);
      if (heapFds.length == had || heapFds.length > peers.size()) {
        throw broken("descriptors " + heapFds.length + " of " + peers.size());
      }
    }
    int[] fds = heapFds;
    heapFds = NO_FDS;
    return Rendezvous.membership(answer, peers, fds);
  }

  /** The table, which fits what this rank asked for; throws why the rendezvous failed. */
  private Answer decode(ByteBuffer encoded) {
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
        throw creatorGone();
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

  private NcclException creatorGone() {
    long started = Place.HERE.samePids(id.place()) ? Place.startOf(id.place().pid()) : 0;
    boolean alive = started != 0 && started == id.place().started();
    return new SystemErrorException(
        "process "
            + id.place().pid()
            + ", which created the unique id, "
            + (alive ? "closed the connection" : "died")
            + " before all ranks joined",
        alive ? "look for the cause there, for example its limit of open files" : "");
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
        LOG.debug("rank {}: the creator closed the connection", joiner.rank(), e);
        return false;
      }
      throw e;
    }
  }

  /**
   * The next packet, null if the creator has closed the connection. Its descriptors are added to
   * {@link #heapFds}.
   */
  private Session.@Nullable Packet receive(Deadline deadline) throws InterruptedException {
    while (true) {
      ReceivedMessage message;
      try {
        message =
            UnixSockets.recvmsg(
                socket, MAX_PACKET_BYTES, Creator.FDS_PER_PACKET, UnixSockets.MSG_DONTWAIT);
      } catch (LibcException e) {
        if (e.errno() == Errno.ECONNRESET) {
          LOG.debug("rank {}: the creator closed the connection", joiner.rank(), e);
          return null;
        }
        if (e.errno() != Errno.EAGAIN) {
          throw e;
        }
        awaitReadable(deadline);
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
    Deadline deadline = lastLook == null ? given : lastLook;
    try {
      if (Thread.currentThread().isVirtual()) {
        pause(joiner, deadline, id);
        return;
      }
      long millis = Math.min(SLICE_MILLIS, deadline.remainingMillis());
      if (Descriptors.poll(socket, Descriptors.POLLIN, millis) == 0 && deadline.passed()) {
        throw late(joiner, deadline, id);
      }
      if (Thread.interrupted()) {
        throw new InterruptedException();
      }
    } catch (InterruptedException e) {
      if (!joined) {
        throw e;
      }
      giveUp();
    }
  }

  /**
   * This rank waits no longer. The creator tells the others, unless all had come: then its answer
   * is under way, and who has joined must not be missing.
   */
  private void giveUp() {
    if (lastLook == null) {
      lastLook = Deadline.afterMillis(LAST_LOOK_MILLIS);
      try {
        UnixSockets.shutdown(socket, UnixSockets.SHUT_WR);
      } catch (LibcException e) {
        LOG.debug("rank {}: the creator closed the connection", joiner.rank(), e);
      }
    }
  }

  private static void pause(Joiner joiner, Deadline deadline, RendezvousId id)
      throws InterruptedException {
    if (deadline.passed()) {
      throw late(joiner, deadline, id);
    }
    Thread.sleep(PAUSE_MILLIS);
  }

  private static NcclException late(Joiner joiner, Deadline deadline, RendezvousId id) {
    return new DeadlineException(
        "rank "
            + joiner.rank()
            + " waited "
            + deadline
            + " for process "
            + id.place().pid()
            + ", which created the unique id and does not answer",
        "is it stopped or overloaded?");
  }
}
