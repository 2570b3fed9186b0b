package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.join.Arrival;
import io.nccl4j.internal.host.join.Place;
import io.nccl4j.internal.host.join.Provisions;
import io.nccl4j.internal.host.join.Split;
import io.nccl4j.internal.host.join.Survivors;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.host.life.LiveRanks;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.life.LocalRank;
import io.nccl4j.internal.host.memory.BufferUser;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Creation;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.Interrupts;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank of the host engine: which operations it accepts, what it is and has, how it comes and
 * goes. The rest is done by its parts, each with a job of its own.
 *
 * <p>It owns its part of the control block from the moment it is alive until it has left, and its
 * staging area.
 */
final class HostCommunicator extends ScheduledCommunicator<HostWork>
    implements BufferUser, LocalRank {
  private final String name;
  private final HostRank own;
  private final boolean isForced;
  private final LocalPart part;
  private final ControlBlock control;
  private final Numbers numbers;
  private final Health health;
  private final HostBacklog backlog;
  private final MemoryBook.Account account;
  private final MemoryBook.Booking fifoBooking;
  private final HostHeap.@Nullable Block staging;

  private final Object closing = new Object();

  private HostCommunicator(Place<HostWork> place) {
    super(
        place.name(),
        place.rank(),
        place.part().nranks(),
        place.device(),
        place.config(),
        place.provisions().fifo());
    Provisions<HostWork> provisions = place.provisions();
    name = place.name();
    part = place.part();
    control = part.control();
    account = provisions.account();
    fifoBooking = provisions.fifoBooking();
    staging = provisions.staging();
    if (staging != null) {
      control.setPlain(control.staging(rank()), staging.offset());
    }
    own = new HostRank(this, place);
    control.setPlain(control.tuning(rank()), own.tuning().word());
    isForced = own.tuning().isForced();
    numbers = own.numbers();
    health = own.health();
    backlog = new HostBacklog(own, provisions.fifo());
  }

  /** A rank that the others can see; it is usable after {@link #awaitAll}. */
  static HostCommunicator create(Place<HostWork> place) {
    try {
      HostCommunicator communicator = new HostCommunicator(place);
      communicator.appear();
      return communicator;
    } catch (RuntimeException | Error e) {
      place.giveUp();
      throw e;
    }
  }

  /** The same, when the others have come, too. */
  static HostCommunicator attach(Place<HostWork> place) {
    HostCommunicator communicator = create(place);
    try {
      communicator.awaitAll(place);
      return communicator;
    } catch (NcclException e) {
      communicator.health.fail(Interrupts.asFailure(e));
      communicator.close();
      throw e;
    }
  }

  private void appear() {
    WorkFifo<HostWork> fifo = fifo();
    for (int i = 0; i < fifo.capacity(); i++) {
      fifo.at(i).rank = own;
    }
    part.set(rank(), this, account);
    LiveRanks.add(health);
    ProcessMemory.self().add(this);
    Progress.setRanks(LiveRanks.mostSharing());
    if (failureNotice().isAwaited()) {
      Progress.watch();
    }
    ((HostDevice) device()).ranks().add(own);
    control.setRelease(control.state(rank()), RankState.of(RankState.ALIVE, 0, 0));
  }

  /**
   * Waits until all ranks are there.
   *
   * @throws DeadlineException if they are not in time
   * @throws PeerFailedException if one says of itself what cannot be
   * @throws InvalidUsageException if the settings of some force another way
   */
  void awaitAll(Place<HostWork> place) {
    Arrival.await(place, own.view(), own.tuning());
  }

  HostRank own() {
    return own;
  }

  // ---- submitting

  @Override
  protected boolean isOwn(DeviceBuffer buffer) {
    return buffer instanceof HostBuffer;
  }

  @Override
  protected void requireQuiet(DeviceBuffer buffer, Operation operation) {
    ProcessMemory.self().quarantine().requireQuiet((HostBuffer) buffer, operation.label());
  }

  @Override
  protected void requireReady() {
    if (health.isClosed()) {
      throw own.wording().closed();
    }
    own.lookOutsideNowAndThen();
    health.look();
    NcclException cause = health.failure();
    if (cause != null) {
      own.told();
      throw own.wording().failed(cause);
    }
  }

  @Override
  public DeviceBuffer allocateStaging(long bytes) {
    return ((HostDevice) device()).allocate(account, MemoryPurpose.COPY, bytes);
  }

  /** An exchange of a split is small, and the ranks' own: it is done as it can be. */
  @Override
  protected void requireSupported(Operation operation, DataType type, ReduceOp op, long count) {
    if (isForced && health.activity().splits().get() == 0) {
      own.tuning().require(operation, count, type.byteSize());
    }
  }

  @Override
  protected void assign(HostWork work) {
    numbers.assign(work);
  }

  @Override
  public boolean hasEndedWithout(EngineWork work, int other) {
    return hasTaskEnded() && !numbers.hasCalled(work, other);
  }

  @Override
  protected HostWork newCapturedWork() {
    HostWork work = new HostWork(true);
    work.rank = own;
    return work;
  }

  @Override
  protected void awaitFifoRoom() {
    backlog.awaitRoom();
  }

  // ---- completion and failure

  @Override
  protected void gaveBack() {
    if (!health.isGood()) {
      health.becomeQuietIfIdle();
    }
  }

  @Override
  public Health health() {
    return health;
  }

  @Override
  public Optional<NcclException> failure() {
    return own.failure();
  }

  @Override
  public State state() {
    health.lookUnlessClosed();
    if (health.isClosed()) {
      return State.CLOSED;
    }
    NcclException cause = health.failure();
    return cause == null
        ? State.READY
        : cause instanceof AbortedException ? State.ABORTED : State.FAILED;
  }

  @Override
  public Optional<CommunicatorHosts> hosts() {
    Outside outside = own.outside();
    return Optional.of(
        outside == null
            ? new CommunicatorHosts(
                List.of(IntStream.range(0, nranks()).boxed().toList()), "", "", "")
            : outside.hosts());
  }

  @Override
  public CommunicatorCounters counters() {
    int unfinished = fifo().inUse();
    return new CommunicatorCounters(
        numbers.collectives(),
        numbers.sends(),
        numbers.receives(),
        own.graphLaunches(),
        unfinished,
        own.activity().graphs().get(),
        (long) fifo().capacity() * Work.BYTES,
        fifo().takenBytes(),
        fifo().highWaterBytes(),
        backlog.timesFull(),
        backlog.waitedNanos(),
        operationCounters());
  }

  @Override
  public MemoryReport memory() {
    ProcessMemory.self().heap().sweepIfWaiting();
    return new MemoryReport(this + " on " + device(), account.lines(), List.of());
  }

  /** Those of open groups, too. */
  @Override
  public void addUses(Object root, Uses uses) {
    fifo()
        .forEachInUse(
            work -> {
              if (work.uses(root)) {
                uses.add(() -> !work.isInUse() || !work.uses(root));
              }
            });
  }

  // ---- life

  @Override
  public String name() {
    return name;
  }

  @Override
  public CommunicatorConfig config() {
    return own.config();
  }

  @Override
  public @Nullable HostCommunicator split(
      int color, int key, @Nullable CommunicatorConfig childConfig) {
    return Creation.one("split", () -> divide(color, key, childConfig));
  }

  private @Nullable HostCommunicator divide(
      int color, int key, @Nullable CommunicatorConfig childConfig) {
    requireReady();
    MemoryBook.Account of = ((HostDevice) device()).account();
    Split<HostWork> split = new Split<>(this, health, own.outside(), of, HostWork::new);
    return split.run(color, key, childConfig, HostCommunicator::attach);
  }

  @Override
  public Communicator survivors(Duration timeout) {
    if (timeout == null || timeout.isNegative()) {
      throw new InvalidArgumentException(
          "survivors: the timeout is " + timeout, "pass a duration of 0 or more");
    }
    enterAlone("survivors");
    try {
      requireFailed();
      return Objects.requireNonNull(Creation.one("survivors", () -> goOn(timeout)));
    } finally {
      leave();
    }
  }

  private void requireFailed() {
    if (health.isClosed()) {
      throw own.wording().closed();
    }
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "survivors: a group is open on this thread", "launch or close the group first");
    }
    if (own.spansHosts()) {
      throw new InvalidUsageException(
          "survivors: the ranks of communicator " + name + " are on several hosts",
          "let those that are left meet by a new unique id, as docs/recovery.md says");
    }
    health.look();
    if (health.isGood()) {
      throw new InvalidUsageException(
          "survivors: communicator " + name + " has not failed",
          "use split to divide its ranks, or abort it first");
    }
    own.told();
  }

  private HostCommunicator goOn(Duration timeout) {
    MemoryBook.Account of = ((HostDevice) device()).account();
    Survivors<HostWork> survivors = new Survivors<>(this, health, of, HostWork::new);
    return survivors.run(timeout, HostCommunicator::attachWhoCame);
  }

  /** A rank whose communicator has failed if not all others come. */
  private static HostCommunicator attachWhoCame(Place<HostWork> place) {
    HostCommunicator communicator = create(place);
    try {
      communicator.awaitAll(place);
    } catch (InterruptedWaitException e) {
      communicator.health.fail(Interrupts.asFailure(e));
      communicator.close();
      throw e;
    } catch (NcclException e) {
      communicator.health.fail(e);
    }
    return communicator;
  }

  @Override
  protected void abort(AbortedException reason) {
    health.failUnlessClosed(reason, RankState.ABORTED);
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (!health.isClosed()) {
        backlog.finish();
        NcclException contradiction = own.compareFinally();
        own.leaveOthers();
        health.close();
        ended();
        endArrays();
        depart();
        if (contradiction != null) {
          throw contradiction;
        }
      }
    }
  }

  private void depart() {
    HostHeap heap = ProcessMemory.self().heap();
    health.addFlag(RankState.LEFT);
    control.advanceEpoch();
    LiveRanks.remove(health);
    ProcessMemory.self().remove(this);
    Progress.setRanks(LiveRanks.mostSharing());
    ((HostDevice) device()).ranks().remove(own);
    own.lanes().close();
    own.collectives().close();
    if (staging != null) {
      heap.free(staging, health::peersAreQuiet);
    }
    part.group().unsettled();
    part.leave();
    heap.whenSafe(this::looksNoMore, this::goAway);
    fifoBooking.release();
    account.close();
  }

  /**
   * Whether this rank, which has left, does not read the control block any more: its peers are
   * quiet, so nothing asks about them, and no other thread is inside a call that began before.
   */
  private boolean looksNoMore() {
    return !isEntered() && health.peersAreQuiet();
  }

  /** Writes to the control block for the last time: its owner may free it from now on. */
  private void goAway() {
    health.addFlag(RankState.GONE);
    part.group().settled();
  }

  @Override
  public String toString() {
    return "communicator " + name + ", rank " + rank() + " of " + nranks();
  }
}
