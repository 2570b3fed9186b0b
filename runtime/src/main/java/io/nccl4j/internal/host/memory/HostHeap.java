package io.nccl4j.internal.host.memory;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Memory;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.machine.ControlGroups;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.memory.Deferral;
import io.nccl4j.internal.memory.RangeAllocator;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * All memory that this process's ranks share with others: one sparse memfd that every peer maps
 * once, or, where native calls are not allowed, one arena per block, which only threads of this
 * process can share.
 *
 * <p>Pages are reserved with fallocate(2) when a block is allocated, because touching an unbacked
 * page of a full file kills with SIGBUS; granules without blocks are given back to the system at
 * once. Freeing may be put off until no rank can touch the block any more. Thread-safe; the file
 * and its mapping live as long as the process.
 */
public final class HostHeap {
  private static final Logger LOG = LogManager.getLogger(HostHeap.class);
  private static final long GRANULE = 2 << 20;
  private static final long PAGE = 4096;
  private static final long GRANULES_PER_LOOK = 16;
  private static final int SKEWS = 61;

  /** Why it cannot be shared with other processes; empty if it can. */
  private final String restriction;

  private final int fd;
  private final long size;
  private final @Nullable MemorySegment mapping;
  private final @Nullable RangeAllocator ranges;
  private final int[] blocksInGranule;
  private final Deferral deferred = new Deferral();
  private final MemoryBook.Booking unused;
  private final ControlGroups groups = ControlGroups.here();
  private long committedBytes;
  private long allocatedBytes;

  /**
   * A piece of the heap: {@code bytes} bytes at {@code offset} of {@code segment}.
   *
   * @param segment the whole mapping, or this block's own
   * @param offset within {@code segment}; for a shared heap also the offset that other processes
   *     use
   * @param reserved bytes taken from the heap, at least {@code bytes}
   * @param arena closes a block that has memory of its own; null for a shared heap
   * @param booking whose it is
   */
  public record Block(
      MemorySegment segment,
      long offset,
      long bytes,
      long reserved,
      @Nullable Arena arena,
      MemoryBook.Booking booking) {}

  private HostHeap(
      int fd,
      long size,
      @Nullable MemorySegment mapping,
      String restriction,
      MemoryBook.Account process) {
    this.restriction = restriction;
    this.unused = process.book(MemoryPurpose.UNUSED, MemoryPlace.SHARED, 0);
    this.fd = fd;
    this.size = size;
    this.mapping = mapping;
    this.blocksInGranule = new int[(int) (size / GRANULE)];
    // Heaps are mapped at aligned addresses. Starting at a random granule keeps equal blocks of
    // different processes from
    // lying a multiple of 256 MiB apart, where some processors' way predictors make every access
    // miss.
    long start = GRANULE * (1 + ThreadLocalRandom.current().nextInt(SKEWS));
    this.ranges = mapping == null ? null : new RangeAllocator(start, size);
  }

  /**
   * The heap of this process: shareable where libc can be called and the system lets it be made,
   * otherwise for threads only.
   *
   * @param process has what is taken from the system and in no block
   */
  static HostHeap create(MemoryBook.Account process) {
    if (!Libc.isAvailable()) {
      return forThreads(Libc.unavailableReason(), process);
    }
    long size = shareableBytes();
    int fd = -1;
    try {
      fd = Memory.memfdCreate("nccl4j-heap", Memory.MFD_CLOEXEC | Memory.MFD_ALLOW_SEALING);
      Memory.ftruncate(fd, size);
      Memory.addSeals(fd, Memory.F_SEAL_SHRINK | Memory.F_SEAL_GROW | Memory.F_SEAL_SEAL);
      return new HostHeap(fd, size, map(fd, size), "", process);
    } catch (LibcException e) {
      if (fd >= 0) {
        Descriptors.close(fd);
      }
      return forThreads(
          "the shared heap of "
              + (size >> 20)
              + " MiB of addresses cannot be created: "
              + e.getMessage()
              + "; check ulimit -v, ulimit -n and the container's limits",
          process);
    }
  }

  private static HostHeap forThreads(String restriction, MemoryBook.Account process) {
    LOG.debug("ranks of other processes cannot be reached: {}", restriction);
    return new HostHeap(-1, 0, null, restriction, process);
  }

  /** Why other processes cannot map it; empty if they can. */
  public String restriction() {
    return restriction;
  }

  /** Maps a heap file of {@code bytes} bytes, this process's or a peer's. */
  public static MemorySegment map(int fd, long bytes) {
    return Memory.mmap(
        bytes,
        Memory.PROT_READ | Memory.PROT_WRITE,
        Memory.MAP_SHARED | Memory.MAP_NORESERVE,
        fd,
        0);
  }

