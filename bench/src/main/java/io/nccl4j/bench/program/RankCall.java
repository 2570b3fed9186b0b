package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import org.jspecify.annotations.Nullable;

/**
 * What one rank passes to an operation, which takes of it what it needs.
 *
 * @param communicator the rank
 * @param send what it sends
 * @param recv where it receives
 * @param sizes how many elements, and where
 * @param type of the elements
 * @param op the reduction
 * @param root the root
 * @param stream where the operation is queued
 * @param bare whether buffers that matter only to the root are null on other ranks
 */
public record RankCall(
    Communicator communicator,
    DeviceBuffer send,
    DeviceBuffer recv,
    Sizes sizes,
    DataType type,
    ReduceOp op,
    int root,
    Stream stream,
    boolean bare) {
  /**
   * Elements of the blocks.
   *
   * @param count of each, where all have one size
   * @param sendCounts of what goes to each rank
   * @param sendStarts where these blocks start
   * @param recvCounts of what comes from each rank
   * @param recvStarts where these blocks start
   */
  public record Sizes(
      long count, long[] sendCounts, long[] sendStarts, long[] recvCounts, long[] recvStarts) {
    private static final long[] UNUSED = {};

    /** Blocks of one size. */
    public static Sizes of(long count) {
      return new Sizes(count, UNUSED, UNUSED, UNUSED, UNUSED);
    }
  }

  /** The elements of each block. */
  long count() {
    return sizes.count;
  }

  boolean isRoot() {
    return communicator.rank() == root;
  }

  /** What is sent, where only the root does. */
  @Nullable DeviceBuffer rootSend() {
    return bare && !isRoot() ? null : send;
  }

  /** Where is received, where only the root does. */
  @Nullable DeviceBuffer rootRecv() {
    return bare && !isRoot() ? null : recv;
  }
}
