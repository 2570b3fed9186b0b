package io.nccl4j.internal.bootstrap;

import io.nccl4j.InvalidArgumentException;
import java.util.UUID;

/**
 * What one rank brings to a rendezvous.
 *
 * @param rank its rank, 0 to {@code nranks - 1}
 * @param nranks number of ranks, the same for all
 * @param process random name of its process, the same for all ranks of that process
 * @param layoutHash hash of everything that the shared memory's layout depends on
 * @param heapFd memory file of its process's heap, or -1 if the heap cannot be shared; it stays the
 *     caller's and may be closed once the join is over
 * @param heapBytes size of that heap in bytes
 * @param restriction why the heap cannot be shared; empty if it can
 * @param controlOffset where in rank 0's heap the communicator's control block lies, in bytes; -1
 *     for all other ranks
 * @param security what protects data between hosts, the same for all ranks; empty on one machine
 */
public record Joiner(
    int rank,
    int nranks,
    UUID process,
    long layoutHash,
    int heapFd,
    long heapBytes,
    String restriction,
    long controlOffset,
    String security) {
  /** Most ranks of a rendezvous. */
  static final int MAX_RANKS = 4096;

  /** A rank of which no more is known than whether its heap can be shared. */
  public Joiner(
      int rank,
      int nranks,
      UUID process,
      long layoutHash,
      int heapFd,
      long heapBytes,
      long controlOffset) {
    this(rank, nranks, process, layoutHash, heapFd, heapBytes, "", controlOffset, "");
  }

  /** The same rank, which will talk to ranks of other hosts. */
  public Joiner withSecurity(String security) {
    return new Joiner(
        rank, nranks, process, layoutHash, heapFd, heapBytes, restriction, controlOffset, security);
  }

  /**
   * Checks what a rank says of itself.
   *
   * @throws InvalidArgumentException if it cannot be right
   */
  void check() {
    if (nranks < 1 || nranks > MAX_RANKS) {
      throw new InvalidArgumentException("nranks is " + nranks, "use 1 to " + MAX_RANKS + " ranks");
    }
    if (rank < 0 || rank >= nranks) {
      throw new InvalidArgumentException(
          "rank is " + rank + " of " + nranks, "use ranks from 0 to " + (nranks - 1));
    }
    if (heapBytes < 0 || (rank == 0) != (controlOffset >= 0)) {
      throw new InvalidArgumentException(
          "rank "
              + rank
              + " has a heap of "
              + heapBytes
              + " B and its control block at "
              + controlOffset,
          "rank 0, and no other, makes the control block");
    }
  }
}
