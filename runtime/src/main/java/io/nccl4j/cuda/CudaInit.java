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
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * How ranks join: what is not ready in time is aborted, and what goes wrong leaves no communicator
 * behind.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaInit {
  /** A rank that joins. */
  record Rank(int rank, CudaDevice device) {}

  /** The variable that allows several ranks on one GPU. */
  static final String SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE";

  private static final VarHandle POINTER = ValueLayout.ADDRESS.varHandle();

  private final List<Rank> ranks;
  private final int nranks;
  private final Team team;
  private final CommunicatorConfig config;
  private final JoinMemory memory;
  private final String name;

  /** Kept by the thread that NCCL may hold for longer than the caller waits. */
  private final Arena arena = Arena.ofAuto();

  private final int ids;
  private final MemorySegment id;
  private final MemorySegment outs;
  private final MemorySegment nativeName;
  private int aborted;

  private CudaInit(
      List<Rank> ranks,
      int nranks,
      byte[] id,
      Team team,
      CommunicatorConfig config,
      JoinMemory memory,
      String name) {
    this.ranks = ranks;
    this.nranks = nranks;
    this.team = team;
    this.config = config;
    this.memory = memory;
    this.name = name;
    this.ids = id.length / UniqueId.BYTES;
    this.nativeName = NcclConfig.name(config);
    this.id = ncclUniqueId.allocateArray(ids, arena);
    MemorySegment.copy(id, 0, this.id, ValueLayout.JAVA_BYTE, 0, id.length);
    this.outs = arena.allocate(ValueLayout.ADDRESS, ranks.size());
  }

  /**
   * Joins.
   *
   * @param ids gives the bytes of one unique id, or of several, after the memory was looked at
   * @throws io.nccl4j.MemoryBudgetException if a rank would take more memory than it may
   */
  static List<CudaCommunicator> join(
      List<Rank> ranks,
      int nranks,
      Supplier<byte[]> ids,
      Team team,
      CommunicatorConfig config,
      String name) {
    requireOwnGpus(ranks);
    NcclConfig.requireKnown(config.nccl());
    List<CudaDevice> devices = ranks.stream().map(Rank::device).toList();
    CudaBudget.Plan plan = CudaBudget.plan(devices, nranks, config, name);
    SharedMemoryNeed.require(devices, nranks, plan.config(), name);
    byte[] id = ids.get();
    if (id.length > UniqueId.BYTES) {
      Features.SCALABLE_INIT.require();
    }
    ranks.forEach(rank -> team.expect(rank.rank, nranks));
    JoinMemory memory = new JoinMemory(devices, plan.prediction());
    return new CudaInit(ranks, nranks, id, team, plan.config(), memory, name).run();
  }

  private List<CudaCommunicator> run() {
    long start = System.nanoTime();
    List<CudaCommunicator> joined = new ArrayList<>();
    try {
      Patiently.run(
          "nccl4j-join-" + name,
          this::call,
          config.initTimeout(),
          this::abort,
          this::failed,
          this::late);
      for (int i = 0; i < ranks.size(); i++) {
        long left = config.initTimeout().toNanos() - (System.nanoTime() - start);
        awaitReady(handle(i), Duration.ofNanos(Math.max(0, left)), this::what);
      }
      for (Rank rank : ranks) {
        MemorySegment handle = handle(joined.size());
        joined.add(
            CudaCommunicator.create(rank.rank, nranks, rank.device, handle, team, config, name));
        joined.getLast().keep(nativeName);
      }
      memory.joined(joined);
    } catch (NcclException e) {
      giveUp(joined);
      memory.gaveUp();
      throw e;
    }
    return joined;
  }

  /** One group, so that all ranks of this call join at once; nothing in it may wait. */
  private void call() {
    ranks.forEach(rank -> rank.device.prepare());
    MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
    NcclResults.check(Nccl.ncclGroupStart(), "ncclGroupStart, to join " + name);
    int result = NcclResults.SUCCESS;
    NcclException lost = null;
    for (int i = 0; i < ranks.size() && !NcclResults.isFailure(result) && lost == null; i++) {
      try (CudaDevice.Scope ignored = ranks.get(i).device.enter()) {
        MemorySegment out = outs.asSlice(i * ValueLayout.ADDRESS.byteSize());
        int rank = ranks.get(i).rank;
        result =
            ids == 1
                ? Nccl.ncclCommInitRankConfig(out, nranks, id, rank, nativeConfig)
                : Nccl.ncclCommInitRankScalable(out, nranks, rank, ids, id, nativeConfig);
      } catch (NcclException e) {
        // The group is ended all the same, or it would swallow the thread's next operations.
        lost = e;
      }
    }
    int end = Nccl.ncclGroupEnd();
    if (lost != null) {
      throw lost;
    }
    NcclResults.check(NcclResults.isFailure(result) ? result : end, "joining " + name);
  }

  /** NCCL writes handles before it waits. */
  private MemorySegment handle(int i) {
    return (MemorySegment) POINTER.getAcquire(outs, i * ValueLayout.ADDRESS.byteSize());
  }

  private String what() {
    return (ranks.size() == 1 ? "rank " + ranks.getFirst().rank : ranks.size() + " ranks")
        + " joining "
        + name
        + " (ranks that have not joined in this process: "
        + team.absent()
        + ")";
  }

  /** What one of the ranks ran into while the others still wait for it. */
  private @Nullable NcclException failed() {
    for (int i = 0; i < ranks.size(); i++) {
      MemorySegment handle = handle(i);
      int result = handle.equals(MemorySegment.NULL) ? NcclResults.SUCCESS : asyncError(handle);
      if (NcclResults.isFailure(result)) {
        return NcclResults.failure(result, "rank " + ranks.get(i).rank + " joining " + name);
      }
    }
    return null;
  }

  private DeadlineException late() {
    return late(what(), config.initTimeout());
  }

  private static DeadlineException late(String what, Duration timeout) {
    return new DeadlineException(
        what + " was not ready after " + timeout.toMillis() + " ms",
        "start all ranks with the same unique id and nranks; NCCL_DEBUG=INFO shows which came;"
            + " init-timeout sets the deadline");
  }

  private void giveUp(List<CudaCommunicator> joined) {
    abort(joined.size());
    joined.forEach(CudaCommunicator::abort);
    joined.forEach(CudaCommunicator::close);
  }

  private void abort() {
    abort(0);
  }

  /** Aborts what no communicator owns; each handle once. */
  private synchronized void abort(int first) {
    for (int i = Math.max(first, aborted); i < ranks.size(); i++) {
      MemorySegment handle = handle(i);
      if (!handle.equals(MemorySegment.NULL)) {
        CudaCommunicator.abortInBackground(handle, name, () -> {});
      }
      aborted = i + 1;
    }
  }

  /** Waits until a handle can be used: at once, unless the configuration lets NCCL not block. */
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
        throw late(what.get(), timeout);
      }
      CudaStream.pause(waited);
    }
  }

  static int asyncError(MemorySegment handle) {
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

  /** Whether several ranks may be on one GPU. */
  static boolean mayShareGpus() {
    return Features.SHARED_GPU.isPresent() && "1".equals(System.getenv(SHARED_GPU));
  }
}
