package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * The C library of Linux on x86-64 and aarch64: memory files, mappings, processor affinity, UNIX
 * sockets that carry file descriptors, and robust mutexes between processes.
 *
 * <p><b>Absence.</b> Loading this class never fails. Where the library cannot be used, {@link
 * #isAvailable()} is false, {@link #unavailableReason()} says why, and every function throws {@link
 * UnsupportedOperationException} with that reason.
 *
 * <p><b>Errors.</b> A failing function throws {@link LibcException}, unless its description says
 * that it returns an error number ({@link Errno}): those are best-effort requests and the mutex
 * functions, whose errors are decisions to take. A call interrupted by a signal is repeated.
 *
 * <p><b>Threads.</b> All methods may be called by any thread. Blocking ones hold up the carrier of
 * a virtual thread; those that belong to an operating-system thread refuse virtual threads.
 *
 * <p><b>Memory.</b> Segments passed in must be native and stay the caller's. A file descriptor
 * returned is the caller's to {@link #close}; all are created with close-on-exec set if the caller
 * passes the {@code CLOEXEC} flag of the function, and always where there is no such flag. A call
 * that fails leaves no descriptor behind.
 */
public final class Libc {
  /** open(2): read only. */
  public static final int O_RDONLY = 0;

  /** open(2): read and write. */
  public static final int O_RDWR = 2;

  /** open(2): create the file if it is missing. */
  public static final int O_CREAT = 0100;

  /** open(2): fail if the file exists. */
  public static final int O_EXCL = 0200;

  /** open(2), pipe2(2): do not block. */
  public static final int O_NONBLOCK = 04000;

  /** open(2), pipe2(2): close on exec. */
  public static final int O_CLOEXEC = 02000000;

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

  /** madvise(2): use huge pages when pages are faulted in. */
  public static final int MADV_HUGEPAGE = 14;

  /** madvise(2): fault pages in for reading (Linux 5.14). */
  public static final int MADV_POPULATE_READ = 22;

  /** madvise(2): fault pages in for writing (Linux 5.14). */
  public static final int MADV_POPULATE_WRITE = 23;

  /** madvise(2): make huge pages of the range now (Linux 6.1). */
  public static final int MADV_COLLAPSE = 25;

  /** socket(2): a stream of bytes. */
  public static final int SOCK_STREAM = 1;

  /** socket(2): connected, keeps message boundaries. */
  public static final int SOCK_SEQPACKET = 5;

  /** socket(2), accept4(2): do not block. */
  public static final int SOCK_NONBLOCK = 04000;

  /** socket(2), accept4(2): close on exec. */
  public static final int SOCK_CLOEXEC = 02000000;

  /** sendmsg(2), recvmsg(2): fail with EAGAIN rather than block. */
  public static final int MSG_DONTWAIT = 0x40;

  /** recvmsg(2): leave the bytes in the socket. */
  public static final int MSG_PEEK = 0x2;

  /** shutdown(2): no more reading. */
  public static final int SHUT_RD = 0;

  /** shutdown(2): no more writing. */
  public static final int SHUT_WR = 1;

  /** shutdown(2): neither reading nor writing. */
  public static final int SHUT_RDWR = 2;

  /** poll(2): there is data to read, or a connection to accept. */
  public static final int POLLIN = 0x001;

  /** poll(2): writing does not block. */
  public static final int POLLOUT = 0x004;

  /** poll(2), only in results: error condition. */
  public static final int POLLERR = 0x008;

  /** poll(2), only in results: the peer hung up. */
  public static final int POLLHUP = 0x010;

  /** poll(2), only in results: the descriptor is not open. */
  public static final int POLLNVAL = 0x020;

  /** eventfd(2): do not block. */
  public static final int EFD_NONBLOCK = 04000;

  /** eventfd(2): close on exec. */
  public static final int EFD_CLOEXEC = 02000000;

  /** signal(7): end the process at once. */
  public static final int SIGKILL = 9;

  /** signal(7): continue a stopped process. */
  public static final int SIGCONT = 18;

  /** signal(7): stop the process. */
  public static final int SIGSTOP = 19;

  /** Bytes to set aside for one robust mutex; the C library uses the first 40 or 48 of them. */
  public static final long MUTEX_BYTES = 64;

  /** Longest name of an abstract socket address in bytes. */
  public static final int MAX_ABSTRACT_NAME_BYTES = 107;

  /** Most descriptors that one message can carry (unix(7), SCM_MAX_FD). */
  public static final int MAX_FDS_PER_MESSAGE = 253;

  private static final int AF_UNIX = 1;
  private static final int SOL_SOCKET = 1;
  private static final int SO_PEERCRED = 17;
  private static final int SCM_RIGHTS = 1;
  private static final int MSG_CTRUNC = 0x8;
  private static final int MSG_TRUNC = 0x20;
  private static final int MSG_NOSIGNAL = 0x4000;
  private static final int MSG_CMSG_CLOEXEC = 0x40000000;
  private static final int F_DUPFD_CLOEXEC = 1030;
  private static final int F_ADD_SEALS = 1033;
  private static final int F_GET_SEALS = 1034;
  private static final int SC_PAGESIZE = 30;
  private static final int CLOCK_REALTIME = 0;
  private static final int CLOCK_MONOTONIC = 1;
  private static final int PTHREAD_PROCESS_SHARED = 1;
  private static final int PTHREAD_MUTEX_ROBUST = 1;
  private static final int PTHREAD_MUTEX_ERRORCHECK = 2;
  private static final int AT_EMPTY_PATH = 0x1000;
  private static final int STATX_BASIC_STATS = 0x7ff;
  private static final int RTLD_LAZY = 1;
  private static final long NANOS_PER_SECOND = 1_000_000_000L;
  private static final long NANOS_PER_MILLI = 1_000_000L;

  private static final long MAX_MILLIS = Long.MAX_VALUE / NANOS_PER_MILLI;
  private static final int ERROR_TEXT_BYTES = 256;
  private static final int MAX_DLERROR_BYTES = 4096;
  private static final int[] NO_FDS = {};

  /** System calls that older C libraries have no function for. */
  private static final long SYS_GETTID =
      System.getProperty("os.arch", "").equals("aarch64") ? 178 : 186;

  private static final long SYS_PIDFD_OPEN = 434;

  /** Size of the processor set passed to the kernel: 8192 processors, Linux's largest limit. */
  private static final long CPU_SET_BYTES = 1024;

