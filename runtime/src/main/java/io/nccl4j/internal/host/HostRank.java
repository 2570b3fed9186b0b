package io.nccl4j.internal.host;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.LaneEngine;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.engine.OwnSegments;
import io.nccl4j.internal.host.engine.RankView;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.join.Place;
import io.nccl4j.internal.host.layout.Ledger;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.life.Activity;
import io.nccl4j.internal.host.life.Explanation;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.progress.Placement;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.WaitSteps;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.Failures;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a communicator as its works, streams and graphs see it: the engines that carry out
 * its operations, how it is, and what it says of a failure.
 */
final class HostRank extends Padded {
  private static final int NOBODY = 0;
  private static final int SOMEBODY = 1;
  private static final VarHandle COMPARING;

  static {
    try {
      COMPARING = MethodHandles.lookup().findVarHandle(HostRank.class, "comparing", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Communicator communicator;
  private final int rank;
  private final CommunicatorConfig config;
  private final LocalPart part;
  private final Numbers numbers;
  private final Explanation explanation;
  private final Activity<HostWork> activity;
  private final Health health;
  private final Placement placement;
  private final Tuning tuning;
  private final RankView view;
  private final CollectiveEngine collectives;
  private final LaneEngine lanes;
  private final @Nullable Outside outside;
  private final AtomicLong graphLaunches = new AtomicLong();

  /** Whether a thread looks at others' outboxes, which it may not do after the close. */
  @SuppressWarnings("unused") // by VarHandle
  private int comparing;

  private volatile boolean told;

  /** A rank that has called nothing yet. */
  HostRank(ScheduledCommunicator<?> communicator, Place<HostWork> place) {
    this.communicator = communicator;
    rank = place.rank();
    config = place.config();
    part = place.part();
    int nranks = part.nranks();
    Ledger ledger = new Ledger(part.control(), rank);
    numbers = new Numbers(ledger, nranks);
    explanation = new Explanation(place.name(), rank, place.provisions().fifo(), ledger, part);
    activity = new Activity<>(place.provisions().fifo());
    long timeout = config.operationTimeout().toNanos();
    outside = place.outside();
    int here = part.here().length;
    int sharing = outside == null ? here : WaitSteps.sharing(here, outside.ranksOnMachine());
    health =
        new Health(
            rank, part, sharing, explanation, activity, timeout, communicator.failureNotice());
    placement = new Placement(part.control(), rank, nranks, sharing);
    part.segments()[rank] = new OwnSegments(nranks);
    tuning = Tuning.of(config, nranks, outside != null);
    view =
        new RankView(
            rank,
            part.here(),
            part.spansProcesses(),
            part.control(),
            health,
            part.segments(),
            place.provisions().account(),
            tuning);
    collectives = new CollectiveEngine(view, outside);
    lanes = new LaneEngine(view);
    if (outside != null) {
      outside.begin(place.provisions().account(), explanation.wording(), health);
      health.reach(outside);
    }
  }

  /** What the program calls it by. */
  Communicator communicator() {
    return communicator;
  }

  int rank() {
    return rank;
  }

  CommunicatorConfig config() {
    return config;
  }

  // ---- other hosts

  /** Takes what other hosts have sent, if there are any, unless it was taken a moment ago. */
  void lookOutsideNowAndThen() {
    if (outside != null) {
      outside.lookNowAndThen();
    }
  }

  private void lookOutside() {
    if (outside != null) {
      outside.look();
    }
  }

  /** Ends the way to other hosts. */
  void leaveOthers() {
    if (outside != null) {
      outside.close();
    }
  }

  // ---- its parts

  /** How its operations are carried out. */
  Tuning tuning() {
    return tuning;
  }

  LocalPart part() {
    return part;
  }

  Numbers numbers() {
    return numbers;
  }

  CollectiveEngine collectives() {
    return collectives;
  }

  LaneEngine lanes() {
    return lanes;
  }

  /** Its way to ranks on other hosts; null if all are on this one. */
  @Nullable Outside outside() {
    return outside;
  }

  /**
   * Whether there are other hosts. The compiler inlines this, unlike {@link #outside}, whose class
   * is loaded only if there are.
   */
  boolean spansHosts() {
    return outside != null;
  }

  /**
   * Gets on with a send or receive; see {@link io.nccl4j.internal.host.engine.Step}.
   *
   * @param behind the message that takes a step as soon as this one is done, if there is one
   */
  int stepMessage(HostWork work, @Nullable HostWork behind, int patience) {
    if (outside != null && !part.isHere(work.root)) {
      return outside.step(work, behind != null);
    }
    int result = lanes.step(work, patience);
    if (behind == null) {
      flush();
    }
    return result;
  }

  /** Sends a message before its turn; false if that must wait. */
  boolean sendEarly(HostWork work) {
    if (!isHealthy()) {
      return false;
    }
    return outside != null && !part.isHere(work.root)
        ? outside.sendEarly(work)
        : lanes.sendEarly(work);
  }

  /** Lets leave what was kept back for other hosts. */
  void flush() {
    if (outside != null) {
      outside.flush();
    }
  }

  /** What the engines know of the rank. */
  RankView view() {
    return view;
  }

  Health health() {
    return health;
  }

  Explanation explanation() {
    return explanation;
  }

  /** What it says on every backend. */
  Wording wording() {
    return explanation.wording();
  }

  Placement placement() {
    return placement;
  }

  Activity<HostWork> activity() {
    return activity;
  }

  // ---- graphs

  /** A graph with operations of this rank was launched. */
  void graphStarted() {
    graphLaunches.incrementAndGet();
    activity.graphs().incrementAndGet();
  }

  /** Such a graph has run, or was dropped. */
  void graphEnded() {
    if (activity.graphs().decrementAndGet() == 0 && !isHealthy()) {
      becomeQuietIfIdle();
    }
  }

  long graphLaunches() {
    return graphLaunches.get();
  }

  // ---- failure

  boolean isHealthy() {
    return health.isGood();
  }

  void becomeQuietIfIdle() {
    health.becomeQuietIfIdle();
  }

  /** The first failure, after a look at the other ranks; the program hears of it. */
  Optional<NcclException> failure() {
    if (!isHealthy()) {
      health.lookUnlessClosed();
      told();
    }
    return Optional.ofNullable(health.failure());
  }

  /** The program hears of the failure, by an operation if not at once. */
  void told() {
    told = true;
  }

  /** Gives up what is unfinished: whoever waited for it has waited long enough. */
  void closeEarly(String problem) {
    health.failUnlessClosed(Wording.closedEarly(problem), RankState.LEFT_EARLY);
  }

  // ---- contradictions between ranks

  /** Whether others may contradict it without this rank's having looked. */
  boolean isUncompared() {
    return outside != null || collectives.comparison().isUncompared();
  }

  /**
   * Compares what this rank called with what the others have shown by now, after operations in
   * which it did not look at all of them. Any thread, at any time; it waits for nothing.
   *
   * @throws MismatchException if ranks contradict each other
   */
  void compare() {
    lookOutside();
    if (!COMPARING.compareAndSet(this, NOBODY, SOMEBODY)) {
      return;
    }
    try {
      int peer = collectives.comparison().compareLatest();
      if (peer >= 0) {
        NcclException ignored = health.mismatch(collectives.completed(), peer);
      }
      health.look();
    } finally {
      COMPARING.setRelease(this, NOBODY);
    }
    if (!told && health.failure() instanceof MismatchException e) {
      told();
      throw Failures.again(e);
    }
  }

  /**
   * The same for good, when all that this rank called is complete. Of two ranks that contradict
   * each other at least the one that leaves last finds it.
   *
   * @return a contradiction that the program was not told of; null if there is none
   */
  @Nullable NcclException compareFinally() {
    lookOutside();
    while (!COMPARING.compareAndSet(this, NOBODY, SOMEBODY)) {
      Thread.onSpinWait();
    }
    if (isHealthy()) {
      // What this rank has shown is visible to whoever shows something after this look.
      VarHandle.fullFence();
      for (int k = 0; k < part.nranks(); k++) {
        long seq = k == rank ? 0 : collectives.comparison().lastDifference(k);
        if (seq != 0) {
          return health.mismatch(seq, k);
        }
      }
      health.look();
    }
    return !told && health.failure() instanceof MismatchException e ? Failures.again(e) : null;
  }
}
