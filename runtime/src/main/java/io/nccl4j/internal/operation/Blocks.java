package io.nccl4j.internal.operation;

import org.jspecify.annotations.Nullable;

/**
 * The blocks that a caller passes for one side of an operation, with what its parameters are
 * called.
 *
 * @param countsName the counts' parameter
 * @param counts elements for each rank
 * @param displacementsName the displacements' parameter; empty if blocks follow each other
 * @param displacements where each block starts, in elements
 */
public record Blocks(
    String countsName,
    long @Nullable [] counts,
    String displacementsName,
    long @Nullable [] displacements) {
  /** Blocks of a send buffer. */
  public static Blocks sent(long @Nullable [] counts, long @Nullable [] displacements) {
    return new Blocks("sendCounts", counts, "sendDisplacements", displacements);
  }

  /** Blocks of a receive buffer. */
  public static Blocks received(long @Nullable [] counts, long @Nullable [] displacements) {
    return new Blocks("recvCounts", counts, "recvDisplacements", displacements);
  }

  /** Blocks of a send buffer that follow each other, by what each rank receives. */
  public static Blocks following(long @Nullable [] recvCounts) {
    return new Blocks("recvCounts", recvCounts, "", null);
  }

  boolean areFollowing() {
    return displacementsName.isEmpty();
  }

  /** First element of a block that was checked. */
  long start(int rank) {
    if (displacements != null) {
      return displacements[rank];
    }
    long before = 0;
    for (int k = 0; k < rank; k++) {
      before += count(k);
    }
    return before;
  }

  /** Elements of a block that was checked. */
  long count(int rank) {
    return counts == null ? 0 : counts[rank];
  }
}
