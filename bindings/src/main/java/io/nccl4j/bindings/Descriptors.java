package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.errorOf;
import static io.nccl4j.bindings.Libc.failure;
import static io.nccl4j.bindings.Libc.invokeOnce;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.Arrays;
import java.util.function.Supplier;

/**
 * File descriptors of Linux: opening, reading, writing and closing, pipes, event counters, and
 * waiting until one is ready.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class Descriptors {
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

  private static final int F_DUPFD_CLOEXEC = 1030;
  private static final int F_SETLEASE = 1024;
  private static final int F_WRLCK = 1;
  private static final int AT_EMPTY_PATH = 0x1000;
  private static final int STATX_BASIC_STATS = 0x7ff;
  private static final long NANOS_PER_MILLI = 1_000_000L;
  private static final long MAX_MILLIS = Long.MAX_VALUE / NANOS_PER_MILLI;

  private Descriptors() {}

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
    return fcntl(fd, F_DUPFD_CLOEXEC, 0, () -> "duplicating fd " + fd);
  }

  /**
   * Takes a write lease on a file (F_SETLEASE in fcntl(2)): the kernel gives it only if nobody else
   * on the machine has the file open or maps it, processes that this one cannot see included. Until
   * the descriptor is closed, who wants to open the file waits. An open file that was mapped and
   * then closed counts as open.
   *
   * @param fd descriptor of a regular file
   * @return 0, or the error number: EAGAIN if somebody else has it open, EACCES if it belongs to
   *     another user, EINVAL where the file system has no leases
   */
  public static int tryLease(int fd) {
    return errorOf(
        (arena, errno) -> (int) Fcntl.HANDLE.invokeExact(errno, fd, F_SETLEASE, F_WRLCK));
  }

  /**
   * Reads from a descriptor (read(2)). May block.
   *
   * @param fd descriptor
   * @param buffer native memory to fill
   * @return bytes read, 0 at the end, less than asked for if there is no more at the moment
   * @throws LibcException if the call fails, EAGAIN if a non-blocking descriptor has nothing
   */
  static long read(int fd, MemorySegment buffer) {
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
  static long write(int fd, MemorySegment bytes) {
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

  /** As fcntl(2) with one number as the argument. */
  static int fcntl(int fd, int command, int argument, Supplier<String> attempt) {
    return (int)
        checked(
            "fcntl",
            attempt,
            (arena, errno) -> (int) Fcntl.HANDLE.invokeExact(errno, fd, command, argument));
  }

  /** Closes without repeating or throwing; returns the error number. */
  static int tryClose(int fd) {
    return (int)
        -Math.min(0, invokeOnce((arena, errno) -> (int) Close.HANDLE.invokeExact(errno, fd)));
  }

  /** Rounded up, so that a wait never ends early and then spins. */
  private static int millisRoundedUp(long nanos) {
    if (nanos <= 0) {
      return 0;
    }
    return (int) Math.min(Integer.MAX_VALUE, (nanos - 1) / NANOS_PER_MILLI + 1);
  }

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

  // int fcntl(int fd, int cmd, ...)
  private static final class Fcntl {
    private static final MethodHandle HANDLE =
        BINDER.variadicWithErrno(
            "fcntl", 2, FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
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

  // int eventfd(unsigned int initval, int flags)
  private static final class Eventfd {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("eventfd", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int poll(struct pollfd *fds, nfds_t nfds, int timeout)
  private static final class Poll {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("poll", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
  }
}
