package io.nccl4j.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
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

  private CudaInit() {}

  /**
   * Joins.
   *
   * @param id the bytes of one unique id, or of several
   */
  static List<CudaCommunicator> join(
      List<Rank> ranks, int nranks, byte[] id, Team team, CommunicatorConfig config, String name) {
    int ids = id.length / UniqueId.BYTES;
    requireOwnGpus(ranks);
    if (ids > 1) {
      Features.SCALABLE_INIT.require();
    }
    NcclConfig.requireKnown(config.nccl());
    ranks.forEach(rank -> team.expect(rank.rank, nranks));
    List<MemorySegment> handles = new ArrayList<>();
    MemorySegment nativeName = NcclConfig.name(config);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment idSegment = ncclUniqueId.allocateArray(ids, arena);
      MemorySegment.copy(id, 0, idSegment, ValueLayout.JAVA_BYTE, 0, id.length);
      MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
      MemorySegment outs = arena.allocate(ValueLayout.ADDRESS, ranks.size());
      int result = NcclResults.SUCCESS;
      // From here to the group's end nothing waits: it belongs to the thread of the system.
      ranks.forEach(rank -> rank.device.prepare());
      NcclResults.check(Nccl.ncclGroupStart(), "ncclGroupStart");
      for (int i = 0; i < ranks.size() && !NcclResults.isFailure(result); i++) {
        try (CudaDevice.Scope ignored = ranks.get(i).device.enter()) {
          MemorySegment out = outs.asSlice(i * ValueLayout.ADDRESS.byteSize());
          int rank = ranks.get(i).rank;
          result =
              ids == 1
                  ? Nccl.ncclCommInitRankConfig(out, nranks, idSegment, rank, nativeConfig)
                  : Nccl.ncclCommInitRankScalable(out, nranks, rank, ids, idSegment, nativeConfig);
        }
      }
      int end = Nccl.ncclGroupEnd();
      for (int i = 0; i < ranks.size(); i++) {
        handles.add(outs.getAtIndex(ValueLayout.ADDRESS, i));
      }
      NcclResults.check(NcclResults.isFailure(result) ? result : end, "joining " + name);
      awaitAll(handles, ranks, team, config.initTimeout(), name);
    } catch (NcclException e) {
      abort(handles, e);
      Reference.reachabilityFence(nativeName);
      throw e;
    }
    List<CudaCommunicator> joined = new ArrayList<>();
    for (int i = 0; i < ranks.size(); i++) {
      Rank rank = ranks.get(i);
      CudaCommunicator communicator =
          CudaCommunicator.create(
              rank.rank, nranks, rank.device, handles.get(i), team, config, name);
      communicator.keep(nativeName);
      joined.add(communicator);
    }
    return joined;
  }

  private static void awaitAll(
      List<MemorySegment> handles, List<Rank> ranks, Team team, Duration timeout, String name) {
    long start = System.nanoTime();
    for (int i = 0; i < handles.size(); i++) {
      int rank = ranks.get(i).rank;
      Duration left = timeout.minusNanos(System.nanoTime() - start);
      awaitReady(
          handles.get(i),
          left.isNegative() ? Duration.ZERO : left,
          () ->
              "rank "
                  + rank
                  + " joining "
                  + name
                  + " (ranks that have not joined in this process: "
                  + team.absent()
                  + ")");
    }
  }

  /** Waits until a handle can be used. */
  static void awaitReady(MemorySegment handle, Duration timeout, Supplier<String> what) {
    long start = System.nanoTime();
    while (true) {
      int result = asyncError(handle);
      if (result != NcclResults.IN_PROGRESS) {
        NcclResults.check(result, what.get());
        return;
      }
      long waited = System.nanoTime() - start;
      if (waited > timeout.toNanos()) {
        throw new DeadlineException(
            what.get() + " was not ready after " + timeout.toMillis() + " ms",
            "start all ranks with the same unique id and nranks; NCCL_DEBUG=INFO shows which came;"
                + " init-timeout sets the deadline");
      }
      if (Thread.interrupted()) {
        Thread.currentThread().interrupt();
        throw new io.nccl4j.AbortedException(what.get() + " was interrupted", "");
      }
      CudaStream.pause(waited);
    }
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
