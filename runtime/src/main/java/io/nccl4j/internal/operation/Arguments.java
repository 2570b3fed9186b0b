package io.nccl4j.internal.operation;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.spi.Scalars;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Checks of what a caller passes, before anything is started. All sizes are in bytes unless they
 * are called counts.
 */
public final class Arguments {
  /** Up to this count no type and number of ranks overflows, so the check needs no division. */
  private static final long SURELY_FITS = 1L << 40;

  private final int rank;
  private final int nranks;
  private final Device device;

  /** The checks of one rank. */
  public Arguments(int rank, int nranks, Device device) {
    this.rank = rank;
    this.nranks = nranks;
    this.device = device;
  }

  /**
   * Checks an operation whose blocks are all as long.
   *
   * @param count elements of a block
   */
  public void equal(
      Operation operation,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long count,
      DataType type,
      @Nullable ReduceOp op,
      int root) {
    checkRoot(operation, root);
    boolean many = operation.sent() == Shape.EACH || operation.received() == Shape.EACH;
    long all = bytes(count, many ? nranks : 1, type, "count", operation);
    long block = count * type.byteSize();
    if (operation.reducing()) {
      reduction(op, type, device, operation);
    }
    long sendBytes = operation.sent() == Shape.EACH ? all : block;
    long recvBytes = operation.received() == Shape.EACH ? all : block;
    long inPlace =
        operation.sent() == Shape.EACH
            ? rank * block
            : operation.received() == Shape.EACH ? -rank * block : 0;
    buffers(operation, send, sendBytes, recv, recvBytes, inPlace, type, root);
  }

  /**
   * Checks an operation in which each block has a count of its own. Displacements that are null
   * although there are counts mean blocks that follow each other.
   *
   * @param own elements of the buffer that is one block, unless that follows from the counts
   * @return what this rank contributes: elements of its own block, or of all blocks that it sends
   */
  public long varying(
      Operation operation,
      @Nullable DeviceBuffer send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      @Nullable DeviceBuffer recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      long own,
      DataType type,
      @Nullable ReduceOp op,
      int root) {
    checkRoot(operation, root);
    boolean common = operation.hasCommonCounts();
    boolean sends = operation.sent() == Shape.VARYING && operation.sends(rank == root);
    boolean receives = operation.received() == Shape.VARYING && operation.receives(rank == root);
    long count = own;
    long sendBytes = 0;
    long recvBytes = 0;
    long sendStart = 0;
    long recvStart = 0;
    long out = own;
    long in = own;
    if (sends) {
      String name = common ? "recvCounts" : "sendCounts";
      long[] counts = counts(sendCounts, name, operation);
      if (!common) {
        counts(sendDisplacements, "sendDisplacements", operation);
      }
      sendBytes = extent(counts, sendDisplacements, type, name, operation);
      sendStart = start(counts, sendDisplacements);
      out = counts[rank];
      count = receives ? sum(counts) : common ? out : own;
    }
    if (receives) {
      long[] counts = counts(recvCounts, "recvCounts", operation);
      long[] displacements = counts(recvDisplacements, "recvDisplacements", operation);
      recvBytes = extent(counts, displacements, type, "recvCounts", operation);
      disjoint(counts, displacements, "receive", operation);
      recvStart = displacements[rank];
      in = counts[rank];
      count = common ? in : count;
    }
    if (operation.sent() == Shape.ONE) {
      sendBytes = bytes(count, 1, type, "sendCount", operation);
    }
    if (operation.received() == Shape.ONE) {
      recvBytes = bytes(count, 1, type, "recvCount", operation);
    }
    if (!common && (sends || receives) && out != in) {
      throw new InvalidArgumentException(
          operation.label() + ": this rank sends " + out + " elements to itself and expects " + in,
          "make "
              + (sends ? "sendCounts[rank]" : "sendCount")
              + " equal "
              + (receives ? "recvCounts[rank]" : "recvCount"));
    }
    if (operation.reducing()) {
      reduction(op, type, device, operation);
    }
    long inPlace = (sendStart - recvStart) * type.byteSize();
    buffers(operation, send, sendBytes, recv, recvBytes, inPlace, type, root);
    return count;
  }

