package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.errorOf;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * Memory of Linux: files that live in memory and their seals, mappings, advice to the kernel, the
 * page size.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class Memory {
  /** memfd_create(2): close on exec. */
  public static final int MFD_CLOEXEC = 1;

  /** memfd_create(2): allow seals. */
  public static final int MFD_ALLOW_SEALING = 2;

  /** F_ADD_SEALS: no more seals. */
  public static final int F_SEAL_SEAL = 1;

  /** F_ADD_SEALS: the file cannot get smaller. */
  public static final int F_SEAL_SHRINK = 2;

  /** F_ADD_SEALS: the file cannot grow. */
  public static final int F_SEAL_GROW = 4;

  /** fallocate(2): leave the file's size as it is. */
  public static final int FALLOC_FL_KEEP_SIZE = 1;

  /** fallocate(2): free the range's memory; needs {@link #FALLOC_FL_KEEP_SIZE}. */
  public static final int FALLOC_FL_PUNCH_HOLE = 2;

  /** mmap(2): no access. */
  public static final int PROT_NONE = 0;

  /** mmap(2): readable. */
  public static final int PROT_READ = 1;

  /** mmap(2): writable. */
  public static final int PROT_WRITE = 2;

  /** mmap(2): writes reach the file and other mappings of it. */
  public static final int MAP_SHARED = 0x01;

  /** mmap(2): writes stay in this mapping. */
  public static final int MAP_PRIVATE = 0x02;

  /** mmap(2): at exactly this address, over whatever is there. */
  public static final int MAP_FIXED = 0x10;

  /** mmap(2): no file behind it. */
  public static final int MAP_ANONYMOUS = 0x20;

  /** mmap(2): reserve no swap space. */
  public static final int MAP_NORESERVE = 0x4000;

  /** mmap(2): fault all pages in now. */
  public static final int MAP_POPULATE = 0x8000;

  /** mmap(2): at exactly this address, or fail with EEXIST (Linux 4.17). */
  public static final int MAP_FIXED_NOREPLACE = 0x100000;

  /** madvise(2): drop the pages of the mapping. */
  public static final int MADV_DONTNEED = 4;

  /** madvise(2): fault pages in for writing (Linux 5.14). */
  public static final int MADV_POPULATE_WRITE = 23;

  /** madvise(2): make huge pages of the range now (Linux 6.1). */
  public static final int MADV_COLLAPSE = 25;

  private static final int F_ADD_SEALS = 1033;
  private static final int F_GET_SEALS = 1034;
  private static final int SC_PAGESIZE = 30;

  private Memory() {}

  /**
   * Creates a file that lives in memory (memfd_create(2)). It has no bytes yet.
   *
   * @param name shown in /proc/self/maps; need not be unique
   * @param flags {@code MFD_*}
   * @return a new file descriptor
   * @throws LibcException if the call fails
   */
  public static int memfdCreate(String name, int flags) {
    return (int)
        checked(
            "memfd_create",
            () -> "creating the memory file " + name,
            (arena, errno) ->
                (int) MemfdCreate.HANDLE.invokeExact(errno, arena.allocateFrom(name), flags));
  }

  /**
   * Sets the size of a file (ftruncate(2)). Growing takes no memory: the new range is a hole.
   *
   * @param fd file
   * @param bytes new size in bytes
   * @throws LibcException if the call fails, EPERM if a seal forbids it
   */
  public static void ftruncate(int fd, long bytes) {
    checked(
        "ftruncate",
        () -> "setting the size of fd " + fd + " to " + bytes + " bytes",
        (arena, errno) -> (int) Ftruncate.HANDLE.invokeExact(errno, fd, bytes));
  }

  /**
   * Takes memory or disk space for a range of a file, or gives it back (fallocate(2)).
   *
   * @param fd file
   * @param mode 0 or {@code FALLOC_FL_*}
   * @param offset first byte
   * @param bytes length in bytes, more than 0
   * @throws LibcException if the call fails, ENOSPC if there is no space. A memory cgroup that is
   *     too small does not fail the call: the kernel kills a process of the group
   */
  public static void fallocate(int fd, int mode, long offset, long bytes) {
    checked(
        "fallocate",
        () -> "mode " + mode + " for " + bytes + " bytes at offset " + offset + " of fd " + fd,
        (arena, errno) -> (int) Fallocate.HANDLE.invokeExact(errno, fd, mode, offset, bytes));
  }

  /**
   * Adds seals to a memory file (F_ADD_SEALS in fcntl(2)). Seals cannot be removed.
   *
   * @param fd file made with {@link #MFD_ALLOW_SEALING}
   * @param seals {@code F_SEAL_*}
   * @throws LibcException if the call fails, EPERM if sealing is sealed
   */
  public static void addSeals(int fd, int seals) {
    Descriptors.fcntl(
        fd,
        F_ADD_SEALS,
        seals,
        () -> "adding seals 0x" + Integer.toHexString(seals) + " to fd " + fd);
  }

  /**
   * The seals of a memory file (F_GET_SEALS in fcntl(2)).
   *
   * @param fd memory file
   * @return set of {@code F_SEAL_*}
   * @throws LibcException if the call fails, EINVAL if the file is not one in memory
   */
  public static int getSeals(int fd) {
    return Descriptors.fcntl(fd, F_GET_SEALS, 0, () -> "reading the seals of fd " + fd);
  }

  /**
   * Maps memory at an address of the kernel's choice (mmap(2)).
   *
   * @param bytes size in bytes, more than 0
   * @param protection {@code PROT_*}
   * @param flags {@code MAP_*}
   * @param fd file to map, or -1 with {@link #MAP_ANONYMOUS}
   * @param offset first byte of the file, a multiple of the page size
   * @return the mapping in the global scope; it stays until {@link #munmap}, and an access after
   *     that kills the process, as does an access to a page behind the file's end
   * @throws LibcException if the call fails
   */
  public static MemorySegment mmap(long bytes, int protection, int flags, int fd, long offset) {
    return mmap(0, bytes, protection, flags, fd, offset);
  }

  /**
   * Maps memory at a given address (mmap(2)), such as a part of an earlier mapping.
   *
   * @param address first byte with {@link #MAP_FIXED} or {@link #MAP_FIXED_NOREPLACE}, otherwise a
   *     hint; 0 for the kernel's choice
   * @param bytes size in bytes, more than 0
   * @param protection {@code PROT_*}
   * @param flags {@code MAP_*}
   * @param fd file to map, or -1 with {@link #MAP_ANONYMOUS}
   * @param offset first byte of the file, a multiple of the page size
   * @return the mapping in the global scope, as of {@link #mmap(long, int, int, int, long)}
   * @throws LibcException if the call fails
   */
  public static MemorySegment mmap(
      long address, long bytes, int protection, int flags, int fd, long offset) {
    if (bytes <= 0) {
      throw new IllegalArgumentException("cannot map " + bytes + " bytes");
    }
    long start =
        checked(
            "mmap",
            () -> "mapping " + bytes + " bytes of fd " + fd + " at offset " + offset,
            (arena, errno) ->
                (long)
                    Mmap.HANDLE.invokeExact(errno, address, bytes, protection, flags, fd, offset));
    return MemoryAccess.ofAddress(start, bytes);
  }

  /**
   * Ends a mapping or a part of it (munmap(2)). No thread may use the range afterwards, and no
   * robust mutex in it may be locked.
   *
   * @param mapping the range, starting at a page
   * @throws LibcException if the call fails
   */
  public static void munmap(MemorySegment mapping) {
    long address = mapping.address();
    long bytes = mapping.byteSize();
    checked(
        "munmap",
        () -> "unmapping " + bytes + " bytes at 0x" + Long.toHexString(address),
        (arena, errno) -> (int) Munmap.HANDLE.invokeExact(errno, address, bytes));
  }

  /**
   * Gives advice about a range of memory (madvise(2)). Best effort: returns the error.
   *
   * @param range memory that starts at a page
   * @param advice {@code MADV_*}
   * @return 0, or the error number: EINVAL where the kernel does not know the advice
   */
  public static int madvise(MemorySegment range, int advice) {
    return errorOf(
        (arena, errno) -> (int) Madvise.HANDLE.invokeExact(errno, range, range.byteSize(), advice));
  }

  /**
   * Size of a memory page (sysconf(3)).
   *
   * @return bytes, a power of two: 4096 on x86-64, up to 65536 on aarch64
   * @throws LibcException if the call fails
   */
  public static long pageSize() {
    return checked(
        "sysconf",
        () -> "asking for the page size",
        (arena, errno) -> (long) Sysconf.HANDLE.invokeExact(errno, SC_PAGESIZE));
  }

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

  // int memfd_create(const char *name, unsigned int flags)
  private static final class MemfdCreate {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("memfd_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int ftruncate(int fd, off_t length)
  private static final class Ftruncate {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("ftruncate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG));
  }

  // int fallocate(int fd, int mode, off_t offset, off_t len)
  private static final class Fallocate {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "fallocate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG));
  }

  // void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
  private static final class Mmap {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "mmap",
            FunctionDescriptor.of(
                JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG));
  }

  // int munmap(void *addr, size_t length)
  private static final class Munmap {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("munmap", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));
  }

  // int madvise(void *addr, size_t length, int advice)
  private static final class Madvise {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("madvise", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
  }

  // long sysconf(int name)
  private static final class Sysconf {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sysconf", FunctionDescriptor.of(JAVA_LONG, JAVA_INT));
  }
}
