package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.invoke;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.invoke.MethodHandle;

/**
 * This process and its threads: their numbers, the user, the environment that C sees.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class Processes {
  /** A system call that older C libraries have no function for. */
  private static final long SYS_GETTID =
      System.getProperty("os.arch", "").equals("aarch64") ? 178 : 186;

  private Processes() {}

  /**
   * Sets a variable of this process's environment for C (setenv(3)): libraries that read it from
   * now on see it, {@code System.getenv} does not. No other thread may read or set variables in C
   * meanwhile.
   *
   * @param name of the variable
   * @param value its value
   * @throws LibcException if the call fails
   * @throws UnsupportedOperationException if the C library has no such function
   */
  public static void setenv(String name, String value) {
    Libc.requireAvailable();
    if (Setenv.HANDLE == null) {
      throw new UnsupportedOperationException("the C library has no function setenv");
    }
    checked(
        "setenv",
        () -> "setting " + name,
        (arena, errno) ->
            (int)
                Setenv.HANDLE.invokeExact(
                    errno, arena.allocateFrom(name), arena.allocateFrom(value), 1));
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

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

  // int setenv(const char *name, const char *value, int overwrite)
  private static final class Setenv {
    private static final MethodHandle HANDLE =
        BINDER.optionalWithErrno(
            "setenv", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
  }

  // uid_t getuid(void)
  private static final class Getuid {
    private static final MethodHandle HANDLE =
        BINDER.plain("getuid", FunctionDescriptor.of(JAVA_INT));
  }

  // long syscall(long number, ...), here with two arguments of full width
  private static final class Syscall {
    private static final MethodHandle HANDLE =
        BINDER.variadicWithErrno(
            "syscall", 1, FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
  }
}
