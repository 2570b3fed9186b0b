package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.internal.cuda.memory.CudaBudget;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.JoinMemory;
import io.nccl4j.internal.cuda.nccl.NcclConfig;
import io.nccl4j.internal.cuda.nccl.NcclHandle;
import io.nccl4j.internal.cuda.nccl.NcclQueries;
import io.nccl4j.internal.cuda.nccl.NcclTuning;
import io.nccl4j.internal.cuda.nccl.Team;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.memory.MemoryPrediction;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The communicators that are made of one: by splitting, shrinking and growing it. */
final class CudaChildren {
  private static final int ABORT = 1;

  private final CudaCommunicator parent;
  private final CudaRank rank;
  private final Team team;
  private final CudaHealth health;
  private final CudaBacklog backlog;
  private final Map<String, Integer> shrinks = new HashMap<>();

  /** Ranks that took part in no shrink: NCCL counts children, and theirs would differ. */
  private final BitSet leftOut = new BitSet();

  private long splits;
  private int grows;
  private @Nullable UniqueId growId;

  CudaChildren(CudaCommunicator parent, CudaRank rank, Team team, CudaBacklog backlog) {
    this.parent = parent;
    this.rank = rank;
    this.team = team;
    this.health = rank.health();
    this.backlog = backlog;
  }

  // ---- splits

  @Nullable CudaCommunicator split(int color, int key, @Nullable CommunicatorConfig config) {
    rank.requireAlive();
    // All ranks suspend together, so that nobody has to be told of this refusal.
    rank.requireResumed();
    requireAll("split");
    long split = ++splits;
    CudaBudget.Plan plan;
    try {
      plan = splitPlan(color, config);
    } catch (NcclException e) {
      throw refused(split, e);
    }
    CudaCommunicator made = makeSplit(split, color, key, plan);
    NcclException refusal = team.refusal(rank.self(), split);
    if (refusal != null) {
      if (made != null) {
        // All its ranks close it. An abort would end a parent that shares its resources.
        made.close();
      }
      throw refusal;
    }
    return made;
  }

  private CudaBudget.Plan splitPlan(int color, @Nullable CommunicatorConfig config) {
    CommunicatorConfig given = requireConfig("split", config);
    NcclConfig.requireKnown(NcclOptions.of(given));
    backlog.requireIdle("split");
    if (color < 0 && color != Communicator.NO_COLOR) {
      throw new InvalidArgumentException(
          "split: the color is " + color, "use 0 or more, or Communicator.NO_COLOR");
    }
    // The largest child that there can be: who will be in this one is known to NCCL alone.
    return color == Communicator.NO_COLOR
        ? new CudaBudget.Plan(given, null)
        : plan("split", parent.nranks(), given);
  }

  /**
   * What only this rank knows is wrong: the others are told, and it takes part without a color, for
   * they wait for it inside NCCL. Where some can't be told, they must not go on without it.
   */
  private NcclException refused(long split, NcclException cause) {
    if (!team.refuse(rank.self(), split, cause)) {
      health.fail(cause);
      return cause;
    }
    CudaBudget.Plan none = new CudaBudget.Plan(parent.config(), null);
    try {
      GroupScope.suspended(() -> makeSplit(split, Communicator.NO_COLOR, 0, none));
    } catch (NcclException e) {
      cause.addSuppressed(e);
    }
    return cause;
  }

  private @Nullable CudaCommunicator makeSplit(
      long split, int color, int key, CudaBudget.Plan plan) {
    try {
      return make(
          team.child(split, color),
          plan,
          "split",
          (comm, arena, out, nativeConfig) ->
              Nccl.ncclCommSplit(comm, color, key, out, nativeConfig));
    } catch (InvalidArgumentException e) {
      // The other ranks wait for this one.
      health.fail(e);
      throw e;
    }
  }

  // ---- shrinks

