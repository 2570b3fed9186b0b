package io.nccl4j;

/**
 * Another rank died, failed or left before an operation that needs it; the message says which rank
 * and why.
 */
public class PeerFailedException extends NcclException {
  private static final long serialVersionUID = 1L;

  /** The rank that is gone. */
  private final int rank;

  /**
   * A failure of another rank.
   *
   * @param rank the rank that is gone
   * @param message what happened to it
   * @param remedy what the caller can do, or an empty string
   */
  public PeerFailedException(int rank, String message, String remedy) {
    super(Result.REMOTE_ERROR, message, remedy);
    this.rank = rank;
  }

  /** The rank that is gone. */
  public int rank() {
    return rank;
  }
}
