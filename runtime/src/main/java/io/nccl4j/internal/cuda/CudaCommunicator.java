package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPool;
import io.nccl4j.MemoryPrediction.When;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryReport;
import io.nccl4j.MemoryReport.Line;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclCommunicator;
import io.nccl4j.NcclException;
import io.nccl4j.NcclMemoryStatistics;
import io.nccl4j.NcclProperties;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * One rank over an NCCL communicator: what operations are accepted, what it is and has, its end.
 * The rest is done by its parts, each with a job of its own.
 */
final class CudaCommunicator extends ScheduledCommunicator<CudaWork> implements NcclCommunicator {
  private static final int FIRST_WITH_FLOAT8 = 90;

  private final String name;
  private final CommunicatorConfig config;
  private final Team team;
  private final CudaDevice cudaDevice;
  private final MemoryBook.Account account;
  private final MemoryBook.Booking fifoBooking;
  private final CudaBuffer barrierFlag;
  private final NcclHandle nccl;
  private final CudaLedger ledger;
  private final CudaHolders holders;
  private final CudaHealth health;
  private final CudaDeadlines deadlines;
  private final CudaPending pending;
  private final CudaBacklog backlog;
  private final CudaRegistrations registrations;
  private final CudaChildren children;
  private final Object closing = new Object();
  private volatile JoinMemory.@Nullable Rank joined;
  private boolean suspended;
  private volatile boolean closed;

  private CudaCommunicator(
      int rank,
      int nranks,
      CudaDevice device,
      MemorySegment handle,
      Team team,
      CommunicatorConfig config,
      String name,
      WorkFifo<CudaWork> fifo,
      MemoryBook.Account account,
      CudaBuffer barrierFlag) {
    super(rank, nranks, device, fifo);
    this.cudaDevice = device;
    this.team = team;
    this.config = config;
    this.name = name;
    this.barrierFlag = barrierFlag;
    this.account = account;
    this.fifoBooking =
        account.book(MemoryPurpose.FIFO, MemoryPlace.HEAP, (long) fifo.capacity() * Work.BYTES);
    nccl = new NcclHandle(handle, name, config.closeTimeout());
    ledger = new CudaLedger(nranks);
    holders = new CudaHolders(name);
    health = new CudaHealth(this, team, nccl, holders);
    deadlines = new CudaDeadlines(this, team, health);
    pending = new CudaPending(name, nccl, health, deadlines, config.operationTimeout());
    backlog = new CudaBacklog(name, fifo, holders, health, config.closeTimeout());
    registrations = new CudaRegistrations(this);
    children = new CudaChildren(this, team, health, backlog);
  }

  /** A rank over a handle that is ready; it owns it. */
  static CudaCommunicator create(
      int rank,
      int nranks,
      CudaDevice device,
      MemorySegment handle,
      Team team,
      CommunicatorConfig config,
      String name) {
    // All that can fail, so that no half of a communicator is left.
    WorkFifo<CudaWork> fifo = new WorkFifo<>(config.fifoBytes(), CudaWork::new);
    MemoryBook.Account account =
        device.book().open("communicator " + name + " rank " + rank, device);
    CudaBuffer flag;
    try {
      flag = device.allocate(account, MemoryPurpose.BARRIER, DataType.INT32.byteSize());
    } catch (NcclException e) {
      account.close();
      throw e;
    }
    CudaCommunicator communicator =
        new CudaCommunicator(rank, nranks, device, handle, team, config, name, fifo, account, flag);
    for (int i = 0; i < fifo.capacity(); i++) {
      fifo.at(i).communicator = communicator;
    }
    team.add(communicator);
    CallWatch.add(communicator.deadlines);
    return communicator;
  }

  /** What joining took; from now on the device counts what NCCL is predicted to take. */
  void joined(JoinMemory.Rank rank) {
    joined = rank;
    cudaDevice.addPredicted(rank.predicted(When.COLLECTIVE));
  }

  // ---- its parts

  NcclHandle nccl() {
    return nccl;
  }

  CudaLedger ledger() {
    return ledger;
  }

  CudaHolders holders() {
    return holders;
  }

  CudaHealth health() {
    return health;
  }

  CudaDeadlines deadlines() {
    return deadlines;
  }

  CudaPending pending() {
    return pending;
  }

  CudaBacklog backlog() {
    return backlog;
  }

  CudaRegistrations registrations() {
    return registrations;
  }

  /** What this rank has taken. */
  MemoryBook.Account account() {
    return account;
  }

  CudaDevice cudaDevice() {
    return cudaDevice;
  }

  /** Four bytes that barriers reduce. */
  MemorySegment barrierFlag() {
    return barrierFlag.pointer();
  }

  // ---- submitting

  @Override
  protected @Nullable EngineStream<CudaWork> engineStream(Stream stream) {
    return stream instanceof CudaStream own ? own : null;
  }

  @Override
  protected boolean isOwn(DeviceBuffer buffer) {
    return buffer instanceof CudaBuffer;
  }

