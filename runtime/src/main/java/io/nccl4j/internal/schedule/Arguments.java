package io.nccl4j.internal.schedule;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.spi.Scalars;
import org.jspecify.annotations.Nullable;

/**
 * Checks of what a caller passes, before anything is started. All sizes are in bytes unless they
 * are called counts.
 */
final class Arguments {
  private Arguments() {}

  static <T> T present(@Nullable T argument, String name, OpKind kind) {
    if (argument == null) {
      throw new InvalidArgumentException(kind.label() + ": " + name + " is null", "pass a " + name);
    }
    return argument;
  }

  /** The bytes of {@code blocks} blocks of {@code count} elements. */
  static long bytes(long count, long blocks, DataType type, String name, OpKind kind) {
    if (count < 0) {
      throw new InvalidArgumentException(
          kind.label() + ": " + name + " is " + count, "pass 0 or more elements");
    }
    if (count > Long.MAX_VALUE / blocks / type.byteSize()) {
      throw new InvalidArgumentException(
          kind.label()
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

  static void rank(int rank, int nranks, String name, OpKind kind) {
    if (rank < 0 || rank >= nranks) {
      throw new InvalidArgumentException(
          kind.label() + ": " + name + " is " + rank, "the ranks are 0 to " + (nranks - 1));
    }
  }

  static void buffer(
      @Nullable DeviceBuffer buffer,
      long bytes,
      DataType type,
      Device device,
      String name,
      OpKind kind) {
    if (buffer == null) {
      throw new InvalidArgumentException(
          kind.label() + ": the " + name + " buffer is null",
          "it may be null only on ranks that do not use it");
    }
    if (buffer.isClosed()) {
      throw new InvalidUsageException(
          kind.label() + ": the " + name + " buffer is closed",
          "keep buffers open until the operation is complete");
    }
    if (buffer.device() != device) {
      throw new InvalidArgumentException(
          kind.label()
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
          kind.label()
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
          kind.label()
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

  /**
   * Refuses overlapping ranges, unless {@code recv} lies {@code inPlaceOffset} bytes behind {@code
   * send}.
   *
   * @param inPlaceOffset the distance that means in-place; {@link Long#MIN_VALUE} if there is no
   *     in-place form
   */
  static void overlap(
      DeviceBuffer send,
      long sendBytes,
      DeviceBuffer recv,
      long recvBytes,
      long inPlaceOffset,
      OpKind kind) {
    long s = send.address();
    long r = recv.address();
    boolean empty = sendBytes == 0 || recvBytes == 0;
    if (!empty && s < r + recvBytes && r < s + sendBytes && r - s != inPlaceOffset) {
      throw new InvalidArgumentException(
          kind.label()
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

  static void counts(long @Nullable [] array, int nranks, String name, OpKind kind) {
    if (array == null) {
      throw new InvalidArgumentException(
          kind.label() + ": " + name + " is null", "pass one entry per rank");
    }
    if (array.length != nranks) {
      throw new InvalidArgumentException(
          kind.label() + ": " + name + " has " + array.length + " entries",
          "pass one entry per rank, " + nranks + " in all");
    }
    for (int i = 0; i < nranks; i++) {
      if (array[i] < 0) {
        throw new InvalidArgumentException(
            kind.label() + ": " + name + "[" + i + "] is " + array[i], "pass 0 or more elements");
      }
    }
  }

  /** The bytes up to the end of the last block, after checking each for overflow. */
  static long extent(
      long[] counts, long @Nullable [] displacements, DataType type, String name, OpKind kind) {
    long end = 0;
    long sum = 0;
    for (int i = 0; i < counts.length; i++) {
      long start = displacements == null ? sum : displacements[i];
      if (counts[i] > 0) {
        long last = start + counts[i];
        if (last < 0) {
          throw new InvalidArgumentException(
              kind.label() + ": " + name + " block " + i + " ends beyond 2^63-1 elements",
              "check the displacements");
        }
        end = Math.max(end, last);
        sum = last;
      }
    }
    return bytes(end, 1, type, name, kind);
  }

  static void disjoint(long[] counts, long[] displacements, String name, OpKind kind) {
    for (int i = 0; i < counts.length; i++) {
      for (int j = 0; j < i; j++) {
        if (counts[i] > 0
            && counts[j] > 0
            && displacements[i] < displacements[j] + counts[j]
            && displacements[j] < displacements[i] + counts[i]) {
          throw new InvalidArgumentException(
              kind.label() + ": " + name + " blocks " + j + " and " + i + " overlap",
              "give each rank's block its own place");
        }
      }
    }
  }

  static void reduction(@Nullable ReduceOp given, DataType type, Device device, OpKind kind) {
    ReduceOp op = present(given, "reduction", kind);
    DeviceBuffer scalar = op.deviceScalar();
    if (scalar != null) {
      buffer(scalar, type.byteSize(), type, device, "scalar", kind);
    } else if (op.kind() == ReduceOp.Kind.PRE_MUL_SUM && !Scalars.has(type, op)) {
      throw new InvalidArgumentException(
          kind.label() + ": " + type + " has no scalar " + op.scalar(),
          "scale by an integer that the type can represent, or reduce floats");
    }
  }

  private static String describe(Device device) {
    return device.backend().label() + " device " + device.ordinal();
  }
}
