package io.nccl4j.bootstrap;

import io.nccl4j.InternalErrorException;
import io.nccl4j.bindings.Descriptors;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * The outcome of a rendezvous for one rank: the table of all ranks, and a descriptor for the heap
 * of each other process.
 *
 * <p>Every rank has descriptors of its own, also when several ranks share a process. Those that
 * nobody takes are closed by {@link #close}. Used by one thread at a time.
 */
public final class Membership implements AutoCloseable {
  private final List<Member> members;
  private final long controlOffset;
  private final Map<UUID, Integer> heapFds;

  /** Takes over the descriptors. */
  Membership(List<Member> members, long controlOffset, Map<UUID, Integer> heapFds) {
    this.members = List.copyOf(members);
    this.controlOffset = controlOffset;
    this.heapFds = new HashMap<>(heapFds);
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

  /** Closes the descriptors that were not taken. Closing twice does nothing. */
  @Override
  public void close() {
    for (int fd : heapFds.values()) {
      Descriptors.close(fd);
    }
    heapFds.clear();
  }
}