  /** All functions that the class cannot do without. */
  private static final List<String> REQUIRED =
      List.of(
          "memfd_create",
          "ftruncate",
          "fallocate",
          "fcntl",
          "mmap",
          "munmap",
          "madvise",
          "mlock",
          "open",
          "close",
          "read",
          "write",
          "statx",
          "pipe2",
          "eventfd",
          "sched_getaffinity",
          "sched_setaffinity",
          "sched_getcpu",
          "getpid",
          "getuid",
          "sysconf",
          "kill",
          "syscall",
          "socket",
          "socketpair",
          "bind",
          "connect",
          "listen",
          "accept4",
          "poll",
          "sendmsg",
          "recvmsg",
          "getsockopt",
          "shutdown",
          "pthread_mutexattr_init",
          "pthread_mutexattr_setpshared",
          "pthread_mutexattr_setrobust",
          "pthread_mutexattr_settype",
          "pthread_mutexattr_destroy",
          "pthread_mutex_init",
          "pthread_mutex_lock",
          "pthread_mutex_trylock",
          "pthread_mutex_timedlock",
          "pthread_mutex_unlock",
          "pthread_mutex_consistent",
          "clock_gettime");

  private static final LibcBinder BINDER =
      new LibcBinder(
          System.getProperty("os.name", ""), System.getProperty("os.arch", ""), REQUIRED);

  private static final StructLayout CALL_STATE = BINDER.callState();
  private static final long ERRNO_OFFSET = BINDER.errnoOffset();

  /** Why the functions cannot be called, or null. */
  private static final String UNAVAILABLE_REASON = BINDER.reason();

  private Libc() {}

  // ---------------------------------------------------------------- availability

  /**
   * Whether the functions of this class can be called in this process.
   *
   * @return false outside Linux on x86-64 and aarch64, without native access, or with a C library
   *     that is too old
   */
  public static boolean isAvailable() {
    return UNAVAILABLE_REASON == null;
  }

  /**
   * Why {@link #isAvailable()} is false.
   *
   * @return the obstacle and, where there is one, the remedy; empty if nothing is wrong
   */
  public static String unavailableReason() {
    return UNAVAILABLE_REASON == null ? "" : UNAVAILABLE_REASON;
  }

