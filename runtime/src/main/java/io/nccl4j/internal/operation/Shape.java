package io.nccl4j.internal.operation;

/** How a buffer of an operation is divided. */
public enum Shape {
  /** There is none. */
  NOTHING,
  /** One block: {@code count} elements. */
  ONE,
  /** A block of {@code count} elements for each rank, in rank order. */
  EACH,
  /** A block for each rank, each with a count and a place of its own. */
  VARYING;

  /** Whether there is a block for each rank. */
  public boolean isMany() {
    return this == EACH || this == VARYING;
  }
}
