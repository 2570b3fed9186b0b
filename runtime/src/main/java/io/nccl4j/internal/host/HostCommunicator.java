package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryReport;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.Ledger;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.memory.BufferUser;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/**
 * One rank of the host engine: numbers and signs works, holds what the engines need to reach the
 * other ranks, and knows when it has failed.
 *
 * <p>It owns its part of the control block from the moment it is alive until it has left, and its
 * staging area.
 */
final class HostCommunicator extends ScheduledCommunicator<HostWork> implements BufferUser {
  private static final int NOBODY = 0;
  private static final int SOMEBODY = 1;
  private static final VarHandle ISSUED;
  private static final VarHandle COMPARING;
  private static final VarHandle LANE = MethodHandles.arrayElementVarHandle(long[].class);

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      ISSUED = lookup.findVarHandle(HostCommunicator.class, "issued", long.class);
      COMPARING = lookup.findVarHandle(HostCommunicator.class, "comparing", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final String name;
  private final CommunicatorConfig config;
  private final LocalPart part;
  private final ControlBlock control;
  private final boolean spansProcesses;
  private final Ledger ledger;
  private final Explanation explanation;
  private final Health health;
  private final Placement placement;
  private final MemoryBook.Account account;
  private final MemoryBook.Booking fifoBooking;
  private final HostHeap.@Nullable Block staging;
  private final MemorySegment[] heapOf;
  private final long[] stagingOf;
  private final long[] sendSeq;
  private final long[] recvSeq;
  private final CollectiveEngine collectives;
  private final LaneEngine lanes;

  private long issued;
  private int signature;

  /** Whether a thread looks at others' outboxes, which it may not do after the close. */
  @SuppressWarnings("unused") // by VarHandle
  private int comparing;

  private volatile boolean told;

  private final Object closing = new Object();
  private final AtomicInteger graphs = new AtomicInteger();
  private final AtomicInteger splits = new AtomicInteger();
  private final AtomicLong graphLaunches = new AtomicLong();
  private final AtomicLong fifoFull = new AtomicLong();
  private final AtomicLong fifoWaitNanos = new AtomicLong();
  private volatile int lastInUse;
  private volatile boolean closed;

  private HostCommunicator(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      Provisions provisions) {
    super(rank, part.nranks(), device, provisions.fifo());
    this.name = name;
    this.config = config;
    this.part = part;
    this.control = part.control();
    this.spansProcesses = part.spansProcesses();
    this.ledger = new Ledger(control, rank);
    this.explanation = new Explanation(this, ledger, part);
    this.health = new Health(this, part, explanation, config.operationTimeout().toNanos());
    int nranks = part.nranks();
    account = provisions.account();
    fifoBooking = provisions.fifoBooking();
    placement = new Placement(control, rank, nranks);
    heapOf = new MemorySegment[nranks];
    stagingOf = new long[nranks];
    sendSeq = new long[nranks + LONGS];
    recvSeq = new long[nranks + LONGS];
    staging = provisions.staging();
    if (staging != null) {
      control.setPlain(control.staging(rank), staging.offset());
    }
    collectives = new CollectiveEngine(this, control);
    lanes = new LaneEngine(this, control);
  }

  /** A rank that the others can see; it is usable after {@link #awaitAll}. */
  static HostCommunicator create(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      Provisions provisions) {
    HostCommunicator communicator =
        new HostCommunicator(rank, device, part, config, name, provisions);
    WorkFifo<HostWork> fifo = provisions.fifo();
    for (int i = 0; i < fifo.capacity(); i++) {
      fifo.at(i).communicator = communicator;
    }
    part.set(rank, communicator);
    HostProcess.self().add(communicator);
    device.add(communicator);
    communicator.control.setRelease(
        communicator.control.state(rank), RankState.of(RankState.ALIVE, 0, 0));
    return communicator;
  }

  /**
   * Waits until all ranks are there.
   *
   * @param whyNever see {@link Arrival}
   * @throws DeadlineException if they are not in time
   * @throws PeerFailedException if one says of itself what cannot be
   */
  void awaitAll(long deadlineNanos, IntFunction<@Nullable NcclException> whyNever) {
    Arrival.await(this, control, part, deadlineNanos, whyNever);
    for (int k = 0; k < nranks(); k++) {
      heapOf[k] = part.group().heap(part.processOf(k));
      if (spansProcesses) {
        stagingOf[k] = stagingAt(k, control.getPlain(control.staging(k)));
      }
      if (!part.group().isWatchable(part.processOf(k))) {
        throw ControlBlock.impossible(k, "has put no mutex where its death would show");
      }
    }
    part.group().watch();
  }

  private long stagingAt(int k, long offset) {
    if (offset < 0 || offset > heapOf[k].byteSize() - Layout.STAGING_BYTES) {
      throw ControlBlock.impossible(
          k,
          "says that its staging area lies at byte "
              + offset
              + " of its heap of "
              + heapOf[k].byteSize()
              + " B");
    }
    return offset;
  }

  // ---- for the engines

  /** What this rank has taken. */
  MemoryBook.Account account() {
    return account;
  }

  CollectiveEngine collectives() {
    return collectives;
  }

  LaneEngine lanes() {
    return lanes;
  }

  boolean spansProcesses() {
    return spansProcesses;
  }

  /** The rank's heap as mapped here. */
  MemorySegment heapOf(int rank) {
    return heapOf[rank];
  }

  long stagingOf(int rank) {
    return stagingOf[rank];
  }

  /**
   * The communicator of a rank of this process, whose segments can be used directly; null for other
   * ranks.
   */
  @Nullable HostCommunicator local(int rank) {
    return part.rank(rank);
  }

  LocalPart part() {
    return part;
  }

  Ledger ledger() {
    return ledger;
  }

  // ---- submitting

  @Override
  protected boolean isOwn(DeviceBuffer buffer) {
    return buffer instanceof HostBuffer;
  }

  @Override
  protected void requireQuiet(DeviceBuffer buffer, Operation operation) {
    ProcessMemory.self()
        .quarantine()
        .requireQuiet(buffer.address(), buffer.byteSize(), operation.label());
  }

  @Override
  protected void requireReady() {
    if (closed) {
      throw new InvalidUsageException("communicator " + name + " is closed", "create a new one");
    }
    health.look();
    NcclException cause = health.failure();
    if (cause != null) {
      told();
      throw Failures.again(
          cause,
          "communicator " + name + " has failed: " + cause.problem(),
          "close it and create a new one",
          cause.failedRanks());
    }
  }

  @Override
  protected void assign(HostWork work) {
    work.reset();
    if (work.isCollective()) {
      work.seq = issued + 1;
      ISSUED.setOpaque(this, work.seq);
      ledger.collective(work, work.seq);
      signature = Signature.chain(signature, sign(work));
      work.signature = signature;
    } else {
      work.seq = nextInLane(work);
      work.signature = sign(work);
    }
  }

  /** Numbers a send or receive, by the submitting thread, and notes it. It is not touched. */
  long nextInLane(HostWork work) {
    long[] lane = work.operation == Operation.SEND ? sendSeq : recvSeq;
    long seq = lane[work.root] + 1;
    LANE.setOpaque(lane, work.root, seq);
    ledger.message(work, seq);
    return seq;
  }

  /** How far this rank has got in calling what a work of another rank needs of it. Any thread. */
  boolean hasCalled(HostWork work, int other) {
    long called =
        work.isCollective()
            ? (long) ISSUED.getOpaque(this)
            : (long) LANE.getOpaque(work.operation == Operation.SEND ? recvSeq : sendSeq, other);
    return called >= work.seq;
  }

  /** What a work adds to the signature, or its own one if it is a send or receive. */
  int sign(HostWork work) {
    return work.isCollective()
        ? Signature.of(work.code(), work.signedCount(nranks()))
        // Both sides of a lane must come to the same: only what both know.
        : Signature.of(Signature.code(Operation.SEND, work.type.ordinal(), 0, 0), work.count);
  }

  /**
   * Numbers and notes a graph's collectives, by the submitting thread.
   *
   * @param calls see {@link Ledger#collectives}
   * @return the number before the first
   */
  long issueAll(long[] calls) {
    long before = issued;
    ISSUED.setOpaque(this, ledger.collectives(calls, before));
    return before;
  }

  /**
   * Goes on to the signature of a graph's last collective.
   *
   * @param factor what all of them together multiply the signature before with
   * @param sum what they add then
   * @return the signature before
   */
  int signAll(int factor, int sum) {
    int before = signature;
    signature = before * factor + sum;
    return before;
  }

  long issuedCollectives() {
    return issued;
  }

  @Override
  protected HostWork newCapturedWork() {
    HostWork work = new HostWork(true);
    work.communicator = this;
    return work;
  }

  /** A graph with operations of this communicator was launched. */
  void graphStarted() {
    graphLaunches.incrementAndGet();
    graphs.incrementAndGet();
  }

  /** Such a graph has run, or was dropped. */
  void graphEnded() {
    if (graphs.decrementAndGet() == 0 && !isHealthy()) {
      becomeQuietIfIdle();
    }
  }

  /**
   * Drives the oldest work, whose place bounds the room. That nothing at all moves can last as long
   * as an operation may: a place that nobody gives back any more is an error, not an endless wait.
   *
   * @throws NcclException why this communicator has failed, by that deadline for example
   */
  @Override
  protected void awaitFifoRoom() {
    long start = System.nanoTime();
    long timeout = config.operationTimeout().toNanos();
    fifoFull.incrementAndGet();
    try {
      HostWork oldest = null;
      long head = 0;
      long since = start;
      while (!fifo().hasRoom()) {
        requireHealthy();
        HostStream stream = fifo().oldest().hostStream();
        long now = System.nanoTime();
        long position = stream == null ? 0 : stream.head();
        if (fifo().oldest() != oldest || position != head) {
          oldest = fifo().oldest();
          head = position;
          since = now;
        } else if (now - since >= timeout) {
          health.fail(explanation.noRoom(timeout));
          continue;
        }
        if (stream == null || !driveHead(stream, timeout - (now - since))) {
          Progress.helpAll("room in the work FIFO");
        }
      }
    } finally {
      fifoWaitNanos.addAndGet(System.nanoTime() - start);
    }
    requireHealthy();
  }

  private void requireHealthy() {
    health.look();
    NcclException cause = health.failure();
    if (cause != null) {
      told();
      throw Failures.again(cause);
    }
  }

  /**
   * Drives a stream until its first task is done.
   *
   * @return false if the stream is empty
   */
  private static boolean driveHead(HostStream stream, long timeoutNanos) {
    long head = stream.head();
    if (head == stream.tail()) {
      return false;
    }
    Progress.drive(stream, head + 1, timeoutNanos);
    return true;
  }

  // ---- completion and failure

  @Override
  protected void gaveBack() {
    if (!isHealthy()) {
      becomeQuietIfIdle();
    }
  }

  /**
   * Tells the others when this failed rank has no work left. It may have left, and its control
   * block be gone.
   */
  synchronized void becomeQuietIfIdle() {
    if (!closed && !isHealthy() && !isBusy() && splits.get() == 0) {
      health.addFlag(RankState.QUIET);
    }
  }

  boolean isHealthy() {
    return health.isGood();
  }

  Health health() {
    return health;
  }

  Placement placement() {
    return placement;
  }

  Explanation explanation() {
    return explanation;
  }

  @Override
  public Optional<NcclException> failure() {
    if (!isHealthy()) {
      lookAtPeers();
      told();
    }
    return Optional.ofNullable(health.failure());
  }

  @Override
  public State state() {
    lookAtPeers();
    if (closed) {
      return State.CLOSED;
    }
    NcclException cause = health.failure();
    return cause == null
        ? State.READY
        : cause instanceof AbortedException ? State.ABORTED : State.FAILED;
  }

  /** Looks for failures of other ranks. Any thread may, while it is in no call of this rank. */
  void lookAtPeers() {
    // In the order of whoever finds a failure: the health first, then what becomes quiet by it.
    synchronized (health) {
      synchronized (this) {
        if (!closed) {
          health.look();
        }
      }
    }
  }

  @Override
  public CommunicatorCounters counters() {
    int unfinished = fifo().inUse();
    return new CommunicatorCounters(
        (long) ISSUED.getOpaque(this),
        sum(sendSeq),
        sum(recvSeq),
        graphLaunches.get(),
        unfinished,
        graphs.get(),
        (long) fifo().capacity() * Work.BYTES,
        fifo().takenBytes(),
        fifo().highWaterBytes(),
        fifoFull.get(),
        fifoWaitNanos.get());
  }

  @Override
  public MemoryReport memory() {
    ProcessMemory.self().heap().sweepIfWaiting();
    return new MemoryReport(this + " on " + device(), account.lines(), List.of());
  }

  private long sum(long[] lanes) {
    long sum = 0;
    for (int k = 0; k < nranks(); k++) {
      sum += (long) LANE.getOpaque(lanes, k);
    }
    return sum;
  }

  /** Ranks called different things. Fails; the caller throws. */
  NcclException mismatch(HostWork work, int peer) {
    if (work.isCollective()) {
      return mismatch(work.seq, peer);
    }
    NcclException e = explanation.messages(work, peer);
    health.fail(e, RankState.LANE_MISMATCH, peer, work.seq);
    return e;
  }

  private NcclException mismatch(long until, int peer) {
    long seq = explanation.firstDifference(peer, until);
    NcclException e = explanation.collectives(peer, seq);
    health.fail(e, RankState.MISMATCH, peer, seq);
    return e;
  }

  /**
   * Compares what this rank called with what the others have shown by now, after operations in
   * which it did not look at all of them. Any thread, at any time; it waits for nothing.
   *
   * @throws MismatchException if ranks contradict each other
   */
  void compare() {
    if (!COMPARING.compareAndSet(this, NOBODY, SOMEBODY)) {
      return;
    }
    try {
      int peer = collectives.compareLatest();
      if (peer >= 0) {
        NcclException ignored = mismatch(collectives.completed(), peer);
      }
      health.look();
    } finally {
      COMPARING.setRelease(this, NOBODY);
    }
    if (health.failure() instanceof MismatchException e) {
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
  private @Nullable NcclException compareFinally() {
    while (!COMPARING.compareAndSet(this, NOBODY, SOMEBODY)) {
      Thread.onSpinWait();
    }
    if (isHealthy()) {
      // What this rank has shown is visible to whoever shows something after this look.
      VarHandle.fullFence();
      for (int k = 0; k < nranks(); k++) {
        long seq = k == rank() ? 0 : collectives.lastDifference(k);
        if (seq != 0) {
          return mismatch(seq, k);
        }
      }
      health.look();
    }
    return !told && health.failure() instanceof MismatchException e ? Failures.again(e) : null;
  }

  /** The program hears of the failure, by an operation if not at once. */
  void told() {
    told = true;
  }

  /** The counts of a pair in a v-form differ. Fails; the caller throws. */
  NcclException countMismatch(HostWork work, int peer, long theirs, long own, String verb) {
    NcclException e = explanation.counts(work, peer, theirs, own, verb);
    health.fail(e, RankState.MISMATCH, peer, work.seq);
    return e;
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

  /** Whether unfinished works are queued in a stream. */
  boolean hasWorkIn(HostStream stream) {
    return fifo().oldestInUse(work -> work.hostStream() == stream) != null;
  }

  // ---- life

  @Override
  public String name() {
    return name;
  }

  @Override
  public CommunicatorConfig config() {
    return config;
  }

  @Override
  public @Nullable HostCommunicator split(
      int color, int key, @Nullable CommunicatorConfig childConfig) {
    requireReady();
    return Split.run(this, color, key, childConfig);
  }

  /** Whether operations are unfinished. */
  boolean isBusy() {
    return graphs.get() > 0 || anyInUse() != null;
  }

  /**
   * A split begins: until it ends, this rank may touch the control block of a child, and is not
   * quiet.
   */
  void enterSplit() {
    splits.incrementAndGet();
  }

  /** A split has ended. */
  void leaveSplit() {
    splits.decrementAndGet();
    if (!isHealthy()) {
      becomeQuietIfIdle();
    }
  }

  @Override
  protected void abort(AbortedException reason) {
    failUnlessClosed(reason, RankState.ABORTED);
  }

  /** Fails this communicator, unless it is closed and its control block may be gone. */
  void failUnlessClosed(NcclException cause, int code) {
    // In the order of whoever finds a failure: the health first, then what becomes quiet by it.
    synchronized (health) {
      synchronized (this) {
        if (!closed) {
          health.look();
          health.fail(cause, code, rank(), 0);
        }
      }
    }
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (!closed) {
        finishOwnWork();
        NcclException contradiction = compareFinally();
        synchronized (this) {
          closed = true;
        }
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
    HostProcess.self().remove(this);
    ((HostDevice) device()).remove(this);
    lanes.close();
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

  /** An interrupt is as the end of the close timeout: what is left is given up. */
  private void finishOwnWork() {
    long start = System.nanoTime();
    boolean interrupted = false;
    try {
      while (true) {
        try {
          finishWorks(start, interrupted);
          finishGraphs(start, interrupted);
          return;
        } catch (InterruptedWaitException e) {
          interrupted = Thread.interrupted();
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private void finishWorks(long start, boolean interrupted) {
    long timeout = config.closeTimeout().toNanos();
    HostWork work = anyInUse();
    while (work != null) {
      HostStream stream = work.hostStream();
      if (stream != null) {
        long left = timeout - (System.nanoTime() - start);
        if (-left > timeout) {
          throw new InvalidUsageException(
              work.describe()
                  + " cannot be given up: it is queued behind the work of another communicator",
              "close the stream first");
        }
        if ((left <= 0 || interrupted) && isHealthy()) {
          closeEarly(
              work.describe()
                  + " was unfinished when its communicator was closed"
                  + (interrupted ? " by an interrupted thread" : "")
                  + ", waiting for "
                  + explanation.missing(work));
        }
        if (!driveHead(stream, Math.max(left, 1_000_000)) && work.isInUse()) {
          throw new InvalidUsageException(
              "communicator " + name + " has operations in an open group",
              "launch or close the group first");
        }
      }
      work = anyInUse();
    }
  }

  private void finishGraphs(long start, boolean interrupted) {
    long timeout = config.closeTimeout().toNanos();
    while (graphs.get() > 0) {
      long left = timeout - (System.nanoTime() - start);
      if (-left > timeout) {
        throw new InvalidUsageException(
            "communicator "
                + name
                + ": a graph cannot be given up, because it is queued behind the work of another"
                + " communicator",
            "close the stream first");
      }
      if ((left <= 0 || interrupted) && isHealthy()) {
        closeEarly("a graph was unfinished when communicator " + name + " was closed");
      }
      Progress.helpAll("the end of a graph");
    }
  }

  /** Gives up what is unfinished: whoever waited for it has waited long enough. */
  void closeEarly(String problem) {
    failUnlessClosed(
        new AbortedException(
            problem, "synchronize before closing; close-timeout sets how long close waits"),
        RankState.LEFT_EARLY);
  }

  /**
   * The search starts where the last one ended, so that dropping a full FIFO looks at each place
   * about once.
   */
  private @Nullable HostWork anyInUse() {
    int capacity = fifo().capacity();
    int start = lastInUse;
    for (int i = 0; i < capacity; i++) {
      int index = start + i & capacity - 1;
      HostWork work = fifo().at(index);
      if (work.isInUse()) {
        lastInUse = index;
        return work;
      }
    }
    return null;
  }

  @Override
  public String toString() {
    return "communicator " + name + ", rank " + rank() + " of " + nranks();
  }
}