  /**
   * The size of a heap that other processes can map: twice the machine's memory, all of it sparse.
   */
  public static long shareableBytes() {
    return 2 * Machine.memoryBytes() / GRANULE * GRANULE;
  }

  /** Where its blocks lie. */
  public MemoryPlace place() {
    return mapping == null ? MemoryPlace.NATIVE : MemoryPlace.SHARED;
  }

  /** Whether other processes can map it. */
  public boolean isShareable() {
    return mapping != null;
  }

  /** The file, owned by this heap; −1 if it is not shareable. */
  public int fd() {
    return fd;
  }

  /** The whole heap in this address space; it must be shareable. */
  public MemorySegment mapping() {
    return java.util.Objects.requireNonNull(mapping);
  }

  /** Size of the address range in bytes; memory is taken only for blocks. */
  public long size() {
    return size;
  }

  /** Bytes in blocks that were not freed. */
  public synchronized long allocatedBytes() {
    deferred.sweep();
    return allocatedBytes;
  }

  /**
   * Allocates a block that starts at a multiple of 4096 bytes.
   *
   * @throws SystemErrorException if the memory is not there
   */
  public Block allocate(MemoryBook.Account account, MemoryPurpose purpose, long bytes) {
    return allocate(account, purpose, bytes, bytes);
  }

  /**
   * Allocates a block of which only the beginning is reserved: the rest has pages only when and
   * where it is touched, after {@link #populate}. A block for which {@link #isFresh} holds is
   * zeroed.
   *
   * @param reservedBytes how much of it is reserved; all of it unless the block is fresh
   * @throws SystemErrorException if the memory is not there
   */
  public synchronized Block allocate(
      MemoryBook.Account account, MemoryPurpose purpose, long bytes, long reservedBytes) {
    deferred.sweep();
    if (ranges == null || mapping == null) {
      return allocateArena(account, purpose, bytes);
    }
    // A granule between large blocks breaks up power-of-two distances, see the constructor.
    long reserved =
        bytes < GRANULE ? Math.max(PAGE, roundUp(bytes, PAGE)) : roundUp(bytes, GRANULE) + GRANULE;
    long offset = reserved < 0 ? -1 : ranges.allocate(reserved, bytes < GRANULE ? PAGE : GRANULE);
    if (offset < 0) {
      throw new SystemErrorException(
          "cannot allocate "
              + bytes
              + " bytes: the heap of "
              + (size >> 20)
              + " MiB has "
              + (ranges.freeBytes() >> 20)
              + " MiB left, perhaps not in one piece",
          "free buffers, or use less than twice the machine's memory");
    }
    try {
      commit(offset, bytes, isFresh(bytes) ? reservedBytes : bytes);
    } catch (SystemErrorException e) {
      ranges.free(offset, reserved);
      throw e;
    } catch (LibcException e) {
      ranges.free(offset, reserved);
      throw new SystemErrorException(
              "cannot allocate " + bytes + " bytes of shared memory: " + e.getMessage(),
              "free memory, or raise the container's memory limit")
          .causedBy(e);
    }
    allocatedBytes += bytes;
    unused.resize(committedBytes - allocatedBytes);
    MemoryBook.Booking booking = account.book(purpose, place(), bytes);
    return new Block(mapping, offset, bytes, reserved, null, booking);
  }

  /**
   * Refuses to take memory that a control group would kill this process for.
   *
   * @throws SystemErrorException if there is no room for it
   */
  public void requireRoom(long bytes) {
    groups.require(bytes);
  }

  private Block allocateArena(MemoryBook.Account account, MemoryPurpose purpose, long bytes) {
    requireRoom(bytes);
    Arena arena = Arena.ofShared();
    try {
      MemorySegment segment = arena.allocate(bytes, PAGE);
      allocatedBytes += bytes;
      MemoryBook.Booking booking = account.book(purpose, place(), bytes);
      return new Block(segment, 0, bytes, bytes, arena, booking);
    } catch (OutOfMemoryError e) {
      arena.close();
      throw new SystemErrorException(
              "cannot allocate " + bytes + " bytes: " + e.getMessage(), "free memory")
          .causedBy(e);
    }
  }

  /** Whether blocks of this size have granules of their own, which the system zeroes. */
  public static boolean isFresh(long bytes) {
    return bytes >= GRANULE;
  }