  CudaCommunicator shrink(int[] excludedRanks, boolean abort, CommunicatorConfig config) {
    Features.SHRINK.require();
    requireConfig("shrink", config);
    NcclConfig.requireKnown(NcclOptions.of(config));
    int[] excluded = excluded(excludedRanks);
    parent.enterAlone("shrink");
    try {
      rank.requireResumed();
      BitSet stay = (BitSet) leftOut.clone();
      Arrays.stream(excluded).forEach(stay::clear);
      if (!stay.isEmpty()) {
        throw leftOutBefore("shrink", stay);
      }
      CudaBudget.Plan plan;
      if (abort) {
        rank.requireOpen();
        CudaBacklog.requireNoGroup("shrink");
        plan = plan("shrink", parent.nranks() - excluded.length, config);
        health.revoke(
            new AbortedException(
                "operations of communicator " + parent.name() + " were given up by shrink",
                "close it"));
      } else {
        rank.requireAlive();
        backlog.requireIdle("shrink");
        plan = plan("shrink", parent.nranks() - excluded.length, config);
      }
      Arrays.stream(excluded).forEach(leftOut::set);
      String ranks = Arrays.toString(excluded);
      Team child = team.child("shrink" + ranks + "-" + shrinks.merge(ranks, 1, Integer::sum));
      CudaCommunicator made =
          make(
              child,
              plan,
              "shrink",
              (comm, arena, out, nativeConfig) ->
                  Nccl.ncclCommShrink(
                      comm,
                      arena.allocateFrom(ValueLayout.JAVA_INT, excluded),
                      excluded.length,
                      out,
                      nativeConfig,
                      abort ? ABORT : 0));
      if (abort) {
        backlog.awaitStopped();
      }
      return Objects.requireNonNull(made);
    } finally {
      parent.leave();
    }
  }

  private int[] excluded(int @Nullable [] given) {
    if (given == null || given.length == 0 || given.length >= parent.nranks()) {
      throw new InvalidArgumentException(
          "shrink: excluded ranks are " + Arrays.toString(given),
          "pass 1 to " + (parent.nranks() - 1) + " ranks");
    }
    int[] sorted = given.clone();
    Arrays.sort(sorted);
    for (int i = 0; i < sorted.length; i++) {
      boolean twice = i > 0 && sorted[i] == sorted[i - 1];
      if (sorted[i] < 0 || sorted[i] >= parent.nranks() || sorted[i] == parent.rank() || twice) {
        throw new InvalidArgumentException(
            "shrink: excluded ranks are " + Arrays.toString(given) + " on rank " + parent.rank(),
            "pass distinct ranks other than this one, from 0 to " + (parent.nranks() - 1));
      }
    }
    return sorted;
  }

  private void requireAll(String what) {
    if (!leftOut.isEmpty()) {
      throw leftOutBefore(what, leftOut);
    }
  }

  private InvalidUsageException leftOutBefore(String what, BitSet ranks) {
    return new InvalidUsageException(
        what
            + ": ranks "
            + ranks
            + " of communicator "
            + parent.name()
            + " were left out of a shrink",
        "NCCL cannot make another communicator with them from this one; use the shrunken one");
  }

  // ---- grows

  UniqueId createGrowId() {
    Features.GROW.require();
    parent.enterFor("createGrowId");
    try {
      // The call is made on a thread of its own, which NCCL may keep.
      MemorySegment id = ncclUniqueId.allocate(Arena.ofAuto());
      if (growId != null) {
        throw new InvalidUsageException(
            "createGrowId: communicator " + parent.name() + " has an id that was not used",
            "grow with it");
      }
      parent.calls().run("createGrowId", comm -> Nccl.ncclCommGetUniqueId(comm, id));
      growId = UniqueId.ofBytes(id.toArray(ValueLayout.JAVA_BYTE));
      return growId;
    } finally {
      parent.leave();
    }
  }