  @Override
  protected void requireReady() {
    requireAlive();
    AbortedException stopped = health.revoked();
    if (stopped != null) {
      throw new InvalidUsageException(
              stopped.problem(), "shrink or split it, close it, or create a new one")
          .causedBy(stopped);
    }
    requireResumed();
  }

  void requireResumed() {
    if (suspended) {
      throw new InvalidUsageException("communicator " + name + " is suspended", "resume it first");
    }
  }

  /** Throws unless NCCL's communicator is there. */
  void requireAlive() {
    if (closed) {
      throw new InvalidUsageException("communicator " + name + " is closed", "create a new one");
    }
    pending.await();
    NcclException cause = health.failure();
    if (cause != null) {
      health.told();
      throw Failures.again(
          cause,
          "communicator " + name + " has failed: " + cause.problem(),
          "close it and create a new one",
          cause.failedRanks());
    }
  }

  /** As {@link #requireAlive}, without waiting for what may be stuck. */
  void requireOpen() {
    if (!pending.isUnderWay() || closed || health.failure() != null) {
      requireAlive();
    }
  }

  @Override
  protected void requireSupported(Operation operation, DataType type, ReduceOp op) {
    boolean small = type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2;
    if (small && !Features.FLOAT8.isPresent()) {
      throw new InvalidArgumentException(
          operation.label() + ": NCCL " + CudaLibraries.ncclVersion() + " has no " + type.label(),
          "install " + Features.FLOAT8.needs());
    }
    if (small && operation.reducing() && cudaDevice.capability() < FIRST_WITH_FLOAT8) {
      throw new InvalidArgumentException(
          operation.label() + ": " + cudaDevice.name() + " cannot reduce " + type.label(),
          "reduce another type: 8-bit floats need compute capability 9.0");
    }
    if (small && nranks() == 1 && op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      throw new InvalidArgumentException(
          operation.label() + ": NCCL cannot scale " + type.label() + " with one rank",
          "use another type, or more ranks");
    }
  }

  @Override
  protected void assign(CudaWork work) {
    work.seq = ledger.note(work.code(), work.count, work.signedCount(nranks()));
    ledger.noteBlocks(work, rank());
  }

  /**
   * The counts of a collective in which all ranks pass those of all, for messages; null if it is
   * another one, or its place was used again.
   */
  long @Nullable [] commonCounts(long seq) {
    for (int i = 0; i < fifo().capacity(); i++) {
      CudaWork work = fifo().at(i);
      if (work.operation.hasCommonCounts() && work.seq == seq) {
        return work.commonCounts().clone();
      }
    }
    return null;
  }

  @Override
  protected CudaWork newCapturedWork() {
    CudaWork work = new CudaWork(true);
    work.communicator = this;
    return work;
  }

  @Override
  protected void awaitFifoRoom() {
    backlog.awaitRoom();
  }

  // ---- what it is and has

  @Override
  public String name() {
    return name;
  }

  @Override
  public CommunicatorConfig config() {
    return config;
  }

  @Override
  public Optional<NcclException> failure() {
    NcclException found = health.stopped();
    if (found != null) {
      health.told();
    }
    return Optional.ofNullable(found);
  }

  @Override
  public State state() {
    return closed ? State.CLOSED : health.state();
  }

  @Override
  public CommunicatorCounters counters() {
    return new CommunicatorCounters(
        ledger.collectives(),
        ledger.sends(),
        ledger.receives(),
        holders.graphLaunches(),
        fifo().inUse(),
        holders.unfinishedGraphs(),
        (long) fifo().capacity() * Work.BYTES,
        fifo().takenBytes(),
        fifo().highWaterBytes(),
        backlog.timesFull(),
        backlog.waitedNanos());
  }

  @Override
  public MemoryReport memory() {
    NcclMemoryStatistics now = closed ? null : JoinMemory.statistics(this);
    List<Line> lines = new ArrayList<>(account.lines());
    lines.addAll(JoinMemory.lines("communicator " + name + " rank " + rank(), now, joined));
    return new MemoryReport(this + " on " + cudaDevice, lines, JoinMemory.comparisons(now, joined));
  }

  @Override
  public NcclProperties properties() {
    enterAlone("properties");
    try {
      requireAlive();
      return NcclQueries.properties(this);
    } finally {
      leave();
    }
  }

  @Override
  public NcclMemoryStatistics memoryStatistics() {
    enterAlone("memoryStatistics");
    try {
      requireAlive();
      return NcclQueries.memoryStatistics(this);
    } finally {
      leave();
    }
  }

  @Override
  public String toString() {
    return "communicator " + name + ", rank " + rank() + " of " + nranks();
  }

  // ---- others made of it

  @Override
  public @Nullable CudaCommunicator split(int color, int key, CommunicatorConfig childConfig) {
    return children.split(color, key, childConfig);
  }