  /**
   * Gives pages to what one rank writes to some others in a control block, and back, before they
   * first do: touching it cannot kill then, although it was not reserved. Kernels before 5.14 do
   * not know how, and do it at the first touch.
   *
   * @param pairs how many ranks, from {@code to} on
   * @throws SystemErrorException if the memory is not there
   */
  public void populate(ControlBlock control, int from, int to, int pairs) {
    if (!isShareable() || !isFresh(control.bytes())) {
      return;
    }
    long offset = control.pair(from, to);
    long bytes = control.pair(from, to + pairs) - offset;
    long first = offset & -PAGE;
    long end = roundUp(offset + bytes, PAGE);
    requireRoom(end - first);
    MemorySegment range = control.memory().asSlice(first, end - first);
    int error = Memory.madvise(range, Memory.MADV_POPULATE_WRITE);
    if (error != 0 && error != Errno.EINVAL) {
      throw new SystemErrorException(
          "cannot take " + bytes + " bytes of shared memory: " + Errno.name(error),
          "free memory, or raise the container's memory limit");
    }
  }

  private void commit(long offset, long bytes, long reservedBytes) {
    long first = offset / GRANULE;
    long last = (offset + Math.max(bytes, 1) - 1) / GRANULE;
    long lastReserved = (offset + Math.max(reservedBytes, 1) - 1) / GRANULE;
    if (blocksInGranule[(int) first] == 0 || first < last) {
      requireRoom((lastReserved - first + 1) * GRANULE);
    }
    for (long g = first; g <= last; g++) {
      if (blocksInGranule[(int) g]++ == 0) {
        committedBytes += GRANULE;
        if (g > lastReserved) {
          continue;
        }
        try {
          if ((g - first) % GRANULES_PER_LOOK == GRANULES_PER_LOOK - 1) {
            // Other processes of the group take memory, too, perhaps at this moment.
            requireRoom(Math.min(lastReserved - g + 1, GRANULES_PER_LOOK) * GRANULE);
          }
          Memory.fallocate(fd, 0, g * GRANULE, GRANULE);
        } catch (LibcException | SystemErrorException e) {
          uncommit(first, g);
          throw e;
        }
        collapse(g);
      }
    }
  }

  /**
   * Makes a granule one huge page, if the system lets it: then the first touch of any of its blocks
   * is the last one that a process has to wait for, small blocks and peers included.
   */
  private void collapse(long granule) {
    int ignoredWhereUnsupported =
        Memory.madvise(mapping().asSlice(granule * GRANULE, GRANULE), Memory.MADV_COLLAPSE);
    LOG.trace("collapse of granule {}: {}", granule, ignoredWhereUnsupported);
  }

  private void uncommit(long first, long last) {
    for (long g = first; g <= last; g++) {
      if (--blocksInGranule[(int) g] == 0) {
        Memory.fallocate(
            fd, Memory.FALLOC_FL_PUNCH_HOLE | Memory.FALLOC_FL_KEEP_SIZE, g * GRANULE, GRANULE);
        committedBytes -= GRANULE;
      }
    }
  }

  /** Frees a block that nobody touches any more, once. */
  public synchronized void free(Block block) {
    release(block);
  }

  /** Frees a block, once, now or as soon as {@code safe} says that nobody can touch it any more. */
  public void free(Block block, BooleanSupplier safe) {
    Arena arena = block.arena;
    whenSafe(arena == null ? safe : () -> safe.getAsBoolean() && ends(arena), () -> release(block));
  }

  /** Ends an arena, unless the JDK works with a segment of it that a caller has. */
  private static boolean ends(Arena arena) {
    try {
      arena.close();
      return true;
    } catch (IllegalStateException e) {
      return !arena.scope().isAlive();
    }
  }

  /**
   * Runs {@code action} now, or as soon as {@code safe} is found to be true: at a later call of
   * this heap, or by the ticker.
   */
  public synchronized void whenSafe(BooleanSupplier safe, Runnable action) {
    deferred.add(safe, action);
    deferred.sweep();
  }

  /** Carries out deferred actions that have become safe. */
  public void sweepIfWaiting() {
    if (!deferred.isEmpty()) {
      synchronized (this) {
        deferred.sweep();
      }
    }
  }

  private void release(Block block) {
    allocatedBytes -= block.bytes;
    block.booking.release();
    if (block.arena != null) {
      boolean ended = ends(block.arena);
      assert ended : "only buffers' blocks are lent to callers";
    } else if (ranges != null) {
      uncommit(block.offset / GRANULE, (block.offset + Math.max(block.bytes, 1) - 1) / GRANULE);
      ranges.free(block.offset, block.reserved);
      unused.resize(committedBytes - allocatedBytes);
    }
  }

  private static long roundUp(long value, long unit) {
    return value + unit - 1 & -unit;
  }
}
