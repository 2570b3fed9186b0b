package io.nccl4j;

import java.util.Collection;
import java.util.List;

/**
 * Another rank died, failed or left before an operation that needs it was complete; the message
 * says which rank and why.
 */
public class PeerFailedException extends NcclException {
  private static final long serialVersionUID = 1L;

  /** The rank that is gone. */
  private final int rank;

  /**
   * A failure of another rank.
   *
   * @param rank the rank that is gone; −1 if none is known
   * @param message what happened to it
   * @param remedy what the caller can do, or an empty string
   */
  public PeerFailedException(int rank, String message, String remedy) {
    super(Result.REMOTE_ERROR, message, remedy, rank < 0 ? List.of() : List.of(rank));
    this.rank = rank;
  }

  /**
   * A failure of other ranks.
   *
   * @param failedRanks the ranks that are gone
   * @param message what happened to them
   * @param remedy what the caller can do, or an empty string
   */
  public PeerFailedException(Collection<Integer> failedRanks, String message, String remedy) {
    super(Result.REMOTE_ERROR, message, remedy, failedRanks);
    this.rank = failedRanks.stream().min(Integer::compare).orElse(-1);
  }

  /**
   * The rank that is gone, the first of {@link #failedRanks()}: where the failure began, even if
   * this rank learnt of it from another one that failed because of it.
   */
  public int rank() {
    return rank;
  }
}
