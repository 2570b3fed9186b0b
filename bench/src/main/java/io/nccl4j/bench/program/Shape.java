package io.nccl4j.bench.program;

/**
 * How many elements one operation moves, all per rank.
 *
 * @param sendCount elements a rank's send buffer holds
 * @param recvCount elements a rank's receive buffer holds
 * @param count the count argument of the operation
 * @param sendInPlaceOffset in place, rank r's send data starts r times this many elements into the
 *     one buffer
 * @param recvInPlaceOffset likewise for what it receives
 */
public record Shape(
    long sendCount, long recvCount, long count, long sendInPlaceOffset, long recvInPlaceOffset) {
  /**
   * The elements of one rank's block when a size is divided over ranks: rounded down to 16 bytes,
   * as nccl-tests does.
   *
   * @param elements elements of all blocks together
   * @param elementBytes 1, 2, 4 or 8
   */
  public static long block(long elements, int elementBytes, int nranks) {
    return elements / nranks & -(16 / elementBytes);
  }
}
