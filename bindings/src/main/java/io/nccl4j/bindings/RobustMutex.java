package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.failure;
import static io.nccl4j.bindings.Libc.requireAvailable;
import static io.nccl4j.bindings.Libc.requirePlatformThread;
import static io.nccl4j.bindings.Libc.unchecked;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * Mutexes in shared memory between threads of several processes. When the owner dies, the next one
 * to lock is told so.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class RobustMutex {
  /** Bytes to set aside for one robust mutex; the C library uses the first 40 or 48 of them. */
  public static final long BYTES = 64;

  private static final int CLOCK_REALTIME = 0;
  private static final int CLOCK_MONOTONIC = 1;
  private static final int PTHREAD_PROCESS_SHARED = 1;
  private static final int PTHREAD_MUTEX_ROBUST = 1;
  private static final int PTHREAD_MUTEX_ERRORCHECK = 2;
  private static final long NANOS_PER_SECOND = 1_000_000_000L;

  private RobustMutex() {}

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
   * @param mutex {@link #BYTES} bytes at an address that is a multiple of 8
   * @throws LibcException if a call fails
   */
  public static void init(MemorySegment mutex) {
    checkMutex(mutex);
    try (Arena arena = Arena.ofConfined()) {
      // The type needs 4 bytes on x86-64 and 8 on aarch64.
      MemorySegment attributes = arena.allocate(BYTES, Long.BYTES);
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
   * Whether memory that others can write holds a mutex as {@link #init} makes it, locked or not. To
   * lock anything else may end the process: the C library takes memory at its word. Whoever can
   * write there may change it afterwards.
   *
   * @param mutex the memory
   */
  public static boolean isOne(MemorySegment mutex) {
    checkMutex(mutex);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment fresh = arena.allocate(BYTES, Long.BYTES);
      init(fresh);
      // What is not zero in a fresh one is its kind; all else may change with its owner.
      for (long at = 0; at < BYTES; at += Integer.BYTES) {
        int kind = fresh.get(JAVA_INT, at);
        if (kind != 0 && mutex.get(JAVA_INT, at) != kind) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * Locks a mutex, waiting without limit (pthread_mutex_lock(3)). Nothing but the mutex ends the
   * wait; prefer {@link #timedLock}.
   *
   * @param mutex the mutex
   * @return 0; EOWNERDEAD if the caller holds it now because its owner died; EDEADLK if the caller
   *     held it before; ENOTRECOVERABLE
   * @throws IllegalStateException in a virtual thread
   */
  public static int lock(MemorySegment mutex) {
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
   * @return as {@link #lock}, or ETIMEDOUT
   * @throws IllegalStateException in a virtual thread
   */
  public static int timedLock(MemorySegment mutex, long timeoutNanos) {
    requireAvailable();
    return timedLock(mutex, timeoutNanos, MutexClocklock.HANDLE != null);
  }

  /** As above with a choice of the clock. */
  static int timedLock(MemorySegment mutex, long timeoutNanos, boolean monotonic) {
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
   * @return as {@link #lock}, or EBUSY; which of EBUSY and EDEADLK the caller gets for a mutex that
   *     it holds already is the C library's choice
   * @throws IllegalStateException in a virtual thread
   */
  public static int tryLock(MemorySegment mutex) {
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_trylock");
    return mutexError(() -> (int) MutexTrylock.HANDLE.invokeExact(mutex));
  }

  /**
   * Unlocks a mutex (pthread_mutex_unlock(3)). After EOWNERDEAD without {@link #consistent} it
   * becomes unusable: everybody gets ENOTRECOVERABLE.
   *
   * @param mutex the mutex
   * @return 0, or EPERM if the calling thread does not hold it
   * @throws IllegalStateException in a virtual thread
   */
  public static int unlock(MemorySegment mutex) {
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
  public static int consistent(MemorySegment mutex) {
    checkMutex(mutex);
    return mutexError(() -> (int) MutexConsistent.HANDLE.invokeExact(mutex));
  }

  /** A call of a C function that returns its error. */
  @FunctionalInterface
  private interface ErrorCall {
    int invoke() throws Throwable;
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
        || mutex.byteSize() < BYTES
        || mutex.address() % Long.BYTES != 0
        || mutex.isReadOnly()) {
      throw new IllegalArgumentException(
          "a mutex needs " + BYTES + " writable native bytes, 8-byte aligned: " + mutex);
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

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

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
}
