package io.nccl4j.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.IntFunction;
import java.util.function.IntUnaryOperator;
import java.util.function.Supplier;

/**
 * How ranks join: NCCL starts in the background, and is aborted when it is not ready in time. What
 * goes wrong leaves no communicator behind.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaInit {
  /** A rank that joins. */
  record Rank(int rank, CudaDevice device) {}

  private static final String SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE";

  /** After the last of several results. */
  private static final int DONE = -1;

  private CudaInit() {}

  static List<CudaCommunicator> join(
      List<Rank> ranks, int nranks, byte[] id, Team team, CommunicatorConfig config, String name) {
    requireOwnGpus(ranks);
    ranks.forEach(rank -> team.expect(rank.rank, nranks));
    List<MemorySegment> handles = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment idSegment = ncclUniqueId.allocate(arena);
      MemorySegment.copy(id, 0, idSegment, ValueLayout.JAVA_BYTE, 0, id.length);
      MemorySegment nativeConfig = NcclConfig.write(arena, config);
      MemorySegment outs = arena.allocate(ValueLayout.ADDRESS, ranks.size());
      begin(ranks, nranks, idSegment, nativeConfig, outs, handles, name);
      awaitAll(handles, ranks, team, config.initTimeout(), name);
    } catch (NcclException e) {
      abort(handles, e);
      throw e;
    }
    List<CudaCommunicator> joined = new ArrayList<>();
    try {
      for (int i = 0; i < ranks.size(); i++) {
        Rank rank = ranks.get(i);
        joined.add(
            CudaCommunicator.create(
                rank.rank, nranks, rank.device, handles.get(i), team, config, name));
      }
    } catch (NcclException e) {
      abort(handles.subList(joined.size(), handles.size()), e);
      joined.forEach(CudaCommunicator::abort);
      joined.forEach(CudaCommunicator::close);
      throw e;
    }
    return joined;
  }

  /** Lets all ranks begin to join, as one group. */
  private static void begin(
      List<Rank> ranks,
      int nranks,
      MemorySegment id,
      MemorySegment nativeConfig,
      MemorySegment outs,
      List<MemorySegment> handles,
      String name) {
    int result = NcclResults.SUCCESS;
    NcclException lost = null;
    NcclResults.check(Nccl.ncclGroupStart(), "ncclGroupStart, to join " + name);
    for (int i = 0; i < ranks.size() && !NcclResults.isFailure(result) && lost == null; i++) {
      Rank rank = ranks.get(i);
      try (CudaDevice.Scope ignored = rank.device.enter()) {
        result =
            Nccl.ncclCommInitRankConfig(
                outs.asSlice(i * ValueLayout.ADDRESS.byteSize()),
                nranks,
                id,
                rank.rank,
                nativeConfig);
      } catch (NcclException e) {
        // The group is ended all the same, or it would swallow the thread's next operations.
        lost = e;
      }
    }
    int end = Nccl.ncclGroupEnd();
    for (int i = 0; i < ranks.size(); i++) {
      handles.add(outs.getAtIndex(ValueLayout.ADDRESS, i));
    }
    if (lost != null) {
      throw lost;
    }
    NcclResults.check(NcclResults.isFailure(result) ? result : end, "joining " + name);
  }

  /** Waits for all; the first one that fails ends it, whichever it is. */
  private static void awaitAll(
      List<MemorySegment> handles, List<Rank> ranks, Team team, Duration timeout, String name) {
    awaitReady(
        i -> i < handles.size() ? asyncError(handles.get(i)) : DONE,
        timeout,
        i ->
            "rank "
                + ranks.get(i).rank
                + " joining "
                + name
                + " (ranks that have not joined in this process: "
                + team.absent()
                + ")");
  }

  /** Waits until a handle can be used. */
  static void awaitReady(MemorySegment handle, Duration timeout, Supplier<String> what) {
    awaitReady(i -> i == 0 ? asyncError(handle) : DONE, timeout, i -> what.get());
  }

  private static void awaitReady(
      IntUnaryOperator results, Duration timeout, IntFunction<String> what) {
    long start = System.nanoTime();
    while (true) {
      int waiting = firstUnready(results, what);
      if (waiting < 0) {
        return;
      }
      long waited = System.nanoTime() - start;
      if (waited > timeout.toNanos()) {
        throw new DeadlineException(
            what.apply(waiting) + " was not ready after " + timeout.toMillis() + " ms",
            "start all ranks with the same unique id and nranks; NCCL_DEBUG=INFO shows which came;"
                + " init-timeout sets the deadline");
      }
      if (Thread.interrupted()) {
        Thread.currentThread().interrupt();
        throw new AbortedException(what.apply(waiting) + " was interrupted", "");
      }
      CudaStream.pause(waited);
    }
  }

  /** The first that goes on, -1 if none does. */
  private static int firstUnready(IntUnaryOperator results, IntFunction<String> what) {
    int waiting = -1;
    int i = 0;
    for (int result = results.applyAsInt(i); result != DONE; result = results.applyAsInt(i)) {
      if (NcclResults.isFailure(result)) {
        throw NcclResults.failure(result, what.apply(i));
      }
      waiting = waiting < 0 && result == NcclResults.IN_PROGRESS ? i : waiting;
      i++;
    }
    return waiting;
  }

  private static int asyncError(MemorySegment handle) {
    return number(handle, Nccl::ncclCommGetAsyncError, "ncclCommGetAsyncError");
  }

  static int rank(MemorySegment handle) {
    return number(handle, Nccl::ncclCommUserRank, "ncclCommUserRank");
  }

  static int count(MemorySegment handle) {
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

  static void abort(List<MemorySegment> handles, NcclException cause) {
    for (MemorySegment handle : handles) {
      if (!handle.equals(MemorySegment.NULL)) {
        int result = Nccl.ncclCommAbort(handle);
        if (NcclResults.isFailure(result)) {
          cause.addSuppressed(NcclResults.failure(result, "ncclCommAbort"));
        }
      }
    }
  }

  private static void requireOwnGpus(List<Rank> ranks) {
    Set<CudaDevice> seen = new HashSet<>();
    for (Rank rank : ranks) {
      if (!seen.add(rank.device) && !mayShareGpus()) {
        throw new InvalidUsageException(
            "two ranks are on " + rank.device,
            Features.SHARED_GPU.isPresent()
                ? "give each rank a GPU of its own, or start the process with " + SHARED_GPU + "=1"
                : "give each rank a GPU of its own; sharing one needs "
                    + Features.SHARED_GPU.needs());
      }
    }
  }

  private static boolean mayShareGpus() {
    return Features.SHARED_GPU.isPresent() && "1".equals(System.getenv(SHARED_GPU));
  }
}
