package io.nccl4j.internal.bootstrap;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.jspecify.annotations.Nullable;

/**
 * Where the ranks of one communicator meet, on one machine.
 *
 * <p>The creator's process listens on an abstract UNIX socket whose name comes from the id; its
 * secret part never travels. Both sides prove by HMAC-SHA256 over fresh random numbers that they
 * know the secret, and run under the same user, before anything else is read. Strangers, broken
 * connections and garbage cannot end a rendezvous; a rank that was let in and then dies, gives up
 * or contradicts the others does, for all of them at once.
 *
 * <p>Ranks that are threads of the creator's process do not use the socket. It is opened
 * nevertheless, because the creator cannot know where the ranks will run; without the C library it
 * is not, no native call is made, and only threads of this process can join.
 *
 * <p>Threads: any; waiting does not hold up the carrier of a virtual thread.
 */
public final class Rendezvous {
  private static final LocalRegistry REGISTRY = new LocalRegistry();

  private Rendezvous() {}

  /**
   * Creates an id and starts serving its rendezvous, once, in this process: one daemon thread and
   * two descriptors until all ranks have joined or one of them failed. An id by which no rank has
   * come within the default {@code init-timeout} of this process is served no longer.
   *
   * @return 128 bytes; they contain a secret
   * @throws SystemErrorException if the socket cannot be opened
   */
  public static byte[] createUniqueId() {
    RendezvousId id = RendezvousId.create(Libc.isAvailable());
    Gathering gathering = new Gathering();
    if (id.served()) {
      Creator.start(id, gathering, Deadline.after(CommunicatorConfig.defaults().initTimeout()));
    }
    REGISTRY.add(id, gathering);
    return id.toBytes();
  }

  /**
   * Whether the ranks that meet by an id may be on several machines: see {@link NetworkMeeting}.
   */
  public static boolean isOverNetwork(UniqueId id) {
    return NetworkId.isOne(id);
  }

  /**
   * Joins as one rank and waits until all have. They go on when all of them have called {@link
   * Membership#agree}.
   *
   * @param uniqueId as made by {@link #createUniqueId} in whatever process
   * @param joiner what this rank brings
   * @param timeout longest wait; the call may take half a second longer to learn who is missing
   * @return the table of all ranks and descriptors of the other processes' heaps; the caller closes
   *     it
   * @throws DeadlineException if not all came in time; the message names who came and who did not
   * @throws InvalidArgumentException if the rank is out of range, or the bytes are no id of this
   *     library
   * @throws InvalidUsageException if ranks contradict each other, the id was used before, its
   *     secret is wrong, or the creator belongs to another user
   * @throws PeerFailedException if a rank died or gave up before all came
   * @throws SystemErrorException if the creator is gone, or lives on another machine or in another
   *     container, or the system refuses a socket or descriptor
   * @throws BackendUnavailableException if ranks are in several processes and one of them has no
   *     access to the C library
   * @throws InterruptedWaitException if the thread was interrupted; it stays so, and no rank joins
   */
  public static Membership join(UniqueId uniqueId, Joiner joiner, Duration timeout) {
    return join(RendezvousId.of(uniqueId), joiner, Deadline.after(timeout));
  }

  /** Joins by the bytes of an id. */
  static Membership join(byte[] uniqueId, Joiner joiner, Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    return join(RendezvousId.parse(uniqueId), joiner, deadline);
  }

  private static Membership join(RendezvousId id, Joiner joiner, Deadline deadline) {
    joiner.check();
    LocalRegistry.Meeting meeting = REGISTRY.find(id.name());
    if (meeting != null) {
      if (!MessageDigest.isEqual(meeting.id().secret(), id.secret())) {
        throw new InvalidUsageException(
            "the secret of the unique id is wrong", "pass the id on unchanged");
      }
      return joinHere(meeting, joiner, deadline);
    }
    if (id.ownedHere()) {
      throw Failure.used().toException();
    }
    return RemoteJoin.join(id, joiner, deadline);
  }

  private static Membership joinHere(
      LocalRegistry.Meeting meeting, Joiner joiner, Deadline deadline) {
    Gathering gathering = meeting.gathering();
    Seat seat = Seat.here(joiner);
    gathering.retain();
    try {
      boolean shared = meeting.id().served() && joiner.heapFd() >= 0;
      Failure refusal = gathering.admit(seat, shared ? Descriptors.dup(joiner.heapFd()) : -1);
      if (refusal != null) {
        throw refusal.toException();
      }
      Gathering.Outcome outcome = await(gathering, gathering.outcome(), seat, deadline);
      if (outcome.failure() != null) {
        throw outcome.failure().toException();
      }
      Answer answer = outcome.answer();
      if (answer == null) {
        throw new InternalErrorException("a rendezvous ended without an outcome", "");
      }
      List<UUID> peers = answer.processesBut(joiner.process());
      int[] fds = Gathering.duplicates(gathering.heaps(peers));
      return Membership.of(answer, peers, fds, new LocalLink(gathering, seat, deadline));
    } catch (LibcException e) {
      NcclException failure = Failure.ofSystem("rank " + joiner.rank() + " cannot share heaps", e);
      gathering.decline(joiner.rank(), Failure.refusal(joiner.rank(), failure));
      throw failure;
    } finally {
      gathering.release();
    }
  }

  /**
   * Tells the ranks that wait, or will, that this one cannot come, and why: they end at once. What
   * cannot be told is added to the reason.
   *
   * @param uniqueId of the rendezvous
   * @param rank that would have joined
   * @param reason why it cannot
   */
  public static void decline(UniqueId uniqueId, int rank, Throwable reason) {
    Failure refusal = Failure.refusal(rank, reason);
    try {
      RendezvousId id = RendezvousId.of(uniqueId);
      LocalRegistry.Meeting meeting = REGISTRY.find(id.name());
      if (meeting == null) {
        RemoteJoin.decline(id, refusal);
      } else if (MessageDigest.isEqual(meeting.id().secret(), id.secret())) {
        meeting.gathering().decline(rank, refusal);
      }
    } catch (NcclException | LibcException e) {
      reason.addSuppressed(e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      reason.addSuppressed(e);
    }
  }

  /** A rank of the creator's process. */
  private record LocalLink(Gathering gathering, Seat seat, Deadline deadline)
      implements Membership.Link {
    @Override
    public @Nullable Failure agree() {
      gathering.ready(seat.rank());
      return await(gathering, gathering.verdict(), seat, deadline).orElse(null);
    }

    @Override
    public void refuse(Failure reason) {
      gathering.fail(reason);
    }

    @Override
    public boolean isUndecided() {
      return false;
    }

    @Override
    public void close() {
      gathering.fail(Failure.gone(seat, "it gave up"));
    }
  }

  private static <T> T await(
      Gathering gathering, CompletableFuture<T> result, Seat seat, Deadline deadline) {
    try {
      return result.get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      gathering.expire(seat, deadline);
      return result.join();
    } catch (InterruptedException e) {
      gathering.fail(
          new Failure(
              Failure.Kind.PEER,
              seat.rank(),
              seat + " was interrupted before all ranks joined",
              ""));
      T found = result.join();
      if (result != gathering.verdict() || !found.equals(Optional.empty())) {
        throw Failure.interrupted(seat.rank(), e);
      }
      // All were ready in that moment: the others go on, and this rank must not be missing.
      Thread.currentThread().interrupt();
      return found;
    } catch (ExecutionException e) {
      throw (InternalErrorException)
          new InternalErrorException("a rendezvous failed: " + e.getCause(), "").causedBy(e);
    }
  }
}
