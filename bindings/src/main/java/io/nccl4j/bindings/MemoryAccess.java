package io.nccl4j.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Gives addresses that come from native code a size: the only caller of {@code reinterpret}.
 *
 * <p>Nothing here can check that the memory exists. Whoever passes an address answers for it, and
 * for not using the segment after the memory is gone: such an access kills the process.
 */
public final class MemoryAccess {
  private MemoryAccess() {}

  /**
   * A segment over memory that somebody else owns.
   *
   * @param address first byte; must not be 0 unless {@code bytes} is 0
   * @param bytes size in bytes
   * @return a segment in the global scope, accessible by every thread; it owns nothing
   * @throws IllegalArgumentException if {@code bytes} is negative or the address is null
   */
  @SuppressWarnings("restricted")
  public static MemorySegment ofAddress(long address, long bytes) {
    if (bytes < 0 || (address == 0 && bytes != 0)) {
      throw new IllegalArgumentException(
          "no segment of " + bytes + " bytes at address 0x" + Long.toHexString(address));
    }
    return MemorySegment.ofAddress(address).reinterpret(bytes);
  }

  /**
   * All of memory as one segment, in which an address is its own offset. For inner loops that have
   * checked what they touch: an access to memory that is not there kills the process.
   *
   * @return a segment in the global scope; it owns nothing
   */
  @SuppressWarnings("restricted")
  public static MemorySegment everything() {
    return MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
  }

  /**
   * Maps memory for the life of an arena: {@link Memory#mmap} now, {@link Memory#munmap} when the
   * arena closes. Unlike the segment of a plain {@code mmap}, an access after the end throws.
   *
   * <p>The address range is the kernel's choice. Closing a shared arena costs tens of microseconds,
   * so share one among mappings that end together.
   *
   * @param arena owner of the mapping
   * @param bytes size in bytes, more than 0
   * @param protection {@code Memory.PROT_*}
   * @param flags {@code Memory.MAP_*}
   * @param fd file to map, or -1 with {@code MAP_ANONYMOUS}
   * @param offset first byte of the file, a multiple of the page size
   * @return the mapping, in the scope of {@code arena}
   * @throws LibcException if mmap(2) fails
   */
  @SuppressWarnings("restricted")
  public static MemorySegment mapped(
      Arena arena, long bytes, int protection, int flags, int fd, long offset) {
    MemorySegment mapping = Memory.mmap(bytes, protection, flags, fd, offset);
    try {
      return mapping.reinterpret(bytes, arena, Memory::munmap);
    } catch (RuntimeException e) {
      // The arena is closed or belongs to another thread: the mapping has no owner yet.
      Memory.munmap(mapping);
      throw e;
    }
  }
}
