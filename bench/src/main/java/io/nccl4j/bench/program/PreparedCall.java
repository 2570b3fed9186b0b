package io.nccl4j.bench.program;

/** One operation on one rank, ready to be issued again and again. */
public interface PreparedCall {
  /**
   * Issues a stage; it allocates nothing of its own.
   *
   * @param stage from 0; each needs what the one before has received
   */
  void issue(int stage);
}
