package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.errorOf;
import static io.nccl4j.bindings.Libc.invoke;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.invoke.MethodHandle;

/**
 * Processes and threads of Linux: their ids, their user, signals, and whether a process exists.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class Processes {
  /** signal(7): end the process at once. */
  public static final int SIGKILL = 9;

  /** signal(7): continue a stopped process. */
  public static final int SIGCONT = 18;

  /** signal(7): stop the process. */
  public static final int SIGSTOP = 19;

  /** System calls that older C libraries have no function for. */
  private static final long SYS_GETTID =
      System.getProperty("os.arch", "").equals("aarch64") ? 178 : 186;

  private static final long SYS_PIDFD_OPEN = 434;

  private Processes() {}

  /**
   * The number of this process in its own PID namespace (getpid(2)).
   *
   * @return process id
   */
  public static int getpid() {
    return (int) invoke((arena, errno) -> (int) Getpid.HANDLE.invokeExact());
  }

  /**
   * Sets a variable of this process's environment for C (setenv(3)): libraries that read it from
   * now on see it, {@code System.getenv} does not. No other thread may read or set variables in C
   * meanwhile.
   *
   * @param name of the variable
   * @param value its value
   * @throws LibcException if the call fails
   */
  public static void setenv(String name, String value) {
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

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

  // int setenv(const char *name, const char *value, int overwrite)
  private static final class Setenv {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("setenv", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
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
}
