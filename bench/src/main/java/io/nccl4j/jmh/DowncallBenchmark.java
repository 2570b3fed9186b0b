package io.nccl4j.jmh;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.openjdk.jmh.annotations.Benchmark;

/**
 * What the foreign function interface itself takes: functions of the C library that do next to
 * nothing, called in each of the ways that the bindings call theirs.
 */
@SuppressWarnings("restricted")
public class DowncallBenchmark extends HostBenchmark {
  private static final Linker LINKER = Linker.nativeLinker();
  private static final FunctionDescriptor LABS =
      FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG);
  private static final MemorySegment LABS_ADDRESS =
      LINKER.defaultLookup().find("labs").orElseThrow();
  private static final MethodHandle PLAIN = LINKER.downcallHandle(LABS_ADDRESS, LABS);
  private static final MethodHandle CRITICAL =
      LINKER.downcallHandle(LABS_ADDRESS, LABS, Linker.Option.critical(false));
  private static final MethodHandle ERRNO =
      LINKER.downcallHandle(LABS_ADDRESS, LABS, Linker.Option.captureCallState("errno"));
  private static final MethodHandle SEARCH =
      LINKER.downcallHandle(
          LINKER.defaultLookup().find("bsearch").orElseThrow(),
          FunctionDescriptor.of(
              ValueLayout.ADDRESS,
              ValueLayout.ADDRESS,
              ValueLayout.ADDRESS,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.ADDRESS));
  private static final MemorySegment STATE =
      Arena.global().allocate(Linker.Option.captureStateLayout());
  private static final MemorySegment ITEM = Arena.global().allocate(ValueLayout.JAVA_INT);
  private static final MemorySegment EQUAL = comparison();

  private static MemorySegment comparison() {
    try {
      MethodHandle equal =
          MethodHandles.lookup()
              .findStatic(
                  DowncallBenchmark.class,
                  "equal",
                  MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class));
      return LINKER.upcallStub(
          equal,
          FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS),
          Arena.global());
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("unused") // called from C
  private static int equal(MemorySegment a, MemorySegment b) {
    return 0;
  }

  /** What is passed; not a constant for the compiler. */
  private long number = -5;

  /** As most calls of the bindings: the thread changes its state. */
  @Benchmark
  public long plain() throws Throwable {
    return (long) PLAIN.invokeExact(number);
  }

  /** Without a change of state; for short functions that never wait. */
  @Benchmark
  public long critical() throws Throwable {
    return (long) CRITICAL.invokeExact(number);
  }

  /** As calls of the C library that set errno. */
  @Benchmark
  public long capturingErrno() throws Throwable {
    return (long) ERRNO.invokeExact(STATE, number);
  }

  /** With memory for a result, which a confined arena takes and gives back. */
  @Benchmark
  public long withArena() throws Throwable {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      out.set(ValueLayout.JAVA_LONG, 0, (long) PLAIN.invokeExact(number));
      return out.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** A call that calls back into Java once; returns the address it found. */
  @Benchmark
  public long callingBack() throws Throwable {
    MemorySegment found = (MemorySegment) SEARCH.invokeExact(ITEM, ITEM, 1L, 4L, EQUAL);
    return found.address() - ITEM.address();
  }
}
