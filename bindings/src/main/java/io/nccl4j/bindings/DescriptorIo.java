package io.nccl4j.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/** Bytes to and from descriptors that this process inherited. May block. */
public final class DescriptorIo {
  private DescriptorIo() {}

  /**
   * Reads what there is, at most so many bytes; nothing at the end.
   *
   * @throws LibcException if the call fails
   */
  public static byte[] read(int fd, int most) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment buffer = arena.allocate(most);
      long bytes = Descriptors.read(fd, buffer);
      return Arrays.copyOf(buffer.toArray(ValueLayout.JAVA_BYTE), (int) bytes);
    }
  }

  /**
   * Writes all of it.
   *
   * @throws LibcException if the call fails
   */
  public static void write(int fd, byte[] bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment rest = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
      while (rest.byteSize() > 0) {
        rest = rest.asSlice(Descriptors.write(fd, rest));
      }
    }
  }
}