  /** The first and the last rank wait inside the call until the root has made the id. */
  CudaCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig config) {
    Features.GROW.require();
    requireConfig("grow", config);
    NcclConfig.requireKnown(NcclOptions.of(config));
    if (nranks <= parent.nranks()) {
      throw new InvalidArgumentException(
          "grow: nranks is " + nranks,
          "pass more than the " + parent.nranks() + " ranks there are");
    }
    parent.enterFor("grow");
    try {
      if (!Objects.equals(id, growId)) {
        throw new InvalidArgumentException(
            id == null
                ? "grow: this rank created an id, but does not pass it"
                : "grow: this rank passes an id that it did not create",
            "pass what createGrowId returned on the root, and null on all other ranks");
      }
      backlog.requireIdle("grow");
      requireAll("grow");
      CudaBudget.Plan plan = plan("grow", nranks, config);
      growId = null;
      return Objects.requireNonNull(
          make(
              team.child("grow-" + ++grows),
              plan,
              "grow",
              (comm, arena, out, nativeConfig) ->
                  Nccl.ncclCommGrow(comm, nranks, write(arena, id), -1, out, nativeConfig)));
    } finally {
      parent.leave();
    }
  }

  private static MemorySegment write(Arena arena, @Nullable UniqueId id) {
    if (id == null) {
      return MemorySegment.NULL;
    }
    MemorySegment segment = ncclUniqueId.allocate(arena);
    byte[] bytes = id.toBytes();
    MemorySegment.copy(bytes, 0, segment, ValueLayout.JAVA_BYTE, 0, bytes.length);
    return segment;
  }

  private static CommunicatorConfig requireConfig(String what, @Nullable CommunicatorConfig given) {
    if (given == null) {
      throw new InvalidArgumentException(
          what + ": the config is null", "pass a configuration, or leave it out");
    }
    return given;
  }

  // ---- all of them

  /**
   * What NCCL is told so that a child fits.
   *
   * @throws io.nccl4j.memory.MemoryBudgetException if it does not
   */
  private CudaBudget.Plan plan(String what, int nranks, CommunicatorConfig config) {
    NcclTuning.apply(config);
    return CudaBudget.planChild(
        rank.self().memory(),
        team.devices(),
        nranks,
        config,
        what + " of communicator " + parent.name() + ", with " + nranks + " ranks,");
  }

  /** A call that makes a child. */
  private interface Call {
    int run(MemorySegment parent, Arena arena, MemorySegment out, MemorySegment config);
  }

  /** Makes a child; null if NCCL makes none for this rank. */
  private @Nullable CudaCommunicator make(
      Team child, CudaBudget.Plan plan, String what, Call call) {
    CommunicatorConfig config = plan.config();
    // NCCL may write to it from a thread of its own, whenever all ranks have come.
    MemorySegment out = rank.nccl().arena().allocate(ValueLayout.ADDRESS);
    MemorySegment nativeName = NcclConfig.name(config);
    JoinMemory memory = new JoinMemory(List.of(rank.self().memory()), plan.prediction());
    int place = rank.self().rank();
    team.meetIn(child, parent.nranks(), place);
    CudaCommunicator made = null;
    try {
      parent
          .calls()
          .run(
              what,
              config.initTimeout(),
              handle -> {
                try (Arena arena = Arena.ofConfined()) {
                  MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
                  return call.run(handle, arena, out, nativeConfig);
                }
              });
      MemorySegment handle = out.get(ValueLayout.ADDRESS, 0);
      if (!handle.equals(MemorySegment.NULL)) {
        made = attach(handle, child, config, what + " of communicator " + parent.name());
      }
    } finally {
      if (made == null) {
        child.unmet(place);
      }
    }
    if (made == null) {
      return null;
    }
    made.own().nccl().keep(nativeName);
    try {
      made.joined(memory.joined(0, plan.prediction() == null ? null : exact(made), made.calls()));
    } catch (NcclException e) {
      made.abort();
      made.close();
      throw e;
    }
    return made;
  }

  private MemoryPrediction exact(CudaCommunicator made) {
    return CudaBudget.predictChild(
        made.own().self().memory(), team.devices(), made.nranks(), made.config());
  }

  /** A child that NCCL has made. */
  private CudaCommunicator attach(
      MemorySegment handle, Team child, CommunicatorConfig config, String what) {
    String given = config.name();
    String name = given == null ? parent.name() + "." + child.number() : given;
    try {
      NcclQueries.awaitReady(handle, config.initTimeout(), () -> what);
      int own = NcclQueries.rank(handle);
      child.met(rank.self().rank(), own);
      return CudaCommunicator.create(
          own, NcclQueries.count(handle), rank.self().memory(), handle, child, config, name);
    } catch (NcclException e) {
      NcclHandle.abortInBackground(handle, name, () -> {});
      throw e;
    }
  }
}
