package io.nccl4j.internal.bootstrap;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Libc;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.machine.ProcessFiles;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part in a rendezvous whose ranks may be on several machines: it connects, joins with
 * what the others need to know of it, shares some more, and says that it is ready; or why not, and
 * then none goes on. Used by one thread at a time; {@link #close} by any.
 */
public final class NetworkMeeting implements AutoCloseable {
  /** How long to wait before the next attempt to connect; doubled up to the longest. */
  private static final long PAUSE_MILLIS = 5;

  private static final long LONGEST_PAUSE_MILLIS = 250;

  /** How much longer than its deadline a rank waits to be told who is missing. */
  private static final long GRACE_MILLIS = 500;

  private static final int HELLO_ANSWER_BYTES = 64;

  /** Parts processes of one machine that are to take each other for other machines. */
  private static final String HOST_VARIABLE = "NCCL4J_HOSTID";

  private final NetworkId id;
  private final int rank;
  private final Deadline deadline;
  private final PacketStream packets;
  private final InetAddress local;
  private final Session session;
  private int nranks = 1;
  private boolean isDecided;

  private NetworkMeeting(NetworkId id, int rank, Deadline deadline, SocketChannel channel)
      throws IOException {
    this.id = id;
    this.rank = rank;
    this.deadline = deadline;
    packets = new PacketStream(channel.socket());
    local = channel.socket().getLocalAddress();
    session = new Session(id.name(), id.secret(), false);
  }

  /**
   * A new id, whose rendezvous this process serves.
   *
   * @param local the address at which others reach this machine
   * @throws SystemErrorException if it cannot listen there
   */
  public static UniqueId createUniqueId(InetAddress local) {
    return NetworkCreator.create(
            new InetSocketAddress(local, 0),
            Deadline.after(CommunicatorConfig.defaults().initTimeout()))
        .toUniqueId();
  }

  /**
   * Connects, as often as it takes: whoever serves the rendezvous may begin later.
   *
   * @param timeout of the whole meeting
   * @throws DeadlineException if nobody serves it in time; the message says what was in the way
   * @throws InvalidUsageException if the secret is wrong
   * @throws InterruptedWaitException if the thread was interrupted; it stays so
   */
  public static NetworkMeeting connect(UniqueId uniqueId, int rank, Duration timeout) {
    return connect(NetworkId.of(uniqueId), rank, Deadline.after(timeout));
  }

  static NetworkMeeting connect(NetworkId id, int rank, Deadline deadline) {
    long pause = PAUSE_MILLIS;
    IOException why = null;
    while (true) {
      try {
        NetworkMeeting meeting = attempt(id, rank, deadline);
        if (meeting != null) {
          return meeting;
        }
        why = new IOException("it does not serve this communicator (yet, or any more)");
      } catch (ClosedByInterruptException e) {
        throw Failure.interrupted(rank, e);
      } catch (SocketTimeoutException e) {
        // The deadline has cut this attempt short: an earlier one may have found out more.
        why =
            why == null ? e : new IOException(e.getMessage() + "; before: " + why.getMessage(), e);
      } catch (IOException e) {
        why = e;
      }
      if (deadline.remainingMillis() <= pause) {
        throw new DeadlineException(
                "rank "
                    + rank
                    + " could not reach the rendezvous at "
                    + id.where()
                    + " within "
                    + deadline
                    + ": "
                    + why.getMessage(),
                "check that rank 0 runs there, and that no firewall is between; init-timeout,"
                    + " NCCL4J_INIT_TIMEOUT allow more time")
            .causedBy(why);
      }
      try {
        Thread.sleep(pause);
      } catch (InterruptedException e) {
        throw Failure.interrupted(rank, e);
      }
      pause = Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
    }
  }

  /** A connection on which both sides have proved to know the secret; null if it is not served. */
  private static @Nullable NetworkMeeting attempt(NetworkId id, int rank, Deadline deadline)
      throws IOException {
    SocketChannel channel = SocketChannel.open();
    boolean greeted = false;
    try {
      int millis = Math.clamp(deadline.remainingMillis(), 1, Integer.MAX_VALUE);
      channel.socket().connect(id.address(), millis);
      NetworkMeeting meeting = new NetworkMeeting(id, rank, deadline, channel);
      greeted = meeting.greet();
      return greeted ? meeting : null;
    } finally {
      if (!greeted) {
        channel.close();
      }
    }
  }

  private boolean greet() throws IOException {
    byte[] own = RendezvousId.random(Session.NONCE_BYTES);
    packets.send(
        Session.plain(
            Session.HELLO,
            ByteBuffer.allocate(Integer.BYTES + 2 * Long.BYTES + own.length)
                .putInt(NetworkId.VERSION)
                .putLong(id.name().getMostSignificantBits())
                .putLong(id.name().getLeastSignificantBits())
                .put(own)
                .array()));
    Session.Packet answer = packets.receive(HELLO_ANSWER_BYTES, deadline);
    if (answer.type() == Session.REFUSED) {
      refused(answer);
      return false;
    }
    session.nonces(own, answer.body());
    if (answer.type() != Session.PROOF
        || answer.body().length != Session.NONCE_BYTES
        || !session.verify(answer)) {
      throw new InvalidUsageException(
          "who listens at " + id.where() + " does not know the secret of the rendezvous",
          "check the address, and that all processes have the same secret");
    }
    packets.send(session.seal(Session.PROOF, new byte[0]));
    return true;
  }

  private void refused(Session.Packet answer) throws IOException {
    byte reason = answer.body().length == 0 ? 0 : answer.body()[0];
    switch (reason) {
      case Session.UNKNOWN -> {}
      case Session.OTHER_VERSION ->
          throw new InvalidUsageException(
              "another version of nccl4j serves the rendezvous at " + id.where(),
              "use the same nccl4j jars in all processes");
      case Session.WRONG_SECRET ->
          throw new InvalidUsageException(
              "the rendezvous at " + id.where() + " has another secret",
              "give all processes the same secret");
      default -> throw new IOException("refused for reason " + reason);
    }
  }

  /** Tells this rendezvous from all others. */
  public UUID name() {
    return id.name();
  }

  /** A secret of all ranks, for one purpose. */
  public byte[] secretFor(String purpose) {
    return Session.hash(id.secret(), purpose);
  }

  /** A unique id that only its ranks can read, or such a one made readable again. */
  public byte[] hide(byte[] uniqueId) {
    return IdBytes.hide(uniqueId, id.secret());
  }

  /**
   * What ranks have in common that can meet at a local socket: the machine and its last start, the
   * network namespace, the user, and the address on the way to the rendezvous, which tells machines
   * apart that were copied while they ran. Without access to the C library it is one process alone.
   */
  public byte[] hostKey(UUID process) {
    String key =
        String.join(
            " ",
            Place.HERE.boot().toString(),
            Integer.toString(Place.HERE.network()),
            ProcessFiles.HERE.ownerNumber().orElse(""),
            local.getHostAddress(),
            Objects.requireNonNullElse(System.getenv(HOST_VARIABLE), ""),
            Libc.isAvailable() && !Place.HERE.boot().equals(Machine.NO_BOOT)
                ? ""
                : process.toString());
    return Session.hash(id.secret(), key);
  }

  /** The address of this machine on the way to the rendezvous. */
  public InetAddress local() {
    return local;
  }

  /**
   * Joins, and waits until all ranks have.
   *
   * @param joiner what all must agree on
   * @param brings what the others need to know of this rank, at most 1024 B
   * @return what each rank brought, in rank order
   * @throws DeadlineException if not all came in time; the message names who came and who did not
   * @throws InvalidArgumentException if the rank is out of range
   * @throws InvalidUsageException if ranks contradict each other, or the id was used before
   * @throws PeerFailedException if a rank died or gave up before all came
   * @throws InterruptedWaitException if the thread was interrupted; it stays so, and none joins
   */
  public List<byte[]> join(Joiner joiner, byte[] brings) {
    joiner.check();
    BytesTable.check(brings);
    nranks = joiner.nranks();
    ByteBuffer body = ByteBuffer.allocate(Seat.MAX_BYTES + brings.length);
    Seat.withoutHeap(joiner).encode(body);
    body.put(brings);
    byte[] seat = new byte[body.position()];
    body.flip().get(seat);
    return exchange(Session.JOIN, seat);
  }

  /** Tells all ranks something more, once, at most 1024 B, and waits until all have done so. */
  public List<byte[]> share(byte[] own) {
    BytesTable.check(own);
    return exchange(Session.SHARE, own);
  }

  private List<byte[]> exchange(byte type, byte[] body) {
    send(type, body);
    ByteBuffer answer = answer();
    if (answer.get() == Answer.COMPLETE) {
      return BytesTable.decode(answer, nranks);
    }
    isDecided = true;
    throw Failure.decode(answer).toException();
  }

  /**
   * Says that this rank has all it needs, and waits until all ranks have said so.
   *
   * @throws NcclException why no rank goes on
   */
  public void agree() {
    send(Session.READY, new byte[0]);
    ByteBuffer answer = answer();
    isDecided = true;
    NetworkCreator.awaitTold(id);
    if (answer.get() != Answer.AGREED) {
      throw Failure.decode(answer).toException();
    }
  }

  /**
   * Says why this rank cannot go on; then none does. What cannot be told is added to the reason.
   */
  public void refuse(Throwable reason) {
    if (!isDecided) {
      isDecided = true;
      try {
        packets.send(session.seal(Session.DECLINE, Failure.refusal(rank, reason).encode()));
      } catch (IOException e) {
        reason.addSuppressed(e);
      }
    }
  }

  private void send(byte type, byte[] body) {
    try {
      packets.send(session.seal(type, body));
    } catch (ClosedByInterruptException e) {
      throw Failure.interrupted(rank, e);
    } catch (IOException e) {
      throw lost(e);
    }
  }

  /** Waits for the next answer, and longer than the deadline only to learn who is missing. */
  private ByteBuffer answer() {
    try {
      try {
        return receive(deadline);
      } catch (SocketTimeoutException e) {
        long waited = deadline.lengthMillis();
        packets.send(
            session.seal(Session.LATE, ByteBuffer.allocate(Long.BYTES).putLong(waited).array()));
        return receive(Deadline.afterMillis(GRACE_MILLIS));
      }
    } catch (SocketTimeoutException e) {
      throw new DeadlineException(
              "rank "
                  + rank
                  + " waited "
                  + deadline
                  + " for the others, and the rendezvous at "
                  + id.where()
                  + " does not answer",
              "look at the process of rank 0 there")
          .causedBy(e);
    } catch (ClosedByInterruptException e) {
      throw Failure.interrupted(rank, e);
    } catch (IOException e) {
      throw lost(e);
    }
  }

  private ByteBuffer receive(Deadline until) throws IOException {
    Session.Packet packet =
        packets.receive(BytesTable.mostBytes(nranks) + Failure.MAX_BYTES, until);
    if (packet.type() == Session.REFUSED) {
      refused(packet);
    }
    if (packet.type() != Session.ANSWER || !session.verify(packet) || packet.body().length == 0) {
      throw new IOException("an answer was changed on its way");
    }
    return ByteBuffer.wrap(packet.body());
  }

  private NcclException lost(IOException e) {
    String what = e instanceof EOFException ? "it ended" : e.getMessage();
    return new PeerFailedException(
            List.of(),
            "rank " + rank + " has lost the rendezvous at " + id.where() + ": " + what,
            "see how the process of rank 0 there ended")
        .causedBy(e);
  }

  // ---- something that all get

  /**
   * Hands out bytes to whoever asks by this id, for as long as ranks may take to join. Who reads
   * along on the network cannot read them.
   */
  public static void handOut(NetworkId id, byte[] value, Duration timeout) {
    NetworkCreator.serve(id, value, Deadline.after(timeout));
  }

  /** What {@link #handOut} gives. */
  public static byte[] fetch(NetworkId id, int rank, Duration timeout) {
    try (NetworkMeeting meeting = connect(id, rank, Deadline.after(timeout))) {
      meeting.send(Session.FETCH, new byte[0]);
      return meeting.session.hidden(meeting.answer().array());
    }
  }

  /** Gives up for all ranks unless all have agreed. */
  @Override
  public void close() {
    try {
      packets.close();
    } catch (IOException e) {
      throw new SystemErrorException("a connection cannot be closed: " + e.getMessage(), "")
          .causedBy(e);
    }
  }
}
