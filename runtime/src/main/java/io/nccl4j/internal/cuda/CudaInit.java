package io.nccl4j.internal.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * How ranks join, a new communicator or one that others grow: what is not ready in time is aborted,
 * and what goes wrong leaves no communicator behind.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaInit implements Patiently.Wait {
  /** A rank that joins. */
  record Rank(int rank, CudaDevice device) {}

  /** The variable that allows several ranks on one GPU. */
  static final String SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE";

  private final List<Rank> ranks;
  private final int nranks;
  private final boolean grows;
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

  /** Ranks whose handles are NCCL's communicators, in the order of the ranks. */
  private int made;

  private int aborted;
  private boolean givenUp;

  private CudaInit(
      List<Rank> ranks,
      int nranks,
      byte[] id,
      boolean grows,
      Team team,
      CommunicatorConfig config,
      JoinMemory memory,
      String name) {
    this.ranks = ranks;
    this.nranks = nranks;
    this.grows = grows;
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
    return new CudaInit(ranks, nranks, id, false, team, plan.config(), memory, name).run();
  }

  /** Joins, as a new rank, a communicator that others grow. */
  static CudaCommunicator joinGrowing(
      Rank rank, int nranks, UniqueId id, Team team, CommunicatorConfig config, String name) {
    Features.GROW.require();
    NcclConfig.requireKnown(config.nccl());
    List<CudaDevice> devices = List.of(rank.device);
    CudaBudget.Plan plan = CudaBudget.plan(devices, nranks, config, name);
    SharedMemoryNeed.require(devices, nranks, plan.config(), name);
    team.expect(rank.rank, nranks);
    JoinMemory memory = new JoinMemory(devices, plan.prediction());
    byte[] bytes = id.toBytes();
    return new CudaInit(List.of(rank), nranks, bytes, true, team, plan.config(), memory, name)
        .run()
        .getFirst();
  }

  private List<CudaCommunicator> run() {
    long start = System.nanoTime();
    List<CudaCommunicator> joined = new ArrayList<>();
    try {
      Patiently.run("nccl4j-join-" + name, this::call, config.initTimeout(), this);
      for (int i = 0; i < ranks.size(); i++) {
        long left = config.initTimeout().toNanos() - (System.nanoTime() - start);
        NcclQueries.awaitReady(handle(i), Duration.ofNanos(Math.max(0, left)), this::what);
      }
      for (Rank rank : ranks) {
        MemorySegment handle = handle(joined.size());
        joined.add(
            CudaCommunicator.create(rank.rank, nranks, rank.device, handle, team, config, name));
        joined.getLast().nccl().keep(nativeName);
      }
      memory.joined(joined);
    } catch (NcclException e) {
      if (e instanceof InterruptedWaitException) {
        // Without it the other ranks would wait until their own deadlines.
        team.gaveUp(ranks.getFirst().rank, name, e);
      }
      abort(joined.size());
      joined.forEach(CudaCommunicator::abort);
      joined.forEach(CudaCommunicator::close);
      memory.gaveUp();
      throw e;
    }
    return joined;
  }

  /**
   * One group, so that all ranks of this call join at once; nothing in it waits for other ranks.
   */
  private void call() {
    ranks.forEach(rank -> rank.device.prepare());
    MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
    NcclResults.check(Nccl.ncclGroupStart(), "ncclGroupStart, to join " + name);
    int result = NcclResults.SUCCESS;
    NcclException lost = null;
    boolean goesOn = true;
    for (int i = 0; i < ranks.size() && goesOn; i++) {
      try (CudaDevice.Scope ignored = ranks.get(i).device.enter()) {
        result = join(ranks.get(i).rank, out(i), nativeConfig);
        goesOn = !NcclResults.isFailure(result) && made(i);
      } catch (NcclException e) {
        // The group is ended all the same, or it would swallow the thread's next operations.
        lost = e;
        goesOn = false;
      }
    }
    int end = Nccl.ncclGroupEnd();
    if (lost != null) {
      throw lost;
    }
    NcclResults.check(NcclResults.isFailure(result) ? result : end, "joining " + name);
  }

  private int join(int rank, MemorySegment out, MemorySegment nativeConfig) {
    if (grows) {
      return Nccl.ncclCommGrow(MemorySegment.NULL, nranks, id, rank, out, nativeConfig);
    }
    return ids == 1
        ? Nccl.ncclCommInitRankConfig(out, nranks, id, rank, nativeConfig)
        : Nccl.ncclCommInitRankScalable(out, nranks, rank, ids, id, nativeConfig);
  }

  private MemorySegment out(int i) {
    return outs.asSlice(i * ValueLayout.ADDRESS.byteSize(), ValueLayout.ADDRESS);
  }

  private MemorySegment handle(int i) {
    return outs.getAtIndex(ValueLayout.ADDRESS, i);
  }

  private String what() {
    if (grows) {
      return "rank " + ranks.getFirst().rank + " of " + nranks + " joining " + name;
    }
    return (ranks.size() == 1 ? "rank " + ranks.getFirst().rank : ranks.size() + " ranks")
        + " joining "
        + name
        + " (ranks that have not joined in this process: "
        + team.absent()
        + ")";
  }

  // ---- handles

  /**
   * NCCL has made a rank's handle; returns whether anybody wants it.
   *
   * <p>NCCL writes a handle before it knows whether the call succeeds, and frees it again if that
   * fails: while the call is under way, nobody else may touch it. From its return on it lasts until
   * it is aborted, also when the group fails.
   */
  private synchronized boolean made(int i) {
    made = i + 1;
    if (givenUp) {
      abort(i);
    }
    return !givenUp;
  }

  /**
   * What one of the ranks ran into while the others still wait for it, or that another rank of this
   * process gave up: none can join in its place.
   */
  @Override
  public synchronized @Nullable NcclException over() {
    for (int i = 0; i < made; i++) {
      int result = NcclQueries.asyncError(handle(i));
      if (NcclResults.isFailure(result)) {
        return NcclResults.failure(result, "rank " + ranks.get(i).rank + " joining " + name);
      }
    }
    return ofPeer();
  }

  @Override
  public @Nullable NcclException ofPeer() {
    NcclException cause = team.failure();
    return cause == null ? null : Failures.again(cause);
  }

  @Override
  public NcclException late() {
    return grows
        ? CudaCalls.late(what(), config.initTimeout())
        : NcclQueries.notReady(what(), config.initTimeout());
  }

  @Override
  public void giveUp(NcclException reason) {
    team.gaveUp(ranks.getFirst().rank, name, reason);
    abort(0);
  }

  /** Aborts what no communicator owns, each handle once, and what NCCL makes from now on. */
  private synchronized void abort(int first) {
    givenUp = true;
    for (int i = Math.max(first, aborted); i < made; i++) {
      NcclHandle.abortInBackground(handle(i), name, () -> {});
      aborted = i + 1;
    }
  }

  // ---- shared GPUs

  private static void requireOwnGpus(List<Rank> ranks) {
    Set<CudaDevice> seen = new HashSet<>();
    for (Rank rank : ranks) {
      if (!seen.add(rank.device) && !mayShareGpus()) {
        throw new InvalidUsageException(
            "two ranks are on " + rank.device,
            Features.SHARED_GPU.isPresent()
                ? "give each rank its own GPU, or start the process with " + SHARED_GPU + "=1"
                : "give each rank its own GPU; sharing one needs " + Features.SHARED_GPU.needs());
      }
    }
  }

  /** Whether several ranks may be on one GPU. */
  static boolean mayShareGpus() {
    return Features.SHARED_GPU.isPresent() && "1".equals(System.getenv(SHARED_GPU));
  }
}
