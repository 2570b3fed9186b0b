package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.function.Supplier;

/**
 * The C library of Linux on x86-64 and aarch64: whether it can be called, and what all calls of it
 * have in common. The functions are in classes by subject:
 *
 * <ul>
 *   <li>{@link Memory}: memory files, mappings, advice, the page size;
 *   <li>{@link Descriptors}: open and close, event counters, poll;
 *   <li>{@link UnixSockets}: local sockets, which carry descriptors, and who is at the other end;
 *   <li>{@link Processors}: which processors a thread runs on;
 *   <li>{@link Processes}: numbers of threads and users, the environment that C sees;
 *   <li>{@link RobustMutex}: mutexes between processes that survive the death of their owner.
 * </ul>
 *
 * <p><b>Absence.</b> Loading these classes never fails. Where the library cannot be used, {@link
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
 * returned is the caller's to {@link Descriptors#close}; all are created with close-on-exec set if
 * the caller passes the {@code CLOEXEC} flag of the function, and always where there is no such
 * flag. A call that fails leaves no descriptor behind.
 */
public final class Libc {
  private static final int RTLD_LAZY = 1;
  private static final int ERROR_TEXT_BYTES = 256;
  private static final int MAX_DLERROR_BYTES = 4096;

  /** All functions that no backend can do without. */
  private static final List<String> REQUIRED =
      List.of(
          "memfd_create",
          "ftruncate",
          "fallocate",
          "fcntl",
          "mmap",
          "munmap",
          "madvise",
          "open",
          "close",
          "read",
          "write",
          "statx",
          "eventfd",
          "sched_getaffinity",
          "sched_setaffinity",
          "sched_getcpu",
          "getuid",
          "sysconf",
          "syscall",
          "socket",
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
          "pthread_mutex_trylock",
          "pthread_mutex_unlock");

  static final LibcBinder BINDER =
      new LibcBinder(
          System.getProperty("os.name", ""), System.getProperty("os.arch", ""), REQUIRED);

  private static final StructLayout CALL_STATE = BINDER.callState();
  private static final long ERRNO_OFFSET = BINDER.errnoOffset();

  /** Why the functions cannot be called, or null. */
  private static final String UNAVAILABLE_REASON = BINDER.reason();

  private Libc() {}

  /**
   * Whether the C library can be called in this process.
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

  /**
   * The option of the Java launcher that grants native access to this program: it depends on
   * whether these classes are on the class path.
   *
   * @return {@code --enable-native-access=} and whom to grant it
   */
  public static String nativeAccessOption() {
    return LibcBinder.grantOption();
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

  /** A call of a C function. */
  @FunctionalInterface
  interface Call {
    /**
     * Calls.
     *
     * @param arena lives as long as the call
     * @param errno receives the error number
     * @return what the function returned
     */
    long invoke(Arena arena, MemorySegment errno) throws Throwable;
  }

  /** Calls once; returns the result, or the negated error number if the result is -1. */
  static long invokeOnce(Call call) {
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
  static long invoke(Call call) {
    long result;
    do {
      result = invokeOnce(call);
    } while (result == -Errno.EINTR);
    return result;
  }

  /** Calls and turns a failure into an exception. */
  static long checked(String function, Supplier<String> attempt, Call call) {
    long result = invoke(call);
    if (result < 0) {
      throw failure(function, (int) -result, attempt.get());
    }
    return result;
  }

  /** Calls and returns the error number, 0 if there is none. */
  static int errorOf(Call call) {
    return (int) -Math.min(0, invoke(call));
  }

  static void requireAvailable() {
    if (UNAVAILABLE_REASON != null) {
      throw new UnsupportedOperationException(
          "the C library cannot be used: " + UNAVAILABLE_REASON);
    }
  }

  static void requirePlatformThread(String function) {
    if (Thread.currentThread().isVirtual()) {
      throw new IllegalStateException(
          function + " concerns the operating-system thread: call it from a platform thread");
    }
  }

  static RuntimeException unchecked(Throwable thrown) {
    if (thrown instanceof RuntimeException e) {
      return e;
    }
    if (thrown instanceof Error e) {
      throw e;
    }
    throw new AssertionError("a native call threw a checked exception", thrown);
  }

  static LibcException failure(String function, int errno, String attempt) {
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

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

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