  // ---------------------------------------------------------------- memory

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
    checked(
        "fcntl",
        () -> "adding seals 0x" + Integer.toHexString(seals) + " to fd " + fd,
        (arena, errno) -> (int) Fcntl.HANDLE.invokeExact(errno, fd, F_ADD_SEALS, seals));
  }

  /**
   * The seals of a memory file (F_GET_SEALS in fcntl(2)).
   *
   * @param fd memory file
   * @return set of {@code F_SEAL_*}
   * @throws LibcException if the call fails, EINVAL if the file is not one in memory
   */
  public static int getSeals(int fd) {
    return (int)
        checked(
            "fcntl",
            () -> "reading the seals of fd " + fd,
            (arena, errno) -> (int) Fcntl.HANDLE.invokeExact(errno, fd, F_GET_SEALS, 0));
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
   * Keeps a range of memory from being swapped out (mlock(2)). Best effort: returns the error.
   *
   * @param range memory
   * @return 0, or the error number: ENOMEM where the limit for locked memory is too small
   */
  public static int mlock(MemorySegment range) {
    return errorOf(
        (arena, errno) -> (int) Mlock.HANDLE.invokeExact(errno, range, range.byteSize()));
  }

  // ---------------------------------------------------------------- files

  /**
   * Opens a file (open(2)).
   *
   * @param path file name
   * @param flags {@code O_*}; pass {@link #O_CLOEXEC}
   * @param mode permission bits for a file that {@link #O_CREAT} creates
   * @return a new file descriptor
   * @throws LibcException if the call fails
   */
  public static int open(String path, int flags, int mode) {
    return (int)
        checked(
            "open",
            () -> "opening " + path,
            (arena, errno) ->
                (int) Open.HANDLE.invokeExact(errno, arena.allocateFrom(path), flags, mode));
  }

  /**
   * Closes a file descriptor (close(2)). It is free for reuse afterwards even if this throws.
   *
   * @param fd descriptor
   * @throws LibcException if the call fails, EBADF if the descriptor is not open
   */
  public static void close(int fd) {
    int error = tryClose(fd);
    // Linux has released the descriptor when it reports EINTR.
    if (error != 0 && error != Errno.EINTR) {
      throw failure("close", error, "closing fd " + fd);
    }
  }

  /**
   * A second descriptor for the same open file (F_DUPFD_CLOEXEC in fcntl(2)); close on exec is set.
   *
   * @param fd descriptor
   * @return a new descriptor
   * @throws LibcException if the call fails
   */
  public static int dup(int fd) {
    return (int)
        checked(
            "fcntl",
            () -> "duplicating fd " + fd,
            (arena, errno) -> (int) Fcntl.HANDLE.invokeExact(errno, fd, F_DUPFD_CLOEXEC, 0));
  }

  /**
   * Reads from a descriptor (read(2)). May block.
   *
   * @param fd descriptor
   * @param buffer native memory to fill
   * @return bytes read, 0 at the end, less than asked for if there is no more at the moment
   * @throws LibcException if the call fails, EAGAIN if a non-blocking descriptor has nothing
   */
  public static long read(int fd, MemorySegment buffer) {
    return checked(
        "read",
        () -> "reading up to " + buffer.byteSize() + " bytes from fd " + fd,
        (arena, errno) -> (long) Read.HANDLE.invokeExact(errno, fd, buffer, buffer.byteSize()));
  }

  /**
   * Writes to a descriptor (write(2)). May block. A pipe whose reader is gone gives EPIPE: the Java
   * virtual machine ignores SIGPIPE.
   *
   * @param fd descriptor
   * @param bytes native memory to write
   * @return bytes written, possibly fewer than given
   * @throws LibcException if the call fails, EAGAIN if a non-blocking descriptor has no room
   */
  public static long write(int fd, MemorySegment bytes) {
    return checked(
        "write",
        () -> "writing " + bytes.byteSize() + " bytes to fd " + fd,
        (arena, errno) -> (long) Write.HANDLE.invokeExact(errno, fd, bytes, bytes.byteSize()));
  }

  /**
   * Size and identity of an open file (fstat(2), by statx(2)).
   *
   * @param fd descriptor
   * @return what the kernel says now
   * @throws LibcException if the call fails
   */
  public static FileStatus fstat(int fd) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment status = arena.allocate(LibcLayouts.STATX);
      checked(
          "statx",
          () -> "reading the status of fd " + fd,
          (callArena, errno) ->
              (int)
                  Statx.HANDLE.invokeExact(
                      errno,
                      fd,
                      callArena.allocateFrom(""),
                      AT_EMPTY_PATH,
                      STATX_BASIC_STATS,
                      status));
      return new FileStatus(
          status.get(JAVA_LONG, LibcLayouts.STATX_SIZE),
          status.get(JAVA_LONG, LibcLayouts.STATX_BLOCKS) * LibcLayouts.BLOCK_BYTES,
          status.get(JAVA_LONG, LibcLayouts.STATX_INO),
          (long) status.get(JAVA_INT, LibcLayouts.STATX_DEV_MAJOR) << Integer.SIZE
              | Integer.toUnsignedLong(status.get(JAVA_INT, LibcLayouts.STATX_DEV_MINOR)));
    }
  }

  /**
   * A pipe (pipe2(2)).
   *
   * @param flags {@link #O_CLOEXEC}, {@link #O_NONBLOCK}
   * @return two new descriptors: the read end, the write end
   * @throws LibcException if the call fails
   */
  public static int[] pipe2(int flags) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment pair = arena.allocate(JAVA_INT, 2);
      checked(
          "pipe2",
          () -> "creating a pipe",
          (callArena, errno) -> (int) Pipe2.HANDLE.invokeExact(errno, pair, flags));
      return pair.toArray(JAVA_INT);
    }
  }

  /**
   * A counter to wake up a thread in {@link #poll} (eventfd(2)).
   *
   * @param initialValue first value, unsigned
   * @param flags {@link #EFD_CLOEXEC}, {@link #EFD_NONBLOCK}
   * @return a new file descriptor
   * @throws LibcException if the call fails
   */
  public static int eventfd(int initialValue, int flags) {
    return (int)
        checked(
            "eventfd",
            () -> "creating an event counter",
            (arena, errno) -> (int) Eventfd.HANDLE.invokeExact(errno, initialValue, flags));
  }

  /**
   * Adds to an event counter, which makes it readable (eventfd(2)).
   *
   * @param fd event counter
   * @param value what to add, more than 0
   * @throws LibcException if the call fails
   */
  public static void eventfdWrite(int fd, long value) {
    try (Arena arena = Arena.ofConfined()) {
      write(fd, arena.allocateFrom(JAVA_LONG, value));
    }
  }

  /**
   * Takes the value of an event counter and sets it to 0 (eventfd(2)). Blocks while it is 0.
   *
   * @param fd event counter
   * @return the value
   * @throws LibcException if the call fails, EAGAIN if a non-blocking counter is 0
   */
  public static long eventfdRead(int fd) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(JAVA_LONG);
      read(fd, value);
      return value.get(JAVA_LONG, 0);
    }
  }

  // ---------------------------------------------------------------- processors and processes

  /**
   * The processors that the calling thread may run on (sched_getaffinity(2)).
   *
   * @return numbers of the processors; in a virtual thread those of its carrier
   * @throws LibcException if the call fails
   */
  public static BitSet schedGetaffinity() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment set = arena.allocate(CPU_SET_BYTES, Long.BYTES);
      checked(
          "sched_getaffinity",
          () -> "reading the processors of the calling thread",
          (callArena, errno) ->
              (int) SchedGetaffinity.HANDLE.invokeExact(errno, 0, CPU_SET_BYTES, set));
      return BitSet.valueOf(set.toArray(JAVA_LONG));
    }
  }

  /**
   * Restricts the calling thread to some processors (sched_setaffinity(2)). Threads that it starts
   * later inherit the restriction.
   *
   * @param processors numbers of the processors
   * @throws LibcException if the call fails, EINVAL if none of them may be used
   * @throws IllegalStateException in a virtual thread, whose carrier serves others
   */
  public static void schedSetaffinity(BitSet processors) {
    requirePlatformThread("sched_setaffinity");
    if (processors.length() > CPU_SET_BYTES * Byte.SIZE) {
      throw new IllegalArgumentException("no processor " + (processors.length() - 1));
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment set = arena.allocate(CPU_SET_BYTES, Long.BYTES);
      byte[] bits = processors.toByteArray();
      MemorySegment.copy(bits, 0, set, JAVA_BYTE, 0, bits.length);
      checked(
          "sched_setaffinity",
          () -> "restricting the calling thread to the processors " + processors,
          (callArena, errno) ->
              (int) SchedSetaffinity.HANDLE.invokeExact(errno, 0, CPU_SET_BYTES, set));
    }
  }

  /**
   * The processor that the calling thread runs on right now (sched_getcpu(3)).
   *
   * @return its number
   * @throws LibcException if the call fails
   */
  public static int schedGetcpu() {
    return (int)
        checked(
            "sched_getcpu",
            () -> "asking for the current processor",
            (arena, errno) -> (int) SchedGetcpu.HANDLE.invokeExact(errno));
  }

  /**
   * The number of this process in its own PID namespace (getpid(2)).
   *
   * @return process id
   */
  public static int getpid() {
    return (int) invoke((arena, errno) -> (int) Getpid.HANDLE.invokeExact());
  }

  /**
   * The number of the calling operating-system thread (gettid(2)).
   *
   * @return thread id; in a virtual thread that of its carrier
   */
  public static int gettid() {
    return (int)
        checked(
            "gettid",
            () -> "asking for the thread id",
            (arena, errno) -> (long) Syscall.HANDLE.invokeExact(errno, SYS_GETTID, 0L, 0L));
  }

  /**
   * The real user of this process (getuid(2)).
   *
   * @return user id, an unsigned number
   */
  public static int getuid() {
    // An id above 2^31 is negative here and no error: mask it on the way.
    return (int)
        invoke((arena, errno) -> Integer.toUnsignedLong((int) Getuid.HANDLE.invokeExact()));
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

  /**
   * Sends a signal to one process (kill(2)).
   *
   * @param pid process id, more than 0: process groups are refused
   * @param signal {@code SIG*}, or 0 to send none and only check
   * @return 0, or the error number: ESRCH if there is no such process, EPERM if it exists and may
   *     not be signalled. A process that has ended and was not waited for still exists
   */
  public static int kill(int pid, int signal) {
    if (pid <= 0) {
      throw new IllegalArgumentException("not the id of one process: " + pid);
    }
    return errorOf((arena, errno) -> (int) Kill.HANDLE.invokeExact(errno, pid, signal));
  }

  /**
   * Whether a process exists in this PID namespace (signal 0 of kill(2)).
   *
   * @param pid process id, more than 0
   * @return false if there is no such process; the number may have been given to another one
   */
  public static boolean processExists(int pid) {
    return kill(pid, 0) != Errno.ESRCH;
  }

  /**
   * A descriptor that refers to a process and becomes readable when it ends (pidfd_open(2)).
   *
   * @param pid process id
   * @return a new descriptor with close-on-exec set
   * @throws LibcException if the call fails, ESRCH if there is no such process, ENOSYS before Linux
   *     5.3, EPERM where a sandbox forbids the call
   */
  public static int pidfdOpen(int pid) {
    return (int)
        checked(
            "pidfd_open",
            () -> "opening process " + pid,
            (arena, errno) ->
                (long) Syscall.HANDLE.invokeExact(errno, SYS_PIDFD_OPEN, (long) pid, 0L));
  }

  // ---------------------------------------------------------------- UNIX sockets

  /**
   * A UNIX socket (socket(2), unix(7)).
   *
   * @param type {@link #SOCK_STREAM} or {@link #SOCK_SEQPACKET} with {@link #SOCK_CLOEXEC} and
   *     possibly {@link #SOCK_NONBLOCK}
   * @return a new descriptor
   * @throws LibcException if the call fails
   */
  public static int socket(int type) {
    return (int)
        checked(
            "socket",
            () -> "creating a UNIX socket of type 0x" + Integer.toHexString(type),
            (arena, errno) -> (int) Socket.HANDLE.invokeExact(errno, AF_UNIX, type, 0));
  }

  /**
   * Two UNIX sockets connected to each other (socketpair(2)).
   *
   * @param type as for {@link #socket}
   * @return two new descriptors
   * @throws LibcException if the call fails
   */
  public static int[] socketpair(int type) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment pair = arena.allocate(JAVA_INT, 2);
      checked(
          "socketpair",
          () -> "creating a pair of UNIX sockets of type 0x" + Integer.toHexString(type),
          (callArena, errno) -> (int) Socketpair.HANDLE.invokeExact(errno, AF_UNIX, type, 0, pair));
      return pair.toArray(JAVA_INT);
    }
  }

  /**
   * Gives a socket a name in the abstract namespace (bind(2), unix(7)). The name belongs to the
   * network namespace, needs no file and vanishes with the socket. Every user of the machine can
   * connect: check {@link #peerCredentials}.
   *
   * @param socket descriptor
   * @param name 1 to {@link #MAX_ABSTRACT_NAME_BYTES} bytes of any value
   * @throws LibcException if the call fails, EADDRINUSE if the name is taken
   */
  public static void bindAbstract(int socket, byte[] name) {
    byte[] address = abstractAddress(name);
    bind(socket, address, () -> "the abstract name " + printable(name));
  }

  /**
   * Gives a socket a name in the file system (bind(2)). The file stays when the socket is closed.
   *
   * @param socket descriptor
   * @param path file to create, at most 107 bytes long
   * @throws LibcException if the call fails, EADDRINUSE if the file exists
   */
  public static void bindPath(int socket, Path path) {
    bind(socket, pathAddress(path), path::toString);
  }

  /**
   * Connects to an abstract name (connect(2)). Blocks while the listener's queue is full.
   *
   * @param socket descriptor
   * @param name as given to {@link #bindAbstract}
   * @throws LibcException if the call fails, ECONNREFUSED if nobody listens there
   */
  public static void connectAbstract(int socket, byte[] name) {
    byte[] address = abstractAddress(name);
    connect(socket, address, () -> "the abstract name " + printable(name));
  }

  /**
   * Connects to a socket in the file system (connect(2)). Blocks while the listener's queue is
   * full.
   *
   * @param socket descriptor
   * @param path as given to {@link #bindPath}
   * @throws LibcException if the call fails, ECONNREFUSED if nobody listens, ENOENT if there is no
   *     such file
   */
  public static void connectPath(int socket, Path path) {
    connect(socket, pathAddress(path), path::toString);
  }

  /**
   * Lets a named socket accept connections (listen(2)).
   *
   * @param socket descriptor
   * @param backlog connections that may wait to be accepted
   * @throws LibcException if the call fails
   */
  public static void listen(int socket, int backlog) {
    checked(
        "listen",
        () -> "listening on fd " + socket,
        (arena, errno) -> (int) Listen.HANDLE.invokeExact(errno, socket, backlog));
  }

  /**
   * Accepts a connection (accept4(2)). Blocks until there is one; {@link #poll} first for a limit.
   *
   * @param socket listening descriptor
   * @param flags {@link #SOCK_CLOEXEC}, {@link #SOCK_NONBLOCK}
   * @return a new descriptor for the connection
   * @throws LibcException if the call fails, EAGAIN if a non-blocking socket has no connection
   */
  public static int accept4(int socket, int flags) {
    return (int)
        checked(
            "accept4",
            () -> "accepting a connection on fd " + socket,
            (arena, errno) ->
                (int)
                    Accept4.HANDLE.invokeExact(
                        errno, socket, MemorySegment.NULL, MemorySegment.NULL, flags));
  }

  /**
   * Waits until one of several descriptors is ready (poll(2)).
   *
   * @param fds descriptors; negative ones are left out
   * @param events per descriptor what to wait for: {@link #POLLIN}, {@link #POLLOUT}
   * @param results per descriptor what is ready, with {@link #POLLERR}, {@link #POLLHUP} and {@link
   *     #POLLNVAL} in addition; written by this call
   * @param timeoutMillis longest wait in milliseconds; 0 only looks, negative waits for ever
   * @return number of descriptors that are ready, 0 after the time is up
   * @throws LibcException if the call fails
   */
  public static int poll(int[] fds, int[] events, int[] results, long timeoutMillis) {
    if (events.length != fds.length || results.length != fds.length) {
      throw new IllegalArgumentException(
          fds.length
              + " descriptors, "
              + events.length
              + " events, "
              + results.length
              + " results");
    }
    boolean bounded = timeoutMillis >= 0;
    // At most 292 years, so that the sum below cannot overflow.
    long timeoutNanos = bounded ? Math.min(timeoutMillis, MAX_MILLIS) * NANOS_PER_MILLI : 0;
    long start = System.nanoTime();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment set = arena.allocate(LibcLayouts.POLLFD, Math.max(1, fds.length));
      for (int i = 0; i < fds.length; i++) {
        long at = i * LibcLayouts.POLLFD.byteSize();
        set.set(JAVA_INT, at + LibcLayouts.POLLFD_FD, fds[i]);
        set.set(JAVA_SHORT, at + LibcLayouts.POLLFD_EVENTS, (short) events[i]);
      }
      long remaining = timeoutNanos;
      while (true) {
        int wait = bounded ? millisRoundedUp(remaining) : -1;
        long ready =
            invokeOnce(
                (callArena, errno) ->
                    (int) Poll.HANDLE.invokeExact(errno, set, (long) fds.length, wait));
        if (ready < 0 && ready != -Errno.EINTR) {
          throw failure("poll", (int) -ready, "waiting for the fds " + Arrays.toString(fds));
        }
        remaining = timeoutNanos - (System.nanoTime() - start);
        if (ready > 0 || (bounded && remaining <= 0)) {
          for (int i = 0; i < fds.length; i++) {
            long at = i * LibcLayouts.POLLFD.byteSize();
            results[i] = ready > 0 ? set.get(JAVA_SHORT, at + LibcLayouts.POLLFD_REVENTS) : 0;
          }
          return (int) Math.max(0, ready);
        }
      }
    }
  }

  /**
   * Waits until one descriptor is ready (poll(2)).
   *
   * @param fd descriptor
   * @param events {@link #POLLIN}, {@link #POLLOUT}
   * @param timeoutMillis as for {@link #poll(int[], int[], int[], long)}
   * @return what is ready, 0 after the time is up
   * @throws LibcException if the call fails
   */
  public static int poll(int fd, int events, long timeoutMillis) {
    int[] results = new int[1];
    poll(new int[] {fd}, new int[] {events}, results, timeoutMillis);
    return results[0];
  }

  /**
   * Sends bytes and descriptors in one message (sendmsg(2) with SCM_RIGHTS). Blocks while the
   * socket's buffer is full. Never raises SIGPIPE.
   *
   * @param socket connected descriptor
   * @param bytes holds the bytes to send
   * @param offset first of them
   * @param length number of them; at least 1 if there are descriptors
   * @param fds descriptors of which the receiver gets duplicates; they stay the caller's
   * @param flags 0 or {@link #MSG_DONTWAIT}
   * @return bytes sent, on a stream possibly fewer than {@code length}; the descriptors went with
   *     the first of them
   * @throws LibcException if the call fails, EPIPE or ECONNRESET if the peer is gone
   */
  public static int sendmsg(
      int socket, byte[] bytes, int offset, int length, int[] fds, int flags) {
    Objects.checkFromIndexSize(offset, length, bytes.length);
    if (fds.length > MAX_FDS_PER_MESSAGE || (fds.length > 0 && length == 0)) {
      throw new IllegalArgumentException(
          "one message of at least 1 byte carries up to "
              + MAX_FDS_PER_MESSAGE
              + " descriptors, not "
              + fds.length
              + " with "
              + length
              + " bytes");
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment payload = arena.allocate(Math.max(1, length));
      MemorySegment.copy(bytes, offset, payload, JAVA_BYTE, 0, length);
      MemorySegment control = controlBuffer(arena, fds.length);
      if (fds.length > 0) {
        control.set(JAVA_LONG, LibcLayouts.CMSG_LEN, LibcLayouts.controlLength(fds.length));
        control.set(JAVA_INT, LibcLayouts.CMSG_LEVEL, SOL_SOCKET);
        control.set(JAVA_INT, LibcLayouts.CMSG_TYPE, SCM_RIGHTS);
        MemorySegment.copy(fds, 0, control, JAVA_INT, LibcLayouts.CMSG_DATA, fds.length);
      }
      MemorySegment message = LibcLayouts.message(arena, payload, length, control);
      return (int)
          checked(
              "sendmsg",
              () -> "sending " + length + " bytes, " + fds.length + " descriptors to fd " + socket,
              (callArena, errno) ->
                  (long) Sendmsg.HANDLE.invokeExact(errno, socket, message, flags | MSG_NOSIGNAL));
    }
  }

  /**
   * Sends all bytes, the descriptors with the first (sendmsg(2)), on a blocking socket.
   *
   * @param socket connected descriptor
   * @param bytes what to send; at least one byte if there are descriptors
   * @param fds descriptors of which the receiver gets duplicates
   * @throws LibcException if a call fails; some of the bytes may have been sent
   */
  public static void sendAll(int socket, byte[] bytes, int... fds) {
    int sent = sendmsg(socket, bytes, 0, bytes.length, fds, 0);
    while (sent < bytes.length) {
      sent += sendmsg(socket, bytes, sent, bytes.length - sent, NO_FDS, 0);
    }
  }

  /**
   * Receives bytes and descriptors (recvmsg(2)). Blocks until there is something or the peer hung
   * up.
   *
   * @param socket connected descriptor
   * @param maxBytes most bytes to take, more than 0
   * @param maxFds most descriptors to take
   * @param flags 0, {@link #MSG_DONTWAIT} or {@link #MSG_PEEK}
   * @return the bytes, none if the peer hung up; and new descriptors with close-on-exec set
   * @throws LibcException if the call fails: EAGAIN if nothing is there and waiting is not wanted;
   *     EMSGSIZE if a packet was longer than {@code maxBytes}, or if descriptors were lost because
   *     there were more than {@code maxFds} or this process may not open more. Those that did
   *     arrive are closed then
   */
  public static ReceivedMessage recvmsg(int socket, int maxBytes, int maxFds, int flags) {
    if (maxBytes <= 0 || maxFds < 0 || maxFds > MAX_FDS_PER_MESSAGE) {
      throw new IllegalArgumentException(maxBytes + " bytes, " + maxFds + " descriptors");
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment payload = arena.allocate(maxBytes);
      MemorySegment control = controlBuffer(arena, maxFds);
      MemorySegment message = LibcLayouts.message(arena, payload, maxBytes, control);
      int received =
          (int)
              checked(
                  "recvmsg",
                  () -> "receiving from fd " + socket,
                  (callArena, errno) ->
                      (long)
                          Recvmsg.HANDLE.invokeExact(
                              errno, socket, message, flags | MSG_CMSG_CLOEXEC));
      int[] fds = receivedFds(message, control);
      int outcome = message.get(JAVA_INT, LibcLayouts.MSGHDR_FLAGS);
      if ((outcome & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
        for (int fd : fds) {
          tryClose(fd);
        }
        String lost =
            (outcome & MSG_CTRUNC) != 0
                ? "descriptors were lost: more than " + maxFds + ", or no room in this process"
                : "a packet was longer than " + maxBytes + " bytes";
        throw failure("recvmsg", Errno.EMSGSIZE, "receiving from fd " + socket + ": " + lost);
      }
      byte[] bytes = new byte[received];
      MemorySegment.copy(payload, JAVA_BYTE, 0, bytes, 0, received);
      return new ReceivedMessage(bytes, fds);
    }
  }

  /**
   * Who is at the other end of a UNIX socket (SO_PEERCRED in unix(7)): the process that called
   * connect, listen or socketpair.
   *
   * @param socket connected descriptor
   * @return ids as seen from this process's namespaces
   * @throws LibcException if the call fails
   */
  public static PeerCredentials peerCredentials(int socket) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(JAVA_INT, 3);
      MemorySegment length = arena.allocateFrom(JAVA_INT, (int) value.byteSize());
      checked(
          "getsockopt",
          () -> "asking who is connected to fd " + socket,
          (callArena, errno) ->
              (int)
                  Getsockopt.HANDLE.invokeExact(
                      errno, socket, SOL_SOCKET, SO_PEERCRED, value, length));
      return new PeerCredentials(
          value.getAtIndex(JAVA_INT, 0),
          value.getAtIndex(JAVA_INT, 1),
          value.getAtIndex(JAVA_INT, 2));
    }
  }

  /**
   * Ends one or both directions of a connection (shutdown(2)). Wakes up threads blocked in it.
   *
   * @param socket connected descriptor
   * @param how {@code SHUT_*}
   * @throws LibcException if the call fails
   */
  public static void shutdown(int socket, int how) {
    checked(
        "shutdown",
        () -> "shutting down fd " + socket,
        (arena, errno) -> (int) Shutdown.HANDLE.invokeExact(errno, socket, how));
  }

  // ---------------------------------------------------------------- robust mutexes

  /**
   * Makes a robust mutex for several processes in shared memory (pthread_mutex_init(3),
   * pthread_mutexattr_setrobust(3)).
   *
   * <p>Its layout is private to the C library: all processes that use it need the same C library in
   * the same version and width. Exactly one of them initialises it, before any other use. It checks
   * errors: locking twice gives EDEADLK, unlocking another thread's mutex EPERM.
   *
   * <p>The owner is an operating-system thread. When that thread ends for whatever reason, the next
   * one to lock gets EOWNERDEAD. Unlock before unmapping: the C library keeps a list of held robust
   * mutexes that runs through the mutexes themselves. There is nothing else to release.
   *
   * @param mutex {@link #MUTEX_BYTES} bytes at an address that is a multiple of 8
   * @throws LibcException if a call fails
   */
  public static void robustMutexInit(MemorySegment mutex) {
    checkMutex(mutex);
    try (Arena arena = Arena.ofConfined()) {
      // The type needs 4 bytes on x86-64 and 8 on aarch64.
      MemorySegment attributes = arena.allocate(MUTEX_BYTES, Long.BYTES);
      mutexStep("pthread_mutexattr_init", () -> (int) MutexattrInit.HANDLE.invokeExact(attributes));
      try {
        mutexStep(
            "pthread_mutexattr_setpshared",
            () -> (int) MutexattrSetpshared.HANDLE.invokeExact(attributes, PTHREAD_PROCESS_SHARED));
        mutexStep(
            "pthread_mutexattr_setrobust",
            () -> (int) MutexattrSetrobust.HANDLE.invokeExact(attributes, PTHREAD_MUTEX_ROBUST));
        mutexStep(
            "pthread_mutexattr_settype",
            () -> (int) MutexattrSettype.HANDLE.invokeExact(attributes, PTHREAD_MUTEX_ERRORCHECK));
        mutexStep(
            "pthread_mutex_init", () -> (int) MutexInit.HANDLE.invokeExact(mutex, attributes));
      } finally {
        mutexError(() -> (int) MutexattrDestroy.HANDLE.invokeExact(attributes));
      }
    }
  }

  /**
   * Locks a mutex, waiting without limit (pthread_mutex_lock(3)). Nothing but the mutex ends the
   * wait; prefer {@link #robustMutexTimedLock}.
   *
   * @param mutex the mutex
   * @return 0; EOWNERDEAD if the caller holds it now because its owner died; EDEADLK if the caller
   *     held it before; ENOTRECOVERABLE
   * @throws IllegalStateException in a virtual thread
   */
  public static int robustMutexLock(MemorySegment mutex) {
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_lock");
    return mutexError(() -> (int) MutexLock.HANDLE.invokeExact(mutex));
  }

  /**
   * Locks a mutex, waiting for a limited time (pthread_mutex_clocklock(3) on the monotonic clock;
   * where the C library lacks it pthread_mutex_timedlock(3), which a change of the system's time
   * can shorten or prolong).
   *
   * @param mutex the mutex
   * @param timeoutNanos longest wait in nanoseconds; 0 or less does not wait
   * @return as {@link #robustMutexLock}, or ETIMEDOUT
   * @throws IllegalStateException in a virtual thread
   */
  public static int robustMutexTimedLock(MemorySegment mutex, long timeoutNanos) {
    requireAvailable();
    return robustMutexTimedLock(mutex, timeoutNanos, MutexClocklock.HANDLE != null);
  }

  /** As above with a choice of the clock. */
  static int robustMutexTimedLock(MemorySegment mutex, long timeoutNanos, boolean monotonic) {
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_timedlock");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment time = arena.allocate(LibcLayouts.TIMESPEC);
      if (monotonic) {
        deadline(CLOCK_MONOTONIC, timeoutNanos, time);
        return mutexError(
            () -> (int) MutexClocklock.HANDLE.invokeExact(mutex, CLOCK_MONOTONIC, time));
      }
      deadline(CLOCK_REALTIME, timeoutNanos, time);
      return mutexError(() -> (int) MutexTimedlock.HANDLE.invokeExact(mutex, time));
    }
  }

  /**
   * Locks a mutex if nobody holds it (pthread_mutex_trylock(3)).
   *
   * @param mutex the mutex
   * @return as {@link #robustMutexLock}, or EBUSY; which of EBUSY and EDEADLK the caller gets for a
   *     mutex that it holds already is the C library's choice
   * @throws IllegalStateException in a virtual thread
   */
  public static int robustMutexTryLock(MemorySegment mutex) {
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_trylock");
    return mutexError(() -> (int) MutexTrylock.HANDLE.invokeExact(mutex));
  }

  /**
   * Unlocks a mutex (pthread_mutex_unlock(3)). After EOWNERDEAD without {@link
   * #robustMutexConsistent} it becomes unusable: everybody gets ENOTRECOVERABLE.
   *
   * @param mutex the mutex
   * @return 0, or EPERM if the calling thread does not hold it
   * @throws IllegalStateException in a virtual thread
   */
  public static int robustMutexUnlock(MemorySegment mutex) {
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_unlock");
    return mutexError(() -> (int) MutexUnlock.HANDLE.invokeExact(mutex));
  }

  /**
   * Declares that the state behind a mutex was repaired after EOWNERDEAD
   * (pthread_mutex_consistent(3)).
   *
   * @param mutex the mutex, held by the caller
   * @return 0, or EINVAL if there was nothing to repair
   */
  public static int robustMutexConsistent(MemorySegment mutex) {
    checkMutex(mutex);
    return mutexError(() -> (int) MutexConsistent.HANDLE.invokeExact(mutex));
  }

  // ---------------------------------------------------------------- helpers

  /** A call of a C function. */
  @FunctionalInterface
  private interface Call {
    /**
     * Calls.
     *
     * @param arena lives as long as the call
     * @param errno receives the error number
     * @return what the function returned
     */
    long invoke(Arena arena, MemorySegment errno) throws Throwable;
  }

  /** A call of a C function that returns its error. */
  @FunctionalInterface
  private interface ErrorCall {
    int invoke() throws Throwable;
  }

  /** Calls once; returns the result, or the negated error number if the result is -1. */
  private static long invokeOnce(Call call) {
    requireAvailable();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment state = arena.allocate(CALL_STATE);
      long result = call.invoke(arena, state);
      return result == -1 ? -state.get(JAVA_INT, ERRNO_OFFSET) : result;
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  /** As {@link #invokeOnce}, again and again while a signal interrupts the call. */
  private static long invoke(Call call) {
    long result;
    do {
      result = invokeOnce(call);
    } while (result == -Errno.EINTR);
    return result;
  }

  /** Calls and turns a failure into an exception. */
  private static long checked(String function, Supplier<String> attempt, Call call) {
    long result = invoke(call);
    if (result < 0) {
      throw failure(function, (int) -result, attempt.get());
    }
    return result;
  }

  /** Calls and returns the error number, 0 if there is none. */
  private static int errorOf(Call call) {
    return (int) -Math.min(0, invoke(call));
  }

  /** Closes without repeating or throwing; returns the error number. */
  private static int tryClose(int fd) {
    return (int)
        -Math.min(0, invokeOnce((arena, errno) -> (int) Close.HANDLE.invokeExact(errno, fd)));
  }

  private static int mutexError(ErrorCall call) {
    requireAvailable();
    try {
      return call.invoke();
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  private static void mutexStep(String function, ErrorCall call) {
    int error = mutexError(call);
    if (error != 0) {
      throw failure(function, error, "initialising a robust mutex");
    }
  }

  private static void checkMutex(MemorySegment mutex) {
    if (!mutex.isNative()
        || mutex.byteSize() < MUTEX_BYTES
        || mutex.address() % Long.BYTES != 0
        || mutex.isReadOnly()) {
      throw new IllegalArgumentException(
          "a mutex needs " + MUTEX_BYTES + " writable native bytes, 8-byte aligned: " + mutex);
    }
  }

  private static void requireAvailable() {
    if (UNAVAILABLE_REASON != null) {
      throw new UnsupportedOperationException(
          "the C library cannot be used: " + UNAVAILABLE_REASON);
    }
  }

  private static void requirePlatformThread(String function) {
    if (Thread.currentThread().isVirtual()) {
      throw new IllegalStateException(
          function + " concerns the operating-system thread: call it from a platform thread");
    }
  }

  private static RuntimeException unchecked(Throwable thrown) {
    if (thrown instanceof RuntimeException e) {
      return e;
    }
    if (thrown instanceof Error e) {
      throw e;
    }
    throw new AssertionError("a native call threw a checked exception", thrown);
  }

  private static LibcException failure(String function, int errno, String attempt) {
    return new LibcException(function, errno, errorText(errno), attempt);
  }

  /** The C library's text for an error number, empty if there is none. */
  private static String errorText(int errno) {
    if (StrerrorR.HANDLE == null) {
      return "";
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(ERROR_TEXT_BYTES);
      int error = (int) StrerrorR.HANDLE.invokeExact(errno, text, text.byteSize());
      return error == 0 ? text.getString(0) : "";
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  /**
   * Why the dynamic linker cannot load a library (dlopen(3), dlerror(3)): Java's own message leaves
   * that out.
   *
   * @param file path or name of the library
   * @return the linker's text, empty if it is not known or the library can be loaded
   */
  static String loadError(String file) {
    if (UNAVAILABLE_REASON != null
        || Dlopen.HANDLE == null
        || Dlclose.HANDLE == null
        || Dlerror.HANDLE == null) {
      return "";
    }
    try (Arena arena = Arena.ofConfined()) {
      long handle = (long) Dlopen.HANDLE.invokeExact(arena.allocateFrom(file), RTLD_LAZY);
      if (handle != 0) {
        int ignored = (int) Dlclose.HANDLE.invokeExact(handle);
        return "";
      }
      long text = (long) Dlerror.HANDLE.invokeExact();
      return text == 0 ? "" : MemoryAccess.ofAddress(text, MAX_DLERROR_BYTES).getString(0);
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  /** Writes the point in time that lies {@code timeoutNanos} ahead. */
  private static void deadline(int clock, long timeoutNanos, MemorySegment time) {
    checked(
        "clock_gettime",
        () -> "reading clock " + clock,
        (arena, errno) -> (int) ClockGettime.HANDLE.invokeExact(errno, clock, time));
    long timeout = Math.max(0, timeoutNanos);
    long nanos = time.get(JAVA_LONG, LibcLayouts.TIMESPEC_NANOS) + timeout % NANOS_PER_SECOND;
    long seconds = time.get(JAVA_LONG, LibcLayouts.TIMESPEC_SECONDS) + timeout / NANOS_PER_SECOND;
    time.set(JAVA_LONG, LibcLayouts.TIMESPEC_SECONDS, seconds + nanos / NANOS_PER_SECOND);
    time.set(JAVA_LONG, LibcLayouts.TIMESPEC_NANOS, nanos % NANOS_PER_SECOND);
  }

  /** Rounded up, so that a wait never ends early and then spins. */
  private static int millisRoundedUp(long nanos) {
    if (nanos <= 0) {
      return 0;
    }
    return (int) Math.min(Integer.MAX_VALUE, (nanos - 1) / NANOS_PER_MILLI + 1);
  }

  private static void bind(int socket, byte[] address, Supplier<String> name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sockaddr = arena.allocateFrom(JAVA_BYTE, address);
      checked(
          "bind",
          () -> "binding fd " + socket + " to " + name.get(),
          (callArena, errno) ->
              (int) Bind.HANDLE.invokeExact(errno, socket, sockaddr, (int) sockaddr.byteSize()));
    }
  }

  private static void connect(int socket, byte[] address, Supplier<String> name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sockaddr = arena.allocateFrom(JAVA_BYTE, address);
      checked(
          "connect",
          () -> "connecting fd " + socket + " to " + name.get(),
          (callArena, errno) ->
              (int) Connect.HANDLE.invokeExact(errno, socket, sockaddr, (int) sockaddr.byteSize()));
    }
  }

  /** struct sockaddr_un of an abstract name: family, a zero byte, the name. */
  private static byte[] abstractAddress(byte[] name) {
    if (name.length == 0 || name.length > MAX_ABSTRACT_NAME_BYTES) {
      throw new IllegalArgumentException(
          "an abstract name has 1 to " + MAX_ABSTRACT_NAME_BYTES + " bytes, not " + name.length);
    }
    byte[] address = new byte[Short.BYTES + 1 + name.length];
    address[0] = AF_UNIX; // little-endian, as both processors are under Linux
    System.arraycopy(name, 0, address, Short.BYTES + 1, name.length);
    return address;
  }

  /** struct sockaddr_un of a path: family, the path, a zero byte. */
  private static byte[] pathAddress(Path path) {
    byte[] name = path.toString().getBytes(StandardCharsets.UTF_8);
    if (name.length == 0 || name.length > MAX_ABSTRACT_NAME_BYTES) {
      throw new IllegalArgumentException(
          "a socket's path has 1 to " + MAX_ABSTRACT_NAME_BYTES + " bytes, not " + name.length);
    }
    byte[] address = new byte[Short.BYTES + name.length + 1];
    address[0] = AF_UNIX;
    System.arraycopy(name, 0, address, Short.BYTES, name.length);
    return address;
  }

  private static String printable(byte[] name) {
    return new String(name, StandardCharsets.ISO_8859_1).replaceAll("[^ -~]", "?");
  }

  /** Room for a control message with that many descriptors, without spare room for another one. */
  private static MemorySegment controlBuffer(Arena arena, int fds) {
    return fds == 0
        ? MemorySegment.NULL
        : arena.allocate(LibcLayouts.controlLength(fds), Long.BYTES);
  }

  private static int[] receivedFds(MemorySegment message, MemorySegment control) {
    long end = Math.min(message.get(JAVA_LONG, LibcLayouts.MSGHDR_CONTROLLEN), control.byteSize());
    int[] fds = NO_FDS;
    long at = 0;
    while (at + LibcLayouts.CMSG_DATA <= end) {
      long length = control.get(JAVA_LONG, at + LibcLayouts.CMSG_LEN);
      if (length < LibcLayouts.CMSG_DATA || length > end - at) {
        break;
      }
      if (control.get(JAVA_INT, at + LibcLayouts.CMSG_LEVEL) == SOL_SOCKET
          && control.get(JAVA_INT, at + LibcLayouts.CMSG_TYPE) == SCM_RIGHTS) {
        int had = fds.length;
        int more = (int) ((length - LibcLayouts.CMSG_DATA) / Integer.BYTES);
        fds = Arrays.copyOf(fds, had + more);
        MemorySegment.copy(control, JAVA_INT, at + LibcLayouts.CMSG_DATA, fds, had, more);
      }
      at += (length + Long.BYTES - 1) / Long.BYTES * Long.BYTES;
    }
    return fds;
  }

  // ---------------------------------------------------------------- functions

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

  // int fcntl(int fd, int cmd, ...)
  private static final class Fcntl {
    private static final MethodHandle HANDLE =
        BINDER.variadicWithErrno(
            "fcntl", 2, FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
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

  // int mlock(const void *addr, size_t len)
  private static final class Mlock {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("mlock", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG));
  }

  // int open(const char *path, int flags, ...)
  private static final class Open {
    private static final MethodHandle HANDLE =
        BINDER.variadicWithErrno(
            "open", 2, FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT));
  }

  // int close(int fd)
  private static final class Close {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("close", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
  }

  // ssize_t read(int fd, void *buf, size_t count)
  private static final class Read {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("read", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG));
  }

  // ssize_t write(int fd, const void *buf, size_t count)
  private static final class Write {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("write", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG));
  }

  // int statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *buf)
  private static final class Statx {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "statx",
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT, ADDRESS));
  }

  // int pipe2(int pipefd[2], int flags)
  private static final class Pipe2 {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("pipe2", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int eventfd(unsigned int initval, int flags)
  private static final class Eventfd {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("eventfd", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int sched_getaffinity(pid_t pid, size_t cpusetsize, cpu_set_t *mask)
  private static final class SchedGetaffinity {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "sched_getaffinity", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS));
  }

  // int sched_setaffinity(pid_t pid, size_t cpusetsize, const cpu_set_t *mask)
  private static final class SchedSetaffinity {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "sched_setaffinity", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS));
  }

  // int sched_getcpu(void)
  private static final class SchedGetcpu {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sched_getcpu", FunctionDescriptor.of(JAVA_INT));
  }

  // pid_t getpid(void)
  private static final class Getpid {
    private static final MethodHandle HANDLE =
        BINDER.plain("getpid", FunctionDescriptor.of(JAVA_INT));
  }

  // uid_t getuid(void)
  private static final class Getuid {
    private static final MethodHandle HANDLE =
        BINDER.plain("getuid", FunctionDescriptor.of(JAVA_INT));
  }

  // long sysconf(int name)
  private static final class Sysconf {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sysconf", FunctionDescriptor.of(JAVA_LONG, JAVA_INT));
  }

  // int kill(pid_t pid, int sig)
  private static final class Kill {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("kill", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // long syscall(long number, ...), here with two arguments of full width
  private static final class Syscall {
    private static final MethodHandle HANDLE =
        BINDER.variadicWithErrno(
            "syscall", 1, FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
  }

  // int socket(int domain, int type, int protocol)
  private static final class Socket {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("socket", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int socketpair(int domain, int type, int protocol, int sv[2])
  private static final class Socketpair {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "socketpair", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS));
  }

  // int bind(int fd, const struct sockaddr *addr, socklen_t len)
  private static final class Bind {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("bind", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int connect(int fd, const struct sockaddr *addr, socklen_t len)
  private static final class Connect {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("connect", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int listen(int fd, int backlog)
  private static final class Listen {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("listen", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
  private static final class Accept4 {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "accept4", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
  }

  // int poll(struct pollfd *fds, nfds_t nfds, int timeout)
  private static final class Poll {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("poll", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
  }

  // ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
  private static final class Sendmsg {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sendmsg", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
  private static final class Recvmsg {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("recvmsg", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
  private static final class Getsockopt {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "getsockopt",
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
  }

  // int shutdown(int fd, int how)
  private static final class Shutdown {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("shutdown", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int pthread_mutexattr_init(pthread_mutexattr_t *attr)
  private static final class MutexattrInit {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutexattr_init", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutexattr_setpshared(pthread_mutexattr_t *attr, int pshared)
  private static final class MutexattrSetpshared {
    private static final MethodHandle HANDLE =
        BINDER.plain(
            "pthread_mutexattr_setpshared", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int pthread_mutexattr_setrobust(pthread_mutexattr_t *attr, int robustness)
  private static final class MutexattrSetrobust {
    private static final MethodHandle HANDLE =
        BINDER.plain(
            "pthread_mutexattr_setrobust", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int pthread_mutexattr_settype(pthread_mutexattr_t *attr, int type)
  private static final class MutexattrSettype {
    private static final MethodHandle HANDLE =
        BINDER.plain(
            "pthread_mutexattr_settype", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int pthread_mutexattr_destroy(pthread_mutexattr_t *attr)
  private static final class MutexattrDestroy {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutexattr_destroy", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
  private static final class MutexInit {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_init", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
  }

  // int pthread_mutex_lock(pthread_mutex_t *mutex)
  private static final class MutexLock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_lock", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_trylock(pthread_mutex_t *mutex)
  private static final class MutexTrylock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_trylock", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *abstime)
  private static final class MutexTimedlock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_timedlock", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
  }

  // int pthread_mutex_clocklock(pthread_mutex_t *, clockid_t, const struct timespec *): glibc 2.30
  private static final class MutexClocklock {
    private static final MethodHandle HANDLE =
        BINDER.optional(
            "pthread_mutex_clocklock", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_unlock(pthread_mutex_t *mutex)
  private static final class MutexUnlock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_unlock", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_consistent(pthread_mutex_t *mutex)
  private static final class MutexConsistent {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_consistent", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int clock_gettime(clockid_t clock, struct timespec *time)
  private static final class ClockGettime {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("clock_gettime", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
  }

  // int __xpg_strerror_r(int errnum, char *buf, size_t buflen): the POSIX one of the two variants
  private static final class StrerrorR {
    private static final MethodHandle HANDLE =
        BINDER.optional(
            "__xpg_strerror_r", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_LONG));
  }

  // void *dlopen(const char *file, int mode)
  private static final class Dlopen {
    private static final MethodHandle HANDLE =
        BINDER.optional("dlopen", FunctionDescriptor.of(JAVA_LONG, ADDRESS, JAVA_INT));
  }

  // int dlclose(void *handle)
  private static final class Dlclose {
    private static final MethodHandle HANDLE =
        BINDER.optional("dlclose", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
  }

  // char *dlerror(void)
  private static final class Dlerror {
    private static final MethodHandle HANDLE =
        BINDER.optional("dlerror", FunctionDescriptor.of(JAVA_LONG));
  }
}
