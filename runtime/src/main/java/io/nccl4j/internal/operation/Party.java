package io.nccl4j.internal.operation;

/** Which ranks of a communicator take one side of an operation. */
public enum Party {
  /** Every rank. */
  ALL,
  /** The root. */
  ROOT,
  /** The other end of a message. */
  PEER
}
