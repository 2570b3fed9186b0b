package io.nccl4j.internal.bootstrap;

import io.nccl4j.InternalErrorException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.Descriptors;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of a rendezvous for one rank: the table of all ranks, and a descriptor for the heap
 * of each other process. With these a rank takes all it needs, and then says that it is ready, or
 * why not: all ranks go on, or none.
 *
 * <p>Every rank has descriptors of its own, also when several ranks share a process. Those that
 * nobody takes are closed by {@link #close}, which gives up for all ranks if nothing was said. Used
 * by one thread at a time.
 */
public final class Membership implements AutoCloseable {
  private final List<Member> members;
  private final long controlOffset;
  private final Map<UUID, Integer> heapFds;
  private final Link link;

  /** The way to the other ranks, until all are ready. */
  interface Link {
    /** Says that this rank is ready, and waits for the verdict: null if all go on. */
    @Nullable Failure agree();

    /** Says why this rank cannot go on, unless all were ready before. */
    void refuse(Failure reason);

    /** Whether this rank was ready, and has not heard the verdict. */
    boolean isUndecided();

    /** The rank has gone on or given up. */
    void close();
  }

  private Membership(
      List<Member> members, long controlOffset, Map<UUID, Integer> heapFds, Link link) {
    this.link = link;
    this.members = List.copyOf(members);
    this.controlOffset = controlOffset;
    this.heapFds = new HashMap<>(heapFds);
  }

  /**
   * What an answer gives to one rank. It takes over the descriptors and the link.
   *
   * @param peers the other processes whose heaps these descriptors are, in the same order
   */
  static Membership of(Answer answer, List<UUID> peers, int[] fds, Link link) {
    Map<UUID, Integer> heaps = new HashMap<>();
    for (int i = 0; i < fds.length; i++) {
      heaps.put(peers.get(i), fds[i]);
    }
    return new Membership(answer.members(), answer.controlOffset(), heaps, link);
  }

  /** All ranks, in rank order. */
  public List<Member> members() {
    return members;
  }

  /** Where in rank 0's heap the communicator's control block lies, in bytes. */
  public long controlOffset() {
    return controlOffset;
  }

  /**
   * The memory file of another process's heap; it is the caller's to close from now on.
   *
   * @param process name of a process other than the own one
   * @return a descriptor with close-on-exec set
   * @throws InternalErrorException if there is none: taken before, closed, or the own process
   */
  public int takeHeapFd(UUID process) {
    Integer fd = heapFds.remove(process);
    if (fd == null) {
      throw new InternalErrorException(
          "no heap descriptor of process " + process + ": it was taken before, or it is not a peer",
          "");
    }
    return fd;
  }

  /**
   * Says that this rank has all it needs, and waits until all ranks have said so. The deadline of
   * the join holds.
   *
   * @throws NcclException why no rank goes on; {@code PeerFailedException} with the reason of a
   *     rank that refused or is gone
   */
  public void agree() {
    Failure failure = link.agree();
    if (failure != null) {
      throw failure.toException();
    }
  }

  /**
   * Whether the other ranks may go on although {@link #agree} threw here: this rank was ready and
   * has lost the creator before it heard the verdict.
   */
  public boolean isUndecided() {
    return link.isUndecided();
  }

  /** Says why this rank cannot go on; then none does. */
  public void refuse(int rank, Throwable reason) {
    link.refuse(Failure.refusal(rank, reason));
  }

  /** Closes the descriptors that were not taken. Closing twice does nothing. */
  @Override
  public void close() {
    link.close();
    for (int fd : heapFds.values()) {
      Descriptors.close(fd);
    }
    heapFds.clear();
  }
}