  private void buffers(
      Operation operation,
      @Nullable DeviceBuffer send,
      long sendBytes,
      @Nullable DeviceBuffer recv,
      long recvBytes,
      long inPlace,
      DataType type,
      int root) {
    boolean sends = operation.sent() != Shape.NOTHING && operation.sends(rank == root);
    boolean receives = operation.received() != Shape.NOTHING && operation.receives(rank == root);
    if (sends) {
      buffer(send, sendBytes, type, device, "send", operation);
    }
    if (receives) {
      buffer(recv, recvBytes, type, device, "receive", operation);
      writable(recv, operation);
    }
    if (sends && receives) {
      boolean manyToMany = operation.sent().isMany() && operation.received().isMany();
      overlap(send, sendBytes, recv, recvBytes, manyToMany ? Long.MIN_VALUE : inPlace, operation);
    }
  }

  private void checkRoot(Operation operation, int root) {
    if (operation.isRooted() && (root < 0 || root >= nranks)) {
      throw new InvalidArgumentException(
          operation.label() + ": " + (operation.isCollective() ? "root" : "peer") + " is " + root,
          "the ranks are 0 to " + (nranks - 1));
    }
  }

  /** Where this rank's block starts. */
  private long start(long[] counts, long @Nullable [] displacements) {
    if (displacements != null) {
      return displacements[rank];
    }
    long before = 0;
    for (int k = 0; k < rank; k++) {
      before += counts[k];
    }
    return before;
  }

  private static long sum(long[] counts) {
    long sum = 0;
    for (long count : counts) {
      sum += count;
    }
    return sum;
  }

  /** Throws if something that must be passed is null. */
  public static <T> T present(@Nullable T argument, String name, Operation operation) {
    if (argument == null) {
      throw new InvalidArgumentException(
          operation.label() + ": the " + name + " is null", "pass one");
    }
    return argument;
  }

