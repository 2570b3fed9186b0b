package io.nccl4j.host;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.Stream;
import io.nccl4j.schedule.GroupScope;
import io.nccl4j.schedule.OpKind;
import io.nccl4j.schedule.ScheduledCommunicator;
import io.nccl4j.schedule.Signature;
import io.nccl4j.schedule.WorkFifo;
import io.nccl4j.spi.EngineStream;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * One rank of the host engine: numbers and signs works, holds what the engines need to reach the other ranks, and knows
 * when it has failed.
 *
 * <p>It owns its part of the control block from the moment it is alive until it has left, and its staging area.
 */
final class HostCommunicator extends ScheduledCommunicator<HostWork> {
  private static final VarHandle FAILURE;

  static {
    try {
      FAILURE = MethodHandles.lookup().findVarHandle(HostCommunicator.class, "failure", NcclException.class);
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
  private final long operationTimeoutNanos;
  private final HostHeap.@Nullable Block staging;
  private final MemorySegment[] heapOf;
  private final long[] stagingOf;
  private final long[] sendSeq;
  private final long[] recvSeq;
  private final CollectiveEngine collectives;
  private final LaneEngine lanes;

  private long issued;
  private int signature;
  private final Object closing = new Object();
  private volatile long seenEpoch;
  private volatile long seenGroupEpoch;
  private volatile boolean someoneLeft;
  private final AtomicInteger graphs = new AtomicInteger();
  private volatile boolean peersQuiet;
  private volatile int lastInUse;
  private volatile @Nullable NcclException failure;
  private volatile boolean closed;

  private HostCommunicator(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      WorkFifo<HostWork> fifo) {
    super(rank, part.nranks(), device, fifo);
    this.name = name;
    this.config = config;
    this.part = part;
    this.control = part.control();
    this.spansProcesses = part.spansProcesses();
    this.ledger = new Ledger(control, rank);
    this.operationTimeoutNanos = config.operationTimeout().toNanos();
    int nranks = part.nranks();
    heapOf = new MemorySegment[nranks];
    stagingOf = new long[nranks];
    sendSeq = new long[nranks];
    recvSeq = new long[nranks];
    staging = spansProcesses ? HostProcess.self().heap().allocate(CollectiveEngine.STAGING_BYTES) : null;
    if (staging != null) {
      control.setPlain(control.staging(rank), staging.offset());
    }
    collectives = new CollectiveEngine(this, control);
    lanes = new LaneEngine(this, control);
  }

  /** A rank that the others can see; it is usable after {@link #awaitAll}. */
  static HostCommunicator create(
      int rank, HostDevice device, LocalPart part, CommunicatorConfig config, String name) {
    WorkFifo<HostWork> fifo = new WorkFifo<>(config.fifoBytes(), HostWork::new);
    HostCommunicator communicator = new HostCommunicator(rank, device, part, config, name, fifo);
    for (int i = 0; i < fifo.capacity(); i++) {
      fifo.at(i).communicator = communicator;
    }
    part.set(rank, communicator);
    HostProcess.self().add(communicator);
    communicator.control.setRelease(communicator.control.state(rank), RankState.of(RankState.ALIVE, 0, 0));
    return communicator;
  }

  /**
   * Waits until all ranks are there.
   *
   * @throws DeadlineException if they are not in time
   */
  void awaitAll(long deadlineNanos) {
    Arrival.await(this, control, part, deadlineNanos);
    for (int k = 0; k < nranks(); k++) {
      heapOf[k] = part.group().heap(part.processOf(k));
      stagingOf[k] = control.getPlain(control.staging(k));
    }
    part.group().watch();
  }

  // ---- for the engines

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

  /** The communicator of a rank of this process, whose segments can be used directly; null for other ranks. */
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
  @SuppressWarnings("unchecked")
  protected @Nullable EngineStream<HostWork> engineStream(Stream stream) {
    return stream instanceof HostStream own ? own : null;
  }

  @Override
  protected void requireReady() {
    if (closed) {
      throw new InvalidUsageException("communicator " + name + " is closed", "create a new one");
    }
    if (control.epoch() != seenEpoch || part.group().epoch() != seenGroupEpoch) {
      lookForFaults();
    }
    NcclException cause = failure;
    if (cause != null) {
      throw new InvalidUsageException(
              "communicator " + name + " has failed: " + cause.getMessage(), "close it and create a new one")
          .causedBy(cause);
    }
  }

  @Override
  protected void assign(HostWork work) {
    work.reset();
    long seq;
    if (work.isCollective()) {
      seq = ++issued;
      signature = signatureAfter(signature, work);
      work.signature = signature;
    } else {
      seq = ++(work.kind == OpKind.SEND ? sendSeq : recvSeq)[work.root];
      work.signature = laneSignature(work);
    }
    work.seq = seq;
    work.ledger = ledger.issue(work, seq);
  }

  /** Takes a number for a graph's work, which may still be running in an earlier launch: it is not touched. */
  void number(HostWork work) {
    long seq;
    if (work.isCollective()) {
      seq = ++issued;
      signature = signatureAfter(signature, work);
    } else {
      seq = ++(work.kind == OpKind.SEND ? sendSeq : recvSeq)[work.root];
    }
    ledger.issue(work, seq);
  }

  long issuedCollectives() {
    return issued;
  }

  int lastSignature() {
    return signature;
  }

  long laneCount(boolean sends, int peer) {
    return (sends ? sendSeq : recvSeq)[peer];
  }

  /** The signature of a collective that follows one with signature {@code previous}. */
  int signatureAfter(int previous, HostWork work) {
    return Signature.chain(previous, work.code(), signedCount(work));
  }

  /** Both sides of a lane must come to the same: only what both know. */
  static int laneSignature(HostWork work) {
    return Signature.chain(0, Signature.code(OpKind.SEND, work.type.ordinal(), 0, 0), work.count);
  }

  @Override
  protected HostWork newCapturedWork() {
    HostWork work = new HostWork(true);
    work.communicator = this;
    return work;
  }

  /** A graph with operations of this communicator was launched. */
  void graphStarted() {
    graphs.incrementAndGet();
  }

  /** Such a graph has run, or was dropped. */
  void graphEnded() {
    if (graphs.decrementAndGet() == 0 && !isHealthy()) {
      becomeQuietIfIdle();
    }
  }

  /** What of the counts all ranks know. */
  private long signedCount(HostWork work) {
    return switch (work.kind) {
      case ALL_GATHER_V, REDUCE_SCATTER_V -> Signature.ofCounts(work.recvCounts, nranks());
      case ALL_TO_ALL_V, GATHER_V, SCATTER_V -> 0;
      default -> work.count;
    };
  }

  @Override
  protected void awaitFifoRoom() {
    while (!fifo().hasRoom()) {
      HostWork oldest = fifo().oldest();
      if (oldest.stream instanceof HostStream stream) {
        driveHead(stream, Long.MAX_VALUE);
      }
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

  void completed(HostWork work) {
    ledger.complete(work);
  }

  /** A work was given up; the communicator has failed. */
  void dropped(HostWork work) {
    ledger.fail(work);
    if (work.stage != HostWork.QUEUED && nranks() > 1) {
      part.group().failed(this);
      if (work.send instanceof HostBuffer send) {
        HostProcess.self().quarantine(send.root(), this);
      }
      if (work.recv instanceof HostBuffer recv) {
        HostProcess.self().quarantine(recv.root(), this);
      }
    }
  }

  /** Tells the others when this failed rank has no work left. It may have left, and its control block be gone. */
  synchronized void becomeQuietIfIdle() {
    if (!closed && failure != null && graphs.get() == 0 && anyInUse() == null) {
      addFlag(RankState.QUIET);
    }
  }

  boolean isHealthy() {
    return failure == null;
  }

  @Override
  public Optional<NcclException> failure() {
    return Optional.ofNullable(failure);
  }

  @Override
  public State state() {
    synchronized (this) {
      if (closed) {
        return State.CLOSED;
      }
      if (failure == null && (control.epoch() != seenEpoch || part.group().epoch() != seenGroupEpoch)) {
        lookForFaults();
      }
    }
    NcclException cause = failure;
    return cause == null ? State.READY : cause instanceof AbortedException ? State.ABORTED : State.FAILED;
  }

  /** Fails this communicator, once, and tells the other ranks. */
  void fail(NcclException cause) {
    int other = cause instanceof PeerFailedException peer ? peer.rank() : rank();
    fail(cause, other, 0);
  }

  private void fail(NcclException cause, int other, long seq) {
    if (!FAILURE.compareAndSet(this, null, cause)) {
      return;
    }
    long state = control.state(rank());
    long before = control.getAcquire(state);
    while (!control.compareAndSet(
        state, before, before & RankState.LEFT | RankState.of(RankState.codeOf(cause), other, seq))) {
      before = control.getAcquire(state);
    }
    control.advanceEpoch();
    becomeQuietIfIdle();
  }

  private void addFlag(long flag) {
    long state = control.state(rank());
    long before = control.getAcquire(state);
    while (!control.compareAndSet(state, before, before | flag)) {
      before = control.getAcquire(state);
    }
  }

  /** Fails if a rank has failed or died, or if the one the work waits for has left. */
  void checkFaults(HostWork work) {
    if (control.epoch() != seenEpoch || part.group().epoch() != seenGroupEpoch) {
      lookForFaults();
    }
    int peer = work.blockedOn;
    if (failure == null
        && someoneLeft
        && peer >= 0
        && RankState.hasLeft(control.getAcquire(control.state(peer)))) {
      if (work.seenLeaving != peer) {
        // Whatever it did before it left is visible from now on: the next step takes another look.
        work.seenLeaving = peer;
        return;
      }
      fail(
          new PeerFailedException(
              peer,
              work.describe() + ": rank " + peer + " left the communicator before, after "
                  + Ledger.ordinal(ledger.lastCollective(peer)),
              "let every rank issue the same operations before it closes the communicator"));
    }
  }


  private synchronized void lookForFaults() {
    long epoch = control.epoch();
    long groupEpoch = part.group().epoch();
    for (int k = 0; k < nranks(); k++) {
      if (k == rank()) {
        continue;
      }
      long state = control.getAcquire(control.state(k));
      someoneLeft |= RankState.hasLeft(state);
      if (failure == null && !RankState.hasLeft(state) && part.group().isDead(part.processOf(k))) {
        fail(died(k), k, 0);
      }
      if (failure == null) {
        failLike(k, state);
      }
    }
    seenEpoch = epoch;
    seenGroupEpoch = groupEpoch;
  }

  private NcclException died(int k) {
    return new PeerFailedException(
        k,
        "rank " + k + " of communicator " + name + " died (process " + part.group().pid(part.processOf(k)) + ")",
        "look at its output; close this communicator");
  }

  /** Another rank failed: this one cannot go on either, and says why. */
  private void failLike(int k, long state) {
    int other = RankState.other(state);
    String who = "rank " + k + " of communicator " + name;
    switch (RankState.code(state)) {
      case RankState.MISMATCH ->
          fail(mismatchSeenBy(k, other, near(RankState.seq(state))), other, RankState.seq(state));
      case RankState.DEADLINE ->
          fail(
              new PeerFailedException(k, who + " gave up because the deadline of an operation passed", "see its message"),
              k,
              0);
      case RankState.ABORTED ->
          fail(new AbortedException(who + " aborted the communicator", "close it and create a new one"), k, 0);
      case RankState.PEER_LOST ->
          fail(
              other == rank()
                  ? new PeerFailedException(k, who + " counts on this rank no longer", "see its message")
                  : new PeerFailedException(other, who + " reports that rank " + other + " is gone", "see its message"),
              other == rank() ? k : other,
              0);
      case RankState.ERROR -> fail(new PeerFailedException(k, who + " failed", "see its message"), k, 0);
      default -> {}
    }
  }

  /** The sequence number with these low 32 bits that this rank has issued, or is about to. */
  private long near(long low) {
    return issued + ((int) low - (int) issued);
  }

  // ---- explanations

  /** Ranks called different things. Publishes it; the caller throws. */
  NcclException mismatch(HostWork work, int peer) {
    long seq = work.seq;
    NcclException e;
    if (work.isCollective()) {
      seq = firstDifference(peer, work.seq);
      e = new MismatchException(differenceText(rank(), peer, seq), REMEDY);
    } else {
      long other = ledger.findPointToPoint(peer, OpKind.SEND, rank(), work.seq);
      e =
          new MismatchException(
              "ranks " + rank() + " and " + peer + " of communicator " + name + " disagree: rank " + rank() + " called "
                  + Ledger.describe(work.code(), work.count) + ", rank " + peer + " called " + ledger.describe(other),
              "give send and recv the same count and type");
    }
    fail(e, peer, seq);
    return e;
  }

  private static final String REMEDY = "issue the same collectives in the same order on all ranks";

  /** In v-forms only a pair knows that its counts differ. */
  NcclException countMismatch(HostWork work, int peer, long theirs, long own, String verb) {
    NcclException e =
        new MismatchException(
            "ranks " + rank() + " and " + peer + " of communicator " + name + " disagree in " + work.kind.label() + " #"
                + work.seq + ": rank " + peer + " " + verb + " rank " + rank() + " " + theirs + " elements, rank "
                + rank() + " counts on " + own,
            "make both ranks' counts equal");
    fail(e, peer, work.seq);
    return e;
  }

  private NcclException mismatchSeenBy(int k, int other, long seq) {
    long mine = ledger.findCollective(rank(), seq);
    long theirs = ledger.findCollective(k, seq);
    if (other != rank() && mine >= 0 && theirs >= 0 && !ledger.equal(mine, theirs)) {
      return new MismatchException(differenceText(rank(), k, seq), REMEDY);
    }
    return new MismatchException(differenceText(k, other, seq) + " (found by rank " + k + ")", REMEDY);
  }

  private String differenceText(int a, int b, long seq) {
    return "ranks " + a + " and " + b + " of communicator " + name + " disagree at collective #" + seq + ": rank " + a
        + " called " + ledger.describe(ledger.findCollective(a, seq)) + ", rank " + b + " called "
        + ledger.describe(ledger.findCollective(b, seq));
  }

  /** Signatures are chained: the contradiction may lie before the collective that showed it. */
  private long firstDifference(int peer, long seq) {
    for (long s = Math.max(1, seq - 2 * ControlBlock.OUTBOX_SLOTS); s < seq; s++) {
      long mine = ledger.findCollective(rank(), s);
      long theirs = ledger.findCollective(peer, s);
      if (mine >= 0 && theirs >= 0 && !ledger.equal(mine, theirs)) {
        return s;
      }
    }
    return seq;
  }

  void checkDeadline(HostWork work, long now) {
    if (work.slowSince == 0) {
      work.slowSince = now;
      ledger.slow(work);
    } else if (now - work.slowSince > operationTimeoutNanos) {
      fail(
          new DeadlineException(
              work.describe() + " is not complete after " + operationTimeoutNanos / 1_000_000 + " ms, waiting for "
                  + describeMissing(work),
              "see whether those ranks hang or called something else; operation-timeout sets the deadline"));
    }
  }

  /** Which ranks a work waits for, and where they are. */
  String describeMissing(HostWork work) {
    int peer = work.blockedOn;
    if (peer < 0) {
      return "earlier operations of its communicator";
    }
    if (!work.isCollective()) {
      return "rank " + peer + " to call " + (work.kind == OpKind.SEND ? "recv" : "send");
    }
    StringBuilder text = new StringBuilder();
    for (int k = 0; k < nranks(); k++) {
      long last = ledger.lastCollective(k);
      if (k != rank() && (last < work.seq || k == peer)) {
        text.append(text.isEmpty() ? "" : ", ").append("rank ").append(k).append(" (");
        text.append(last < work.seq ? "its last collective is " + Ledger.ordinal(last) : "which has called it");
        text.append(last == 0 ? "" : ": " + ledger.describe(ledger.findCollective(k, last))).append(')');
      }
    }
    return text.toString();
  }

  /** An unfinished work that uses a buffer, or null. */
  @Nullable HostWork userOf(Object root) {
    for (int i = 0; i < fifo().capacity(); i++) {
      HostWork work = fifo().at(i);
      if (work.isInUse()
          && (work.send instanceof HostBuffer send && send.root() == root
              || work.recv instanceof HostBuffer recv && recv.root() == root
              || work.op.deviceScalar() instanceof HostBuffer scalar && scalar.root() == root)) {
        return work;
      }
    }
    return null;
  }

  /** Whether no other rank can touch this rank's memory on behalf of this communicator; once true, it stays so. */
  boolean peersAreQuiet() {
    if (peersQuiet) {
      // The control block may be gone.
      return true;
    }
    for (int k = 0; k < nranks(); k++) {
      if (k != rank()
          && !RankState.isQuiet(control.getAcquire(control.state(k)))
          && !part.group().isDead(part.processOf(k))) {
        return false;
      }
    }
    peersQuiet = true;
    return true;
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
  public @Nullable HostCommunicator split(int color, int key, CommunicatorConfig childConfig) {
    requireReady();
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException("split: a group is open on this thread", "launch or close the group first");
    }
    if (color < 0 && color != NO_COLOR) {
      throw new InvalidArgumentException("split: the color is " + color, "use 0 or more, or Communicator.NO_COLOR");
    }
    return Split.run(this, color, key, childConfig);
  }

  /** Exchanges a few longs with all ranks, blocking: {@code nranks · values.length} longs in rank order. */
  long[] exchange(long... values) {
    int bytes = values.length * Long.BYTES;
    try (Stream stream = device().newStream();
        var mine = device().allocate(bytes);
        var all = device().allocate((long) nranks() * bytes)) {
      mine.copyFrom(values);
      allGather(mine, all, values.length, DataType.INT64, stream);
      stream.synchronize();
      return all.toLongs();
    }
  }

  @Override
  public void abort() {
    synchronized (this) {
      if (!closed) {
        fail(new AbortedException("communicator " + name + " was aborted by rank " + rank(), "create a new one"));
      }
    }
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (!closed) {
        finishOwnWork();
        synchronized (this) {
          closed = true;
        }
        depart();
      }
    }
  }

  private void depart() {
    addFlag(RankState.LEFT);
    control.advanceEpoch();
    HostProcess.self().remove(this);
    lanes.close();
    if (staging != null) {
      HostProcess.self().heap().free(staging, this::peersAreQuiet);
      part.group().failed(this);
    }
    part.leave();
  }

  private void finishOwnWork() {
    long start = System.nanoTime();
    long timeout = config.closeTimeout().toNanos();
    HostWork work = anyInUse();
    while (work != null) {
      if (work.stream instanceof HostStream stream) {
        long left = timeout - (System.nanoTime() - start);
        if (-left > timeout) {
          throw new InvalidUsageException(
              work.describe() + " cannot be given up: it is queued behind the work of another communicator",
              "close the stream first");
        }
        if (left <= 0 && isHealthy()) {
          fail(
              new AbortedException(
                  work.describe() + " was unfinished when its communicator was closed, waiting for "
                      + describeMissing(work),
                  "synchronize before closing; close-timeout sets how long close waits"));
        }
        if (!driveHead(stream, Math.max(left, 1_000_000)) && work.isInUse()) {
          throw new InvalidUsageException(
              "communicator " + name + " has operations in an open group", "launch or close the group first");
        }
      }
      work = anyInUse();
    }
    finishGraphs(start, timeout);
  }

  private void finishGraphs(long start, long timeout) {
    while (graphs.get() > 0) {
      long left = timeout - (System.nanoTime() - start);
      if (-left > timeout) {
        throw new InvalidUsageException(
            "communicator " + name + ": a graph cannot be given up, because it is queued behind the work of another"
                + " communicator",
            "close the stream first");
      }
      if (left <= 0 && isHealthy()) {
        fail(
            new AbortedException(
                "a graph was unfinished when communicator " + name + " was closed",
                "synchronize before closing; close-timeout sets how long close waits"));
      }
      Progress.helpAll();
    }
  }

  /** The search starts where the last one ended, so that dropping a full FIFO looks at each place about once. */
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
