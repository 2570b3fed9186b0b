package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclMemoryStatistics;
import io.nccl4j.cuda.NcclProperties;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.cuda.nccl.CudaCalls;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.CudaLedger;
import io.nccl4j.internal.cuda.nccl.CudaPending;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.JoinMemory;
import io.nccl4j.internal.cuda.nccl.NcclHandle;
import io.nccl4j.internal.cuda.nccl.NcclQueries;
import io.nccl4j.internal.cuda.nccl.NcclRank;
import io.nccl4j.internal.cuda.nccl.Team;
import io.nccl4j.internal.cuda.nccl.window.CudaRegistrations;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Creation;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import io.nccl4j.memory.MemoryReport.Line;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * One rank over an NCCL communicator: what operations are accepted, what it is and has, its end.
 * The rest is done by its parts, each with a job of its own.
 */
final class CudaCommunicator extends ScheduledCommunicator<CudaWork>
    implements CudaRegistrations.Owner {
  private static final int FIRST_WITH_FLOAT8 = 90;

  private final CudaRank own;
  private final NcclRank self;
  private final Team team;
  private final MemoryBook.Account account;
  private final MemoryBook.Booking fifoBooking;
  private final CudaBuffer barrierFlag;
  private final CudaHolders holders;
  private final CudaHealth health;
  private final CudaPending pending;
  private final CudaCalls calls;
  private final CudaBacklog backlog;
  private final CudaRegistrations registrations;
  private final CudaChildren children;
  private final Object closing = new Object();
  private volatile JoinMemory.@Nullable Rank joined;

  private CudaCommunicator(
      NcclRank self,
      Team team,
      WorkFifo<CudaWork> fifo,
      MemoryBook.Account account,
      CudaBuffer barrierFlag) {
    super(self.name(), self.rank(), self.nranks(), self.memory().device(), self.config(), fifo);
    this.self = self;
    this.team = team;
    this.barrierFlag = barrierFlag;
    this.account = account;
    this.fifoBooking =
        account.book(MemoryPurpose.FIFO, MemoryPlace.HEAP, (long) fifo.capacity() * Work.BYTES);
    own = new CudaRank(this, self, team);
    holders = own.holders();
    health = own.health();
    pending = own.pending();
    calls = new CudaCalls(self, health, pending);
    backlog = new CudaBacklog(own, fifo);
    registrations = new CudaRegistrations(this, calls, health, account);
    children = new CudaChildren(this, own, team, backlog);
  }

  /** A rank over a handle that is ready; it owns it. */
  static CudaCommunicator create(
      int rank,
      int nranks,
      DeviceMemory memory,
      MemorySegment handle,
      Team team,
      CommunicatorConfig config,
      String name) {
    // All that can fail, so that no half of a communicator is left.
    WorkFifo<CudaWork> fifo = new WorkFifo<>(config.fifoBytes(), CudaWork::new);
    MemoryBook.Account account =
        memory.book().open("communicator " + name + " rank " + rank, memory.device());
    CudaBuffer flag;
    try {
      flag = CudaBuffer.allocate(memory, account, MemoryPurpose.BARRIER, DataType.INT32.byteSize());
    } catch (NcclException e) {
      account.close();
      throw e;
    }
    NcclRank self =
        NcclRank.of(
            name,
            rank,
            nranks,
            config,
            memory,
            new NcclHandle(handle, name, config.closeTimeout()),
            flag.pointer(),
            fifo);
    CudaCommunicator communicator = new CudaCommunicator(self, team, fifo, account, flag);
    for (int i = 0; i < fifo.capacity(); i++) {
      fifo.at(i).rank = communicator.own;
    }
    team.add(self, communicator.health, communicator::hasTaskEnded);
    communicator.own.deadlines().watch();
    return communicator;
  }

  /** What joining took; from now on the device counts what NCCL is predicted to take. */
  void joined(JoinMemory.Rank rank) {
    joined = rank;
    self.memory().addPredicted(rank.predicted(When.COLLECTIVE));
  }

  // ---- its parts

  CudaRank own() {
    return own;
  }

  CudaCalls calls() {
    return calls;
  }

  // ---- submitting

  @Override
  protected boolean isOwn(DeviceBuffer buffer) {
    return buffer instanceof CudaBuffer;
  }

  @Override
  protected void requireReady() {
    own.requireReady();
  }

  @Override
  public void requireIdle(String what) {
    backlog.requireIdle(what);
  }

  @Override
  protected void requireSupported(Operation operation, DataType type, ReduceOp op, long count) {
    boolean small = type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2;
    if (small && !Features.FLOAT8.isPresent()) {
      throw new InvalidArgumentException(
          operation.label() + ": NCCL " + CudaLibraries.ncclVersion() + " has no " + type.label(),
          "install " + Features.FLOAT8.needs());
    }
    if (small && operation.reducing() && self.memory().gpu().capability() < FIRST_WITH_FLOAT8) {
      throw new InvalidArgumentException(
          operation.label() + ": " + device().name() + " cannot reduce " + type.label(),
          "reduce another type: 8-bit floats need compute capability 9.0");
    }
    if (small && nranks() == 1 && op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      throw new InvalidArgumentException(
          operation.label() + ": NCCL cannot scale " + type.label() + " with one rank",
          "use another type, or more ranks");
    }
  }

  @Override
  public DeviceBuffer allocateStaging(long bytes) {
    return CudaBuffer.allocateWithin(self.memory(), account, MemoryPurpose.COPY, bytes);
  }

  @Override
  protected void assign(CudaWork work) {
    CudaLedger ledger = self.ledger();
    work.seq = ledger.note(work.code(), work.count, work.signedCount(nranks()));
    ledger.noteBlocks(work, rank());
  }

  @Override
  protected CudaWork newCapturedWork() {
    CudaWork work = new CudaWork(true);
    work.rank = own;
    return work;
  }

  @Override
  protected void awaitFifoRoom() {
    backlog.awaitRoom();
  }

  // ---- what it is and has

  @Override
  public String name() {
    return self.name();
  }

  @Override
  public CommunicatorConfig config() {
    return self.config();
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
    return own.state();
  }

  @Override
  public Optional<CommunicatorHosts> hosts() {
    return Optional.empty();
  }

  @Override
  public CommunicatorCounters counters() {
    return new CommunicatorCounters(
        self.ledger().collectives(),
        self.ledger().sends(),
        self.ledger().receives(),
        holders.graphLaunches(),
        fifo().inUse(),
        holders.unfinishedGraphs(),
        (long) fifo().capacity() * Work.BYTES,
        fifo().takenBytes(),
        fifo().highWaterBytes(),
        backlog.timesFull(),
        backlog.waitedNanos(),
        operationCounters());
  }

  @Override
  public MemoryReport memory() {
    self.memory().sweep();
    NcclMemoryStatistics now = own.isClosed() ? null : JoinMemory.statistics(calls);
    List<Line> lines = new ArrayList<>(account.lines());
    lines.addAll(JoinMemory.lines("communicator " + name() + " rank " + rank(), now, joined));
    return new MemoryReport(this + " on " + device(), lines, JoinMemory.comparisons(now, joined));
  }

  @Override
  public NcclProperties properties() {
    enterAlone("properties");
    try {
      own.requireAlive();
      return NcclQueries.properties(calls);
    } finally {
      leave();
    }
  }

  @Override
  public NcclMemoryStatistics memoryStatistics() {
    enterAlone("memoryStatistics");
    try {
      own.requireAlive();
      return NcclQueries.memoryStatistics(calls);
    } finally {
      leave();
    }
  }

  @Override
  public String toString() {
    return "communicator " + name() + ", rank " + rank() + " of " + nranks();
  }

  // ---- others made of it

  @Override
  public @Nullable CudaCommunicator split(int color, int key, CommunicatorConfig childConfig) {
    return Creation.one("split", () -> children.split(color, key, childConfig));
  }

  @Override
  public CudaCommunicator survivors(Duration timeout) {
    throw new InvalidUsageException(
        "survivors: NCCL has ended what is left of a failed communicator",
        "let those that are left meet by a new unique id; before a failure, NcclCommunicator.shrink"
            + " leaves ranks out");
  }

  @Override
  public CudaCommunicator shrink(int[] excludedRanks, boolean abort, CommunicatorConfig given) {
    return Objects.requireNonNull(
        Creation.one("shrink", () -> children.shrink(excludedRanks, abort, given)));
  }

  @Override
  public UniqueId createGrowId() {
    return children.createGrowId();
  }

  @Override
  public CudaCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig given) {
    return Objects.requireNonNull(Creation.one("grow", () -> children.grow(nranks, id, given)));
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
  public NcclDeviceCommunicator createDeviceCommunicator(NcclDeviceRequirements requirements) {
    return registrations.createDeviceCommunicator(requirements);
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
    long target = registrations.requireTarget(buffer, count, type, window, byteOffset);
    long[] details = {target, byteOffset};
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
      calls.run("suspend", comm -> Nccl.ncclCommSuspend(comm, Nccl.NCCL_SUSPEND_MEM()));
      own.setSuspended(true);
    } finally {
      leave();
    }
  }

  @Override
  public void resume() {
    Features.SUSPEND.require();
    enterAlone("resume");
    try {
      own.requireAlive();
      if (!own.isSuspended()) {
        throw new InvalidUsageException("communicator " + name() + " is not suspended", "");
      }
      calls.run("resume", Nccl::ncclCommResume);
      own.setSuspended(false);
    } finally {
      leave();
    }
  }

  @Override
  public void revoke() {
    Features.REVOKE.require();
    enterAlone("revoke");
    try {
      own.requireOpen();
      if (health.revoked() != null) {
        throw new InvalidUsageException("communicator " + name() + " was already revoked", "");
      }
      // First, so that what ends from here on is known not to be complete.
      health.revoke(
          new AbortedException(
              "communicator " + name() + " was revoked by rank " + rank(), "shrink or close it"));
      calls.run("revoke", comm -> Nccl.ncclCommRevoke(comm, 0));
      backlog.awaitStopped();
    } finally {
      leave();
    }
  }

  @Override
  protected void abort(AbortedException reason) {
    if (!own.isClosed()) {
      health.fail(reason);
    }
  }

  /** What NCCL still does is given up after the close timeout, or for an interrupt. */
  private void awaitPending() {
    try {
      pending.await(config().closeTimeout(), () -> pending.describe() + " was unfinished at close");
    } catch (InterruptedWaitException e) {
      pending.giveUp();
    }
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (own.isClosed()) {
        return;
      }
      if (pending.isUnderWay()) {
        awaitPending();
      }
      if (health.failure() == null) {
        registrations.requireUnused();
      }
      backlog.finish();
      if (health.failure() == null) {
        registrations.end();
      }
      // NCCL may have ended operations that contradict each other without a word.
      NcclException contradiction = health.untold();
      holders.release();
      own.setClosed();
      ended();
      team.left(self);
      own.deadlines().unwatch();
      self.handle().destroy();
      self.handle().awaitEnd(holders.releasing());
      // Behind NCCL's end: what hung in the stream is over.
      endArrays();
      // Where it had failed, NCCL let go of them in its abort.
      registrations.end();
      barrierFlag.close();
      fifoBooking.release();
      account.close();
      JoinMemory.Rank rank = joined;
      if (rank != null) {
        self.memory().addPredicted(-rank.predicted(When.COLLECTIVE));
      }
      if (contradiction instanceof MismatchException) {
        throw contradiction;
      }
    }
  }
}
