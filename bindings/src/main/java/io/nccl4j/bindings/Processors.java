package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.requirePlatformThread;
import static io.nccl4j.bindings.Libc.unchecked;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.BitSet;

/**
 * The processors that a thread of Linux may run on, and the one it runs on.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class Processors {
  /** Size of the processor set passed to the kernel: 8192 processors, Linux's largest limit. */
  private static final long CPU_SET_BYTES = 1024;

  private Processors() {}

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
    int processor;
    try {
      processor = (int) SchedGetcpu.PLAIN.invokeExact();
    } catch (Throwable e) {
      throw unchecked(e);
    }
    return processor >= 0 ? processor : SchedGetcpuFailing.again();
  }

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

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

  // int sched_getcpu(void); without errno, which takes memory: ranks that wait ask often.
  private static final class SchedGetcpu {
    private static final MethodHandle PLAIN =
        BINDER.plain("sched_getcpu", FunctionDescriptor.of(JAVA_INT));
  }

  /** The same call, for its errno; only a kernel that lacks it fails. */
  private static final class SchedGetcpuFailing {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sched_getcpu", FunctionDescriptor.of(JAVA_INT));

    static int again() {
      return (int)
          checked(
              "sched_getcpu",
              () -> "asking for the current processor",
              (arena, errno) -> (int) HANDLE.invokeExact(errno));
    }
  }
}
