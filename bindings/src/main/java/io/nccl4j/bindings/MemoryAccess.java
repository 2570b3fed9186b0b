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
   * The same memory as a segment that cannot be used any more when an arena is closed. The memory
   * itself belongs to somebody else.
   */
  @SuppressWarnings("restricted")
  public static MemorySegment withLife(MemorySegment segment, Arena arena) {
    return segment.reinterpret(arena, null);
  }
}