  @Override
  public CudaCommunicator shrink(int[] excludedRanks, boolean abort, CommunicatorConfig given) {
    return children.shrink(excludedRanks, abort, given);
  }

  @Override
  public UniqueId createGrowId() {
    return children.createGrowId();
  }

  @Override
  public CudaCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig given) {
    return children.grow(nranks, id, given);
  }

  // ---- registered buffers, one-sided operations

  @Override
  public Registration register(DeviceBuffer buffer) {
    return registrations.register(buffer);
  }

  @Override
  public List<Registration> register(@Nullable MemoryPool pool) {
    return registrations.register(pool);
  }

  @Override
  public Window registerWindow(DeviceBuffer buffer, boolean symmetric, boolean strictOrdering) {
    return registrations.registerWindow(buffer, symmetric, strictOrdering);
  }

  @Override
  public List<Window> registerWindows(
      @Nullable MemoryPool pool, boolean symmetric, boolean strictOrdering) {
    return registrations.registerWindows(pool, symmetric, strictOrdering);
  }

  @Override
  public void putSignal(
      DeviceBuffer buffer,
      long count,
      DataType type,
      int peer,
      Window window,
      long byteOffset,
      Stream stream) {
    registrations.requireOneSided("putSignal");
    CudaWindow target = registrations.requireTarget(buffer, count, type, window, byteOffset);
    long[] details = {target.handle().address(), byteOffset};
    oneSided(Operation.PUT_SIGNAL, buffer, count, type, peer, details, stream);
  }

  @Override
  public void signal(int peer, Stream stream) {
    registrations.requireOneSided("signal");
    oneSided(Operation.SIGNAL, null, 0, DataType.INT8, peer, new long[2], stream);
  }

  @Override
  public void waitSignals(int[] counts, Stream stream) {
    registrations.requireOneSided("waitSignals");
    if (counts == null
        || counts.length != nranks()
        || Arrays.stream(counts).anyMatch(count -> count < 0)
        || Arrays.stream(counts).allMatch(count -> count == 0)) {
      throw new InvalidArgumentException(
          "waitSignals: the counts are " + Arrays.toString(counts),
          "pass " + nranks() + " numbers of 0 or more, not all 0");
    }
    long[] details = Arrays.stream(counts).asLongStream().toArray();
    oneSided(Operation.WAIT_SIGNALS, null, 0, DataType.INT8, 0, details, stream);
  }

  // ---- its life

  @Override
  public void suspend() {
    Features.SUSPEND.require();
    enterFor("suspend");
    try {
      backlog.requireIdle("suspend");
      CudaCalls.run(this, "suspend", comm -> Nccl.ncclCommSuspend(comm, Nccl.NCCL_SUSPEND_MEM()));
      suspended = true;
    } finally {
      leave();
    }
  }

  @Override
  public void resume() {
    Features.SUSPEND.require();
    enterAlone("resume");
    try {
      requireAlive();
      if (!suspended) {
        throw new InvalidUsageException("communicator " + name + " is not suspended", "");
      }
      CudaCalls.run(this, "resume", Nccl::ncclCommResume);
      suspended = false;
    } finally {
      leave();
    }
  }

  @Override
  public void revoke() {
    Features.REVOKE.require();
    enterAlone("revoke");
    try {
      requireOpen();
      if (health.revoked() != null) {
        throw new InvalidUsageException("communicator " + name + " was already revoked", "");
      }
      // First, so that what ends from here on is known not to be complete.
      health.revoke(
          new AbortedException(
              "communicator " + name + " was revoked by rank " + rank(), "shrink or close it"));
      CudaCalls.run(this, "revoke", comm -> Nccl.ncclCommRevoke(comm, 0));
      backlog.awaitStopped();
    } finally {
      leave();
    }
  }

  @Override
  protected void abort(AbortedException reason) {
    if (!closed) {
      health.fail(reason);
    }
  }

  /** What NCCL still does is given up after the close timeout, or for an interrupt. */
  private void awaitPending() {
    try {
      pending.await(config.closeTimeout(), () -> pending.describe() + " was unfinished at close");
    } catch (InterruptedWaitException e) {
      pending.giveUp();
    }
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (closed) {
        return;
      }
      if (pending.isUnderWay()) {
        awaitPending();
      }
      backlog.finish();
      if (health.failure() == null) {
        registrations.end();
      }
      // NCCL may have ended operations that contradict each other without a word.
      NcclException contradiction = health.untold();
      holders.release();
      closed = true;
      team.left(this);
      CallWatch.remove(deadlines);
      nccl.destroy();
      nccl.awaitEnd(holders.releasing());
      // Where it had failed, NCCL let go of them in its abort.
      registrations.end();
      barrierFlag.close();
      fifoBooking.release();
      account.close();
      JoinMemory.Rank rank = joined;
      if (rank != null) {
        cudaDevice.addPredicted(-rank.predicted(When.COLLECTIVE));
      }
      if (contradiction instanceof MismatchException) {
        throw contradiction;
      }
    }
  }
}
