package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclCommProperties;
import io.nccl4j.cuda.NcclMemoryStatistics;
import io.nccl4j.cuda.NcclProperties;
import io.nccl4j.cuda.NcclProperties.GinType;
import io.nccl4j.internal.cuda.driver.Backoff;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.function.Supplier;

/** What NCCL can be asked about a communicator, or about one that it still makes. */
public final class NcclQueries {
  private static final int SUSPENDABLE = 0;
  private static final int SUSPENDED = 1;
  private static final int PERSISTENT = 2;
  private static final int TOTAL = 3;

  private NcclQueries() {}

  public static NcclProperties properties(CudaCalls calls) {
    Features.PROPERTIES.require();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = ncclCommProperties.allocate(arena);
      NcclStructs.fillProperties(out);
      calls.query("properties", handle -> Nccl.ncclCommQueryProperties(handle, out));
      return new NcclProperties(
          ncclCommProperties.rank(out),
          ncclCommProperties.nRanks(out),
          ncclCommProperties.cudaDev(out),
          ncclCommProperties.nvmlDev(out),
          ncclCommProperties.deviceApiSupport(out),
          ncclCommProperties.multimemSupport(out),
          ginType(ncclCommProperties.ginType(out)),
          ncclCommProperties.nLsaTeams(out),
          ncclCommProperties.hostRmaSupport(out),
          ginType(ncclCommProperties.railedGinType(out)));
    }
  }

  private static GinType ginType(int code) {
    return switch (code) {
      case 0 -> GinType.NONE;
      case 2 -> GinType.PROXY;
      case 3 -> GinType.GDAKI;
      case 4 -> GinType.GPI;
      default -> GinType.UNKNOWN;
    };
  }

  public static NcclMemoryStatistics memoryStatistics(CudaCalls calls) {
    Features.MEMORY_STATISTICS.require();
    return new NcclMemoryStatistics(
        statistic(calls, SUSPENDABLE),
        statistic(calls, SUSPENDED) != 0,
        statistic(calls, PERSISTENT),
        statistic(calls, TOTAL));
  }

  private static long statistic(CudaCalls calls, int which) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      calls.query("memory statistics", handle -> Nccl.ncclCommMemStats(handle, which, out));
      return out.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  // ---- by its handle

  /** Waits until a handle can be used: at once, unless the configuration lets NCCL not block. */
  public static void awaitReady(MemorySegment handle, Duration timeout, Supplier<String> what) {
    long start = System.nanoTime();
    while (true) {
      int result = asyncError(handle);
      if (result != NcclResults.IN_PROGRESS) {
        NcclResults.check(result, what.get());
        return;
      }
      long waited = System.nanoTime() - start;
      if (waited > timeout.toNanos()) {
        throw notReady(what.get(), timeout);
      }
      Backoff.pause(waited, what);
    }
  }

  static DeadlineException notReady(String what, Duration timeout) {
    return new DeadlineException(
        what + " was not ready after " + timeout.toMillis() + " ms",
        "start all ranks with the same unique id and nranks; NCCL_DEBUG=INFO shows which came;"
            + " init-timeout sets the deadline");
  }

  static int asyncError(MemorySegment handle) {
    return number(handle, Nccl::ncclCommGetAsyncError, "ncclCommGetAsyncError");
  }

  public static int rank(MemorySegment handle) {
    return number(handle, Nccl::ncclCommUserRank, "ncclCommUserRank");
  }

  public static int count(MemorySegment handle) {
    return number(handle, Nccl::ncclCommCount, "ncclCommCount");
  }

  /** A call that asks a communicator for a number. */
  private interface Question {
    int ask(MemorySegment handle, MemorySegment out);
  }

  private static int number(MemorySegment handle, Question question, String call) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(question.ask(handle, out), call);
      return out.get(ValueLayout.JAVA_INT, 0);
    }
  }
}
