package io.nccl4j.conformance;

import io.nccl4j.DataType;

/**
 * One operation with all its circumstances; every rank works from the same value.
 *
 * @param number its place in the list it was generated in
 * @param count elements of one block; the bound of each block where blocks differ
 * @param root the root of rooted operations
 * @param shift elements by which ranges start after a multiple of 64 bytes
 * @param grouped whether the operation is called in a group
 * @param seed where contents and block sizes come from
 */
record Case(
    int number,
    Op op,
    DataType type,
    Reduction reduction,
    int nranks,
    int count,
    int root,
    Placement placement,
    Memory memory,
    Values values,
    int shift,
    boolean grouped,
    long seed) {

  /** What is called. */
  enum Op {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTER_V,
    BROADCAST,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    ALL_GATHER_V,
    ALL_TO_ALL_V,
    GATHER_V,
    SCATTER_V,
    /** Each rank sends to the next and receives from the previous one, in a group. */
    RING,
    /** Each rank sends to every rank, itself included, and receives from each, in a group. */
    EXCHANGE,
    /** Even ranks send, then receive; their odd neighbours do the opposite. */
    PAIRS,
    /** Neighbours both send first, few enough bytes not to need a group. */
    EAGER_PAIRS,
    BARRIER;

    boolean reduces() {
      return compareTo(REDUCE_SCATTER_V) <= 0;
    }

    boolean rooted() {
      return this == REDUCE
          || this == BROADCAST
          || this == GATHER
          || this == SCATTER
          || this == GATHER_V
          || this == SCATTER_V;
    }

    boolean pointToPoint() {
      return compareTo(RING) >= 0 && this != BARRIER;
    }

    /** Whether a block is an n-th of what one rank holds in all. */
    boolean holdsBlockPerRank() {
      return this != ALL_REDUCE && this != REDUCE && this != BROADCAST && !paired() && this != RING;
    }

    boolean paired() {
      return this == PAIRS || this == EAGER_PAIRS;
    }

    /** Whether all ranks receive the same. */
    boolean sameEverywhere() {
      return this == ALL_REDUCE || this == BROADCAST || this == ALL_GATHER;
    }
  }

  /** Reductions, with each way to give a scalar. */
  enum Reduction {
    SUM,
    PROD,
    MIN,
    MAX,
    AVG,
    SCALED,
    SCALED_BY_LONG,
    SCALED_BY_BUFFER;

    boolean scaled() {
      return compareTo(SCALED) >= 0;
    }
  }

  /** Where the ranges lie; in place only where the operation and the rank have such a form. */
  enum Placement {
    SEPARATE,
    ADJACENT,
    IN_PLACE
  }

  /** What the buffers are. */
  enum Memory {
    ALLOCATED,
    WRAPPED_SHARED,
    WRAPPED_AUTO,
    /** Allocated and wrapped ones, in turn by rank. */
    MIXED,
    /** None: arrays of Java, by calls that wait. */
    ARRAYS
  }

  /** What the inputs contain. */
  enum Values {
    /** Few small numbers. */
    SMALL,
    /** Numbers whose sums need rounding. */
    ROUNDING,
    /** Zeros of both signs, infinities, NaN, subnormals and the largest values. */
    SPECIAL,
    /** Any bits. */
    ANY
  }
}
