package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * How the ranks of one call join, a new communicator or one that others grow: NCCL makes their
 * handles, and what is not ready in time is aborted.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class NcclJoin implements Patiently.Wait {
  /** A rank that joins. */
  public record Rank(int rank, Gpu gpu) {}

  /** The variable that allows several ranks on one GPU. */
  public static final String SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE";

  private final List<Rank> ranks;
  private final int nranks;
  private final boolean grows;
  private final Team team;
  private final CommunicatorConfig config;
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

  /**
   * A call that joins.
   *
   * @param id the bytes of one unique id, or of several
   * @param grows whether the others are a communicator already
   */
  public NcclJoin(
      List<Rank> ranks,
      int nranks,
      byte[] id,
      boolean grows,
      Team team,
      CommunicatorConfig config,
      String name) {
    this.ranks = ranks;
    this.nranks = nranks;
    this.grows = grows;
    this.team = team;
    this.config = config;
    this.name = name;
    this.ids = id.length / UniqueId.BYTES;
    this.nativeName = NcclConfig.name(config);
    this.id = ncclUniqueId.allocateArray(ids, arena);
    MemorySegment.copy(id, 0, this.id, ValueLayout.JAVA_BYTE, 0, id.length);
    this.outs = arena.allocate(ValueLayout.ADDRESS, ranks.size());
  }

  /**
   * Joins; returns when the handles can be used.
   *
   * @throws NcclException why they cannot; what NCCL has made is to be abandoned
   */
  public void run() {
    long start = System.nanoTime();
    Patiently.run("nccl4j-join-" + name, this::call, config.initTimeout(), this);
    for (int i = 0; i < ranks.size(); i++) {
      long left = config.initTimeout().toNanos() - (System.nanoTime() - start);
      NcclQueries.awaitReady(handle(i), Duration.ofNanos(Math.max(0, left)), this::what);
    }
  }

  /** What NCCL has made for a rank; whoever takes it keeps {@link #nativeName()} with it. */
  public MemorySegment handle(int i) {
    return outs.getAtIndex(ValueLayout.ADDRESS, i);
  }

  /** The name whose address NCCL has. */
  public MemorySegment nativeName() {
    return nativeName;
  }

  /** The ranks do not join after all: aborts the handles that nobody has taken, from one on. */
  public void abandon(int first, NcclException why) {
    if (why instanceof InterruptedWaitException) {
      // Without it the other ranks would wait until their own deadlines.
      team.gaveUp(ranks.getFirst().rank, name, why);
    }
    abort(first);
  }

  /**
   * One group, so that all ranks of this call join at once; nothing in it waits for other ranks.
   */
  private void call() {
    ranks.forEach(rank -> rank.gpu.prepare());
    MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
    NcclResults.check(Nccl.ncclGroupStart(), "ncclGroupStart, to join " + name);
    int result = NcclResults.SUCCESS;
    NcclException lost = null;
    boolean goesOn = true;
    for (int i = 0; i < ranks.size() && goesOn; i++) {
      try (Gpu.Scope ignored = ranks.get(i).gpu.enter()) {
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
   * What one of the ranks ran into while the others still wait for it, or that another rank gave up
   * or died, as far as that is known: none can join in its place.
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
    return cause == null ? team.absence(name) : Failures.again(cause);
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

  /** Throws if several ranks are on one GPU and may not be. */
  public static void requireOwnGpus(List<Rank> ranks) {
    Set<Gpu> seen = new HashSet<>();
    for (Rank rank : ranks) {
      if (!seen.add(rank.gpu) && !mayShareGpus()) {
        throw new InvalidUsageException(
            "two ranks are on " + rank.gpu,
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
