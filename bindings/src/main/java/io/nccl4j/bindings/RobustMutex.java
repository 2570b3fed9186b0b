package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.failure;
import static io.nccl4j.bindings.Libc.requireAvailable;
import static io.nccl4j.bindings.Libc.requirePlatformThread;
import static io.nccl4j.bindings.Libc.unchecked;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

/**
 * Mutexes in shared memory between threads of several processes. When the owner dies, the next one
 * to lock is told so.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class RobustMutex {
  /** Bytes to set aside for one robust mutex; the C library uses the first 40 or 48 of them. */
  public static final long BYTES = 64;

  private static final int PTHREAD_PROCESS_SHARED = 1;
  private static final int PTHREAD_MUTEX_ROBUST = 1;
  private static final int PTHREAD_MUTEX_ERRORCHECK = 2;

  /** Of the kernel's word, see linux/futex.h. */
  private static final int FUTEX_TID_MASK = 0x3fffffff;

  private static final VarHandle WORD = JAVA_INT.varHandle();

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
   * Locks a mutex if nobody holds it (pthread_mutex_trylock(3)). Allocates nothing.
   *
   * @param mutex the mutex
   * @return 0; EBUSY if somebody holds it; EBUSY or EDEADLK if the caller does, by the C library's
   *     choice; EOWNERDEAD if the caller holds it now because its owner died; ENOTRECOVERABLE
   * @throws IllegalStateException in a virtual thread
   */
  public static int tryLock(MemorySegment mutex) {
    requireAvailable();
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_trylock");
    try {
      return (int) MutexTrylock.HANDLE.invokeExact(mutex);
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  /**
   * Unlocks a mutex (pthread_mutex_unlock(3)). After EOWNERDEAD it becomes unusable: everybody gets
   * ENOTRECOVERABLE. Allocates nothing.
   *
   * @param mutex the mutex
   * @return 0, or EPERM if the calling thread does not hold it
   * @throws IllegalStateException in a virtual thread
   */
  public static int unlock(MemorySegment mutex) {
    requireAvailable();
    checkMutex(mutex);
    requirePlatformThread("pthread_mutex_unlock");
    try {
      return (int) MutexUnlock.HANDLE.invokeExact(mutex);
    } catch (Throwable t) {
      throw unchecked(t);
    }
  }

  /**
   * Whether a living thread of any process holds a mutex: one load. The word that is read is part
   * of the kernel's interface (set_robust_list(2)): the owner's number, which the kernel takes away
   * when the owner ends.
   *
   * @param mutex the mutex
   * @param word from {@link #wordOffset}
   * @return false if it is free, or its owner died and nobody locked it since
   */
  public static boolean isHeld(MemorySegment mutex, long word) {
    return ((int) WORD.getAcquire(mutex, word) & FUTEX_TID_MASK) != 0;
  }

  /**
   * Where in a mutex the kernel's word lies, which is the C library's choice. Finds out by locking
   * a mutex of its own.
   *
   * @return offset in bytes
   * @throws UnsupportedOperationException if the C library keeps it elsewhere
   * @throws IllegalStateException in a virtual thread
   */
  public static long wordOffset() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment mutex = arena.allocate(BYTES, Long.BYTES);
      init(mutex);
      int[] free = mutex.toArray(JAVA_INT);
      int error = tryLock(mutex);
      if (error != 0) {
        throw failure("pthread_mutex_trylock", error, "locking a new mutex");
      }
      int[] held = mutex.toArray(JAVA_INT);
      int unused = unlock(mutex);
      int owner = Processes.gettid();
      for (int i = 0; i < held.length; i++) {
        if (free[i] == 0 && held[i] == owner) {
          return (long) i * Integer.BYTES;
        }
      }
      throw new UnsupportedOperationException(
          "a locked mutex of this C library does not show its owner");
    }
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

  // int pthread_mutex_trylock(pthread_mutex_t *mutex)
  private static final class MutexTrylock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_trylock", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }

  // int pthread_mutex_unlock(pthread_mutex_t *mutex)
  private static final class MutexUnlock {
    private static final MethodHandle HANDLE =
        BINDER.plain("pthread_mutex_unlock", FunctionDescriptor.of(JAVA_INT, ADDRESS));
  }
}
