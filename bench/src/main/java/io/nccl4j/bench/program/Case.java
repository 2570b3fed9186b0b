package io.nccl4j.bench.program;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;

/**
 * One line of the table: a program at one size.
 *
 * @param program what is measured
 * @param type element type
 * @param op the reduction; programs without one ignore it
 * @param root the root, −1 for programs without one
 * @param nranks ranks of the run
 * @param shape what the size means
 */
public record Case(
    Program program, DataType type, ReduceOp.Kind op, int root, int nranks, Shape shape) {
  /** The case of {@code bytes}, rounded as nccl-tests rounds. */
  public static Case of(
      Program program, DataType type, ReduceOp.Kind op, int root, int nranks, long bytes) {
    Shape shape = program.shape(bytes / type.byteSize(), type.byteSize(), nranks);
    return new Case(program, type, op, root, nranks, shape);
  }

  /** Bytes of a rank's send data. */
  public long sendBytes() {
    return shape.sendCount() * type.byteSize();
  }

  /** Bytes of a rank's received data. */
  public long recvBytes() {
    return shape.recvCount() * type.byteSize();
  }

  /** The size column: the larger of both. */
  public long size() {
    return Math.max(sendBytes(), recvBytes());
  }

  /** Where rank's send data starts, in bytes, when the operation is in place. */
  public long sendInPlaceOffset(int rank) {
    return rank * shape.sendInPlaceOffset() * type.byteSize();
  }

  /** Where rank's received data starts, in bytes, when the operation is in place. */
  public long recvInPlaceOffset(int rank) {
    return rank * shape.recvInPlaceOffset() * type.byteSize();
  }

  /** GB/s as an application sees it, 1 GB = 10⁹ bytes. */
  public double algorithmBandwidth(double seconds) {
    double bytes = program.algorithmBytes(shape, type.byteSize(), nranks);
    return bytes == 0 ? 0 : bytes / 1e9 / seconds;
  }

  /**
   * GB/s per link, if nothing but the links were in the way. With one rank nothing crosses a link:
   * it is what the device moves in its own memory.
   */
  public double busBandwidth(double algorithmBandwidth) {
    return nranks == 1 ? algorithmBandwidth : algorithmBandwidth * program.busFactor(nranks);
  }
}