  /** The bytes of {@code blocks} blocks of {@code count} elements. */
  private static long bytes(
      long count, long blocks, DataType type, String name, Operation operation) {
    if (count < 0) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " is " + count, "pass 0 or more elements");
    }
    if (count > SURELY_FITS && count > Long.MAX_VALUE / blocks / type.byteSize()) {
      throw new InvalidArgumentException(
          operation.label()
              + ": "
              + name
              + " "
              + count
              + " of "
              + type.label()
              + " exceeds 2^63-1 bytes",
          "counts are in elements, not bytes");
    }
    return count * blocks * type.byteSize();
  }

  private static void buffer(
      @Nullable DeviceBuffer buffer,
      long bytes,
      DataType type,
      Device device,
      String name,
      Operation operation) {
    if (buffer == null) {
      throw new InvalidArgumentException(
          operation.label() + ": the " + name + " buffer is null",
          "it may be null only on ranks that do not use it");
    }
    if (buffer.isClosed()) {
      throw new InvalidUsageException(
          operation.label() + ": the " + name + " buffer is closed",
          "keep buffers open until the operation is complete");
    }
    if (buffer.device() != device) {
      throw new InvalidArgumentException(
          operation.label()
              + ": the "
              + name
              + " buffer is on "
              + describe(buffer.device())
              + ", the communicator on "
              + describe(device),
          "allocate it on communicator.device()");
    }
    if (buffer.byteSize() < bytes) {
      throw new InvalidArgumentException(
          operation.label()
              + ": the "
              + name
              + " buffer has "
              + buffer.byteSize()
              + " bytes, the operation needs "
              + bytes,
          "counts are in elements of " + type.label() + " (" + type.byteSize() + " bytes)");
    }
    if ((buffer.address() & type.byteSize() - 1) != 0) {
      throw new InvalidArgumentException(
          operation.label()
              + ": the "
              + name
              + " buffer starts at address 0x"
              + Long.toHexString(buffer.address())
              + ", which is not a multiple of "
              + type.byteSize()
              + " bytes",
          "slice buffers at multiples of the element size");
    }
  }

  private static void writable(@Nullable DeviceBuffer recv, Operation operation) {
    if (Objects.requireNonNull(recv).isReadOnly()) {
      throw new InvalidArgumentException(
          operation.label() + ": the receive buffer wraps a read-only segment",
          "receive into a writable buffer; a read-only one can be sent from");
    }
  }

  /**
   * Refuses overlapping ranges, unless {@code recv} lies {@code inPlaceOffset} bytes behind {@code
   * send}.
   *
   * @param inPlaceOffset the distance that means in-place; {@link Long#MIN_VALUE} if there is no
   *     in-place form
   */
  private static void overlap(
      @Nullable DeviceBuffer send,
      long sendBytes,
      @Nullable DeviceBuffer recv,
      long recvBytes,
      long inPlaceOffset,
      Operation operation) {
    long s = Objects.requireNonNull(send).address();
    long r = Objects.requireNonNull(recv).address();
    boolean empty = sendBytes == 0 || recvBytes == 0;
    if (!empty && s < r + recvBytes && r < s + sendBytes && r - s != inPlaceOffset) {
      throw new InvalidArgumentException(
          operation.label()
              + ": the send buffer ("
              + sendBytes
              + " bytes at 0x"
              + Long.toHexString(s)
              + ") overlaps the receive buffer ("
              + recvBytes
              + " bytes at 0x"
              + Long.toHexString(r)
              + ")",
          inPlaceOffset == Long.MIN_VALUE
              ? "this operation has no in-place form: use separate buffers"
              : "in-place means that receive - send = "
                  + inPlaceOffset
                  + " bytes; otherwise use separate buffers");
    }
  }

  /** The array, which must have an entry of 0 or more for each rank. */
  public long[] counts(long @Nullable [] array, String name, Operation operation) {
    if (array == null) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " is null", "pass one entry per rank");
    }
    if (array.length != nranks) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " has " + array.length + " entries",
          "pass one entry per rank, " + nranks + " in all");
    }
    for (int i = 0; i < nranks; i++) {
      if (array[i] < 0) {
        throw new InvalidArgumentException(
            operation.label() + ": " + name + "[" + i + "] is " + array[i],
            "pass 0 or more elements");
      }
    }
    return array;
  }

  /** The bytes up to the end of the last block, after checking each for overflow. */
  public static long extent(
      long[] counts,
      long @Nullable [] displacements,
      DataType type,
      String name,
      Operation operation) {
    long end = 0;
    long sum = 0;
    for (int i = 0; i < counts.length; i++) {
      long start = displacements == null ? sum : displacements[i];
      if (counts[i] > 0) {
        long last = start + counts[i];
        if (last < 0) {
          throw new InvalidArgumentException(
              operation.label() + ": " + name + " block " + i + " ends beyond 2^63-1 elements",
              "check the displacements");
        }
        end = Math.max(end, last);
        sum = last;
      }
    }
    return bytes(end, 1, type, name, operation);
  }

  private void disjoint(long[] counts, long[] displacements, String name, Operation operation) {
    for (int i = 0; i < nranks; i++) {
      for (int j = 0; j < i; j++) {
        if (counts[i] > 0
            && counts[j] > 0
            && displacements[i] < displacements[j] + counts[j]
            && displacements[j] < displacements[i] + counts[i]) {
          throw new InvalidArgumentException(
              operation.label() + ": " + name + " blocks " + j + " and " + i + " overlap",
              "give each rank's block its own place");
        }
      }
    }
  }

  private static void reduction(
      @Nullable ReduceOp given, DataType type, Device device, Operation operation) {
    ReduceOp op = present(given, "reduction", operation);
    DeviceBuffer scalar = op.deviceScalar();
    if (scalar != null) {
      buffer(scalar, type.byteSize(), type, device, "scalar", operation);
    } else if (op.kind() == ReduceOp.Kind.PRE_MUL_SUM && !Scalars.has(type, op)) {
      throw new InvalidArgumentException(
          operation.label() + ": " + type + " has no scalar " + op.scalar(),
          "scale by an integer that the type can represent, or reduce floats");
    }
  }

  private static String describe(Device device) {
    return device.backend().label() + " device " + device.ordinal();
  }
}
