package io.nccl4j.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPool;
import io.nccl4j.MemoryPrediction.When;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryReport;
import io.nccl4j.MemoryReport.Line;
import io.nccl4j.NcclCommunicator;
import io.nccl4j.NcclException;
import io.nccl4j.NcclMemoryStatistics;
import io.nccl4j.NcclProperties;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.schedule.GroupScope;
import io.nccl4j.schedule.OpKind;
import io.nccl4j.schedule.ScheduledCommunicator;
import io.nccl4j.schedule.Signature;
import io.nccl4j.schedule.Work;
import io.nccl4j.schedule.WorkFifo;
import io.nccl4j.spi.EngineStream;
import io.nccl4j.spi.MemoryBook;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * One rank over an NCCL communicator.
 *
 * <p>It owns NCCL's handle until it is destroyed at close or aborted at the first failure; native
 * calls with the handle are made under the guard, which keeps an abort from another thread out.
 */
final class CudaCommunicator extends ScheduledCommunicator<CudaWork> implements NcclCommunicator {
  private static final Logger LOG = LogManager.getLogger(CudaCommunicator.class);
  private static final long LOOK_NANOS = 1_000_000;
  private static final long STUCK_NANOS = 50_000_000;
  private static final int FIRST_WITH_FLOAT8 = 90;
  private static final int OLDEST_DRIVER_FOR_ONE_SIDED = 12050;

  private final String name;
  private final CommunicatorConfig config;
  private final Team team;
  private final CudaDevice cudaDevice;
  private final MemoryBook.Account account;
  private final MemoryBook.Booking fifoBooking;
  private volatile JoinMemory.@Nullable Rank joined;
  private final CudaBuffer barrierFlag;
  private final Arena arena = Arena.ofShared();
  private final MemorySegment asyncOut = arena.allocate(ValueLayout.JAVA_INT);
  private final MemorySegment opOut = arena.allocate(ValueLayout.JAVA_INT);
  private final MemorySegment scalar = arena.allocate(Long.BYTES, Long.BYTES);
  private final Guard guard = new Guard();
  private final CudaLedger ledger;
  private final AtomicReference<@Nullable NcclException> failure = new AtomicReference<>();
  private final Set<Holder> holders = ConcurrentHashMap.newKeySet();
  private final AtomicInteger unfinishedGraphs = new AtomicInteger();
  private final AtomicLong graphLaunches = new AtomicLong();
  private final AtomicLong fifoFull = new AtomicLong();
  private final AtomicLong fifoWaitNanos = new AtomicLong();
  private final Object closing = new Object();
  private long splits;

  @SuppressWarnings("unused") // kept for NCCL, which has only the address
  private Object kept = MemorySegment.NULL;

  /** Collectives up to this one are known to agree with the other ranks of this process. */
  private volatile long agreed;

  /** NCCL's handle; NULL when it was destroyed or aborted. Under the guard. */
  private MemorySegment handle;

  private final Set<CudaRegistered> registered = ConcurrentHashMap.newKeySet();
  private final Map<String, Integer> shrinks = new HashMap<>();

  /** Ranks that took part in no shrink: NCCL counts children, and theirs would differ. */
  private final BitSet leftOut = new BitSet();

  private int grows;
  private @Nullable MemorySegment out;
  private @Nullable UniqueId growId;

  /** Why operations were stopped without ending the communicator. */
  private volatile @Nullable AbortedException revoked;

  private boolean suspended;
  private boolean hostRma;
  private volatile String pending;
  private volatile boolean launching;
  private @Nullable CudaWork launchingWork;
  private volatile @Nullable CudaWork calling;
  private volatile long callTick;
  private volatile long failedNanos;

  /** Reductions of what is being launched, to be destroyed after that. */
  private int[] createdOps = new int[4];

  private int createdCount;
  private volatile @Nullable Thread ending;
  private volatile @Nullable Thread releasing;
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
    this.ledger = new CudaLedger(nranks);
    this.handle = handle;
    this.team = team;
    this.config = config;
    this.name = name;
    this.pending = "creating communicator " + name;
    this.barrierFlag = barrierFlag;
    this.account = account;
    this.fifoBooking =
        account.book(MemoryPurpose.FIFO, MemoryPlace.HEAP, (long) fifo.capacity() * Work.BYTES);
  }

  /** A rank over a handle whose initialisation has begun; usable after {@link #awaitReady}. */
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
    CallWatch.add(communicator);
    return communicator;
  }

  /** Whether a call of NCCL is under way, which may last as long as an operation may. */
  boolean isInACall() {
    if (!guard.enterWithin(STUCK_NANOS)) {
      return true;
    }
    guard.leave();
    return false;
  }

  /** What joining took; from now on the device counts what NCCL is predicted to take. */
  void joined(JoinMemory.Rank rank) {
    joined = rank;
    cudaDevice.addPredicted(rank.predicted(When.COLLECTIVE));
  }

  // ---- for launches

  /** What this rank has taken. */
  MemoryBook.Account account() {
    return account;
  }

  Guard guard() {
    return guard;
  }

  /** NCCL's handle, NULL after a failure; under the guard. */
  MemorySegment handle() {
    return handle;
  }

  CudaLedger ledger() {
    return ledger;
  }

  /** Where NCCL writes the number of a new reduction. */
  MemorySegment opOut() {
    return opOut;
  }

  /** Room for one element in host memory. */
  MemorySegment scalar() {
    return scalar;
  }

  /** Four bytes that barriers reduce. */
  MemorySegment barrierFlag() {
    return barrierFlag.pointer();
  }

  /** Notes what a launch of a work left to be done. */
  void launched(CudaWork work, CudaStream stream, int result) {
    if (work.createdOp >= 0) {
      if (createdCount == createdOps.length) {
        createdOps = Arrays.copyOf(createdOps, 2 * createdCount);
      }
      createdOps[createdCount++] = work.createdOp;
      work.createdOp = -1;
    }
    if (result == NcclResults.IN_PROGRESS) {
      launchingWork = work;
      launching = true;
      stream.launchesFrom(this);
    } else {
      releaseOps();
    }
  }

  /**
   * Destroys the reductions made for what is launched; NCCL refuses that only when it is broken.
   */
  private void releaseOps() {
    if (createdCount == 0) {
      return;
    }
    int failed = NcclResults.SUCCESS;
    guard.enter();
    try {
      for (int i = 0; i < createdCount && !handle.equals(MemorySegment.NULL); i++) {
        int result = Nccl.ncclRedOpDestroy(createdOps[i], handle);
        failed = NcclResults.isFailure(result) ? result : failed;
      }
    } finally {
      guard.leave();
    }
    createdCount = 0;
    if (failed != NcclResults.SUCCESS) {
      fail(NcclResults.failure(failed, "ncclRedOpDestroy of communicator " + name));
    }
  }

  /** Whether NCCL has done what it was asked for last; asks it. */
  boolean hasLaunched() {
    if (!launching) {
      return true;
    }
    int result = asyncResult();
    if (result == NcclResults.IN_PROGRESS) {
      return false;
    }
    launching = false;
    if (result != NcclResults.SUCCESS) {
      fail(NcclResults.failure(result, launchingName()));
    }
    releaseOps();
    return true;
  }

  private String launchingName() {
    CudaWork work = launchingWork;
    return work == null ? pending : work.describe();
  }

  /** Waits until NCCL has done what it was asked for last, within the operation's deadline. */
  void awaitLaunched() {
    if (!hasLaunched()) {
      awaitReady(
          config.operationTimeout(),
          () -> {
            CudaWork work = launchingWork;
            return work == null ? launchingName() : explain(work);
          });
    }
  }

  /** A problem in words. */
  interface Explanation {
    String text();
  }

  /** Waits until NCCL is ready, or fails this communicator when the time is over. */
  void awaitReady(Duration timeout, Explanation explanation) {
    long start = System.nanoTime();
    long looked = start;
    while (!hasLaunched()) {
      long now = System.nanoTime();
      if (now - start > timeout.toNanos()) {
        fail(
            new DeadlineException(
                "not done after " + timeout.toMillis() + " ms: " + explanation.text(),
                "look at the other ranks; a thread that drives several ranks must issue their"
                    + " operations in one group"));
        return;
      }
      if (now - looked > LOOK_NANOS) {
        looked = now;
        look();
      }
      CudaStream.pause(now - start);
    }
  }

  private int asyncResult() {
    if (!guard.tryEnter()) {
      // Another thread is in a call, and will know.
      return NcclResults.IN_PROGRESS;
    }
    try {
      if (handle.equals(MemorySegment.NULL)) {
        return NcclResults.SUCCESS;
      }
      int result = Nccl.ncclCommGetAsyncError(handle, asyncOut);
      return result != NcclResults.SUCCESS ? result : asyncOut.get(ValueLayout.JAVA_INT, 0);
    } finally {
      guard.leave();
    }
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
    AbortedException stopped = revoked;
    if (stopped != null) {
      throw new InvalidUsageException(
              stopped.problem(), "shrink or split it, close it, or create a new one")
          .causedBy(stopped);
    }
    requireResumed();
  }

  private void requireResumed() {
    if (suspended) {
      throw new InvalidUsageException("communicator " + name + " is suspended", "resume it first");
    }
  }

  /** Throws unless NCCL's communicator is there. */
  private void requireAlive() {
    if (closed) {
      throw new InvalidUsageException("communicator " + name + " is closed", "create a new one");
    }
    awaitLaunched();
    NcclException cause = failure.get();
    if (cause != null) {
      throw new InvalidUsageException(
              "communicator " + name + " has failed: " + cause.problem(),
              "close it and create a new one")
          .causedBy(cause);
    }
  }

  @Override
  protected void requireSupported(OpKind kind, DataType type, ReduceOp op) {
    boolean small = type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2;
    if (small && !Features.FLOAT8.isPresent()) {
      throw new InvalidArgumentException(
          kind.label() + ": NCCL " + CudaLibraries.ncclVersion() + " has no " + type.label(),
          "install " + Features.FLOAT8.needs());
    }
    if (small && kind.isReducing() && cudaDevice.capability() < FIRST_WITH_FLOAT8) {
      throw new InvalidArgumentException(
          kind.label() + ": " + cudaDevice.name() + " cannot reduce " + type.label(),
          "reduce another type: 8-bit floats need compute capability 9.0");
    }
    if (small && nranks() == 1 && op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      throw new InvalidArgumentException(
          kind.label() + ": NCCL cannot scale " + type.label() + " with one rank",
          "use another type, or more ranks");
    }
  }

  @Override
  protected void assign(CudaWork work) {
    work.seq = ledger.note(work.kind, work.code(), work.count, signed(work));
    ledger.noteBlocks(work, rank());
  }

  /** What of the counts all ranks know. */
  long signed(CudaWork work) {
    return switch (work.kind) {
      case ALL_GATHER_V, REDUCE_SCATTER_V -> Signature.ofCounts(work.recvCounts, nranks());
      case ALL_TO_ALL_V, GATHER_V, SCATTER_V -> 0;
      default -> work.count;
    };
  }

  @Override
  protected CudaWork newCapturedWork() {
    CudaWork work = new CudaWork(true);
    work.communicator = this;
    return work;
  }

  @Override
  protected void awaitFifoRoom() {
    long start = System.nanoTime();
    fifoFull.incrementAndGet();
    try {
      while (!fifo().hasRoom()) {
        CudaWork oldest = fifo().oldest();
        if (oldest.stream instanceof CudaStream stream) {
          stream.awaitLaunches();
          stream.awaitHead();
        }
      }
    } finally {
      fifoWaitNanos.addAndGet(System.nanoTime() - start);
    }
  }

  /** The work is over, one way or the other; its place is about to be given back. */
  void completed(CudaWork work) {
    if (launchingWork == work) {
      launchingWork = null;
    }
  }

  // ---- graphs

  /** What keeps operations of a communicator, so that NCCL cannot end before it lets them go. */
  interface Holder {
    /** Lets go of them. Any thread; called once or more. */
    void communicatorEnds();
  }

  void heldBy(Holder holder) {
    holders.add(holder);
  }

  void releasedBy(Holder holder) {
    holders.remove(holder);
  }

  void graphStarted() {
    graphLaunches.incrementAndGet();
    unfinishedGraphs.incrementAndGet();
  }

  void graphEnded() {
    unfinishedGraphs.decrementAndGet();
  }

  long agreed() {
    return agreed;
  }

  void agreedUpTo(long seq) {
    agreed = seq;
  }

  // ---- failure

  /** The first failure, null while there is none. */
  @Nullable NcclException failureCause() {
    return failure.get();
  }

  /**
   * The failure, as for {@link #failureCause}, after a look whether the ranks here called the same:
   * NCCL may end operations that contradict each other without a word.
   */
  @Nullable NcclException outcome() {
    if (failure.get() == null && revoked != null) {
      return revoked;
    }
    if (failure.get() == null) {
      NcclException e = team.mismatch(this);
      if (e != null) {
        fail(e);
      }
    }
    return failure.get();
  }

  /** Fails this rank and those of this process with it, and makes NCCL stop. Any thread. */
  void fail(NcclException cause) {
    if (!failure.compareAndSet(null, cause)) {
      return;
    }
    failedNanos = System.nanoTime();
    // First the reason: NCCL lets waiting ranks go, and says only that it was aborted.
    team.failed(this, cause);
    abortNative();
  }

  /** Kernels and calls that wait for peers end; NCCL frees what it holds. */
  private void abortNative() {
    // A call that waits for peers must be let out by the abort itself.
    boolean entered = guard.enterWithin(STUCK_NANOS);
    MemorySegment aborted = handle;
    handle = MemorySegment.NULL;
    if (entered) {
      guard.leave();
    }
    if (!aborted.equals(MemorySegment.NULL)) {
      ending = abortInBackground(aborted, name, entered ? () -> {} : () -> letOut(aborted));
      // Destroying a graph waits until it has run, which it does once NCCL aborts.
      releasing = inBackground(this::releaseHolders, name);
    }
  }

  /** Whatever one of them says, such as that the device is lost, the others let go, too. */
  private void releaseHolders() {
    for (Holder holder : holders) {
      try {
        holder.communicatorEnds();
      } catch (NcclException e) {
        LOG.warn("a graph of communicator {} is left to CUDA: {}", name, e.getMessage());
      }
    }
  }

  /** Ends a call that another thread is in before what it uses is freed. */
  private void letOut(MemorySegment stuck) {
    if (Features.REVOKE.isPresent()) {
      int result = Nccl.ncclCommRevoke(stuck, 0);
      if (NcclResults.isFailure(result)) {
        LOG.warn(NcclResults.failure(result, "revoking communicator " + name));
      }
      if (guard.enterWithin(config.closeTimeout().toNanos())) {
        guard.leave();
      }
    }
  }

  /**
   * Aborts a communicator on a thread of its own: that may wait for the device, on which another
   * rank's kernel may wait for the caller's thread.
   */
  static Thread abortInBackground(MemorySegment handle, String name, Runnable before) {
    return inBackground(
        () -> {
          before.run();
          int result = Nccl.ncclCommAbort(handle);
          if (NcclResults.isFailure(result)) {
            LOG.warn(NcclResults.failure(result, "aborting communicator " + name));
          }
        },
        name);
  }

  private static Thread inBackground(Runnable end, String name) {
    return Thread.ofPlatform().daemon().name("nccl4j-end-" + name).start(end);
  }

  // ---- calls that do not return

  /** This thread is about to call NCCL for a work. */
  void callBegins(CudaWork work) {
    calling = work;
    callTick = CallWatch.now();
  }

  void callEnds() {
    callTick = 0;
    calling = null;
  }

  /** Looks after a call that has not returned for a while; for the watch. */
  void checkCall() {
    long begun = callTick;
    CudaWork work = calling;
    long ticks = CallWatch.now() - begun;
    if (begun == 0 || work == null || ticks < 2 || failure.get() != null) {
      return;
    }
    NcclException e = team.contradiction(this);
    if (e == null && ticks * CallWatch.TICK_NANOS > config.operationTimeout().toNanos()) {
      e =
          new DeadlineException(
              "not started after " + config.operationTimeout().toMillis() + " ms: " + explain(work),
              "look at the other ranks; a thread that drives several ranks must issue their"
                  + " operations in one group");
    }
    if (e != null) {
      fail(e);
    }
  }

  /** Asks NCCL whether something went wrong in the background, and the other ranks here. */
  void look() {
    if (failure.get() == null && revoked == null) {
      int result = launching ? NcclResults.IN_PROGRESS : asyncResult();
      NcclException e =
          NcclResults.isFailure(result)
              ? NcclResults.failure(result, "communicator " + name)
              : team.contradiction(this);
      if (e != null) {
        fail(e);
      }
    }
  }

  /** Fails when a work has been waited for longer than operations may take. */
  void checkDeadline(CudaWork work, long waitedNanos) {
    if (waitedNanos > config.operationTimeout().toNanos() && failure.get() == null) {
      fail(
          new DeadlineException(
              "not complete after "
                  + config.operationTimeout().toMillis()
                  + " ms: "
                  + explain(work),
              "look at the ranks named; operation-timeout sets the deadline"));
    }
  }

  /** The same for a graph, of which only the whole is known. */
  void checkGraphDeadline(long waitedNanos) {
    if (waitedNanos > config.operationTimeout().toNanos() && failure.get() == null) {
      fail(
          new DeadlineException(
              "not complete after "
                  + config.operationTimeout().toMillis()
                  + " ms: a graph of communicator "
                  + name
                  + (explainGraph().isEmpty() ? "" : ", whose " + explainGraph())
                  + backlog(),
              "see that all ranks launch the same graphs or operations"));
    }
  }

  /** The first collective that others here have not called, and who they are; or nothing. */
  String explainGraph() {
    long first = team.reachedByAll(this) + 1;
    return first > ledger.collectives()
        ? ""
        : ledger.describe(first) + " #" + first + " is waiting for " + team.absent(this, first);
  }

  /** Whether NCCL was told to end long ago: what still runs on the device will not end. */
  boolean shouldHaveEnded(long now) {
    return failure.get() != null
        && failedNanos != 0
        && now - failedNanos > config.closeTimeout().toNanos();
  }

  String explain(CudaWork work) {
    return work.describe() + " is waiting for " + team.missing(this, work) + backlog();
  }

  private String backlog() {
    CudaWork oldest = fifo().oldestInUse();
    return "; "
        + fifo().inUse()
        + " of "
        + fifo().capacity()
        + " works of this rank's FIFO are unfinished"
        + (oldest == null ? "" : ", the oldest is " + oldest.describe());
  }

  @Override
  public Optional<NcclException> failure() {
    NcclException cause = failure.get();
    return Optional.ofNullable(cause == null ? revoked : cause);
  }

  @Override
  public State state() {
    if (closed) {
      return State.CLOSED;
    }
    look();
    NcclException cause = failure.get();
    cause = cause == null ? revoked : cause;
    return cause == null
        ? State.READY
        : cause instanceof AbortedException ? State.ABORTED : State.FAILED;
  }

  @Override
  public CommunicatorCounters counters() {
    int unfinished = fifo().inUse();
    return new CommunicatorCounters(
        ledger.collectives(),
        ledger.sends(),
        ledger.receives(),
        graphLaunches.get(),
        unfinished,
        unfinishedGraphs.get(),
        (long) fifo().capacity() * Work.BYTES,
        (long) unfinished * Work.BYTES,
        fifo().highWaterBytes(),
        fifoFull.get(),
        fifoWaitNanos.get());
  }

  @Override
  public MemoryReport memory() {
    NcclMemoryStatistics now = closed ? null : JoinMemory.statistics(this);
    List<Line> lines = new ArrayList<>(account.lines());
    lines.addAll(JoinMemory.lines("communicator " + name + " rank " + rank(), now, joined));
    return new MemoryReport(this + " on " + cudaDevice, lines, JoinMemory.comparisons(now, joined));
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
  public @Nullable CudaCommunicator split(int color, int key, CommunicatorConfig childConfig) {
    requireAlive();
    requireConfig("split", childConfig);
    requireResumed();
    requireIdle("split");
    requireAll("split");
    if (color < 0 && color != NO_COLOR) {
      throw new InvalidArgumentException(
          "split: the color is " + color, "use 0 or more, or Communicator.NO_COLOR");
    }
    return CudaSplit.run(this, team.child(++splits, color), color, key, childConfig);
  }

  /** Memory that NCCL may write to until the communicator is closed. */
  Arena arena() {
    return arena;
  }

  /** Keeps something reachable as long as this communicator, which NCCL has the address of. */
  void keep(Object object) {
    kept = object;
  }

  CudaDevice cudaDevice() {
    return cudaDevice;
  }

  /** Lets NCCL finish a call on the handle, {@code what}, that goes on in the background. */
  void callGoesOn(String what) {
    pending = what;
    launching = true;
  }

  /** Where NCCL writes a pointer, one call at a time; it may do so after the call. */
  MemorySegment out() {
    MemorySegment known = out;
    if (known == null) {
      known = arena.allocate(ValueLayout.ADDRESS);
      out = known;
    }
    known.set(ValueLayout.ADDRESS, 0, MemorySegment.NULL);
    return known;
  }

  private static void requireConfig(String what, @Nullable CommunicatorConfig given) {
    if (given == null) {
      throw new InvalidArgumentException(
          what + ": the config is null", "pass a configuration, or leave it out");
    }
  }

  /** Throws if a group is open on this thread or operations are unfinished. */
  void requireIdle(String what) {
    requireNoGroup(what);
    if (hasUnfinished()) {
      throw new InvalidUsageException(
          what + ": operations of communicator " + name + " are unfinished",
          "synchronize their streams first");
    }
  }

  private void requireAll(String what) {
    if (!leftOut.isEmpty()) {
      throw leftOutBefore(what, leftOut);
    }
  }

  private InvalidUsageException leftOutBefore(String what, BitSet ranks) {
    return new InvalidUsageException(
        what + ": ranks " + ranks + " of communicator " + name + " were left out of a shrink",
        "NCCL cannot make another communicator with them from this one; use the shrunken one");
  }

  private static void requireNoGroup(String what) {
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          what + ": a group is open on this thread", "launch or close the group first");
    }
  }

  // ---- what only NCCL has

  void registered(CudaRegistered one) {
    registered.add(one);
  }

  void deregistered(CudaRegistered one) {
    registered.remove(one);
  }

  @Override
  public CudaCommunicator shrink(int[] excludedRanks, boolean abort, CommunicatorConfig given) {
    Features.SHRINK.require();
    requireConfig("shrink", given);
    NcclConfig.requireKnown(given.nccl());
    int[] excluded = excluded(excludedRanks);
    enterAlone("shrink");
    try {
      requireResumed();
      BitSet stay = (BitSet) leftOut.clone();
      Arrays.stream(excluded).forEach(stay::clear);
      if (!stay.isEmpty()) {
        throw leftOutBefore("shrink", stay);
      }
      if (abort) {
        requireOpen();
        requireNoGroup("shrink");
        revoked =
            new AbortedException(
                "operations of communicator " + name + " were given up by shrink", "close it");
      } else {
        requireAlive();
        requireIdle("shrink");
      }
      Arrays.stream(excluded).forEach(leftOut::set);
      String ranks = Arrays.toString(excluded);
      Team child = team.child("shrink" + ranks + "-" + shrinks.merge(ranks, 1, Integer::sum));
      CudaCommunicator made = CudaChildren.shrink(this, child, excluded, abort, given);
      if (abort) {
        awaitStopped();
      }
      return made;
    } finally {
      leave();
    }
  }

  private int[] excluded(int @Nullable [] given) {
    if (given == null || given.length == 0 || given.length >= nranks()) {
      throw new InvalidArgumentException(
          "shrink: excluded ranks are " + Arrays.toString(given),
          "pass 1 to " + (nranks() - 1) + " ranks");
    }
    int[] sorted = given.clone();
    Arrays.sort(sorted);
    for (int i = 0; i < sorted.length; i++) {
      boolean twice = i > 0 && sorted[i] == sorted[i - 1];
      if (sorted[i] < 0 || sorted[i] >= nranks() || sorted[i] == rank() || twice) {
        throw new InvalidArgumentException(
            "shrink: excluded ranks are " + Arrays.toString(given) + " on rank " + rank(),
            "pass other ranks than this one, from 0 to " + (nranks() - 1) + ", none twice");
      }
    }
    return sorted;
  }

  @Override
  public UniqueId createGrowId() {
    Features.GROW.require();
    enterFor("createGrowId");
    try {
      // The call is made on a thread of its own, which NCCL may keep.
      MemorySegment id = ncclUniqueId.allocate(Arena.ofAuto());
      if (growId != null) {
        throw new InvalidUsageException(
            "createGrowId: communicator " + name + " has an id that was not used", "grow with it");
      }
      CudaCalls.run(this, "createGrowId", comm -> Nccl.ncclCommGetUniqueId(comm, id));
      growId = UniqueId.ofBytes(id.toArray(ValueLayout.JAVA_BYTE));
      return growId;
    } finally {
      leave();
    }
  }

  @Override
  public CudaCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig given) {
    Features.GROW.require();
    requireConfig("grow", given);
    NcclConfig.requireKnown(given.nccl());
    if (nranks <= nranks()) {
      throw new InvalidArgumentException(
          "grow: nranks is " + nranks, "pass more than the " + nranks() + " ranks there are");
    }
    enterFor("grow");
    try {
      if (!Objects.equals(id, growId)) {
        throw new InvalidArgumentException(
            id == null
                ? "grow: this rank made an id, and does not pass it"
                : "grow: this rank passes an id that it did not make",
            "pass what createGrowId returned on the root, and null on all other ranks");
      }
      requireIdle("grow");
      requireAll("grow");
      growId = null;
      return CudaChildren.grow(this, team.child("grow-" + ++grows), nranks, id, given);
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
      if (revoked != null) {
        throw new InvalidUsageException("communicator " + name + " was revoked before", "");
      }
      // First, so that what ends from here on is known not to be complete.
      revoked =
          new AbortedException(
              "communicator " + name + " was revoked by rank " + rank(), "shrink or close it");
      CudaCalls.run(this, "revoke", comm -> Nccl.ncclCommRevoke(comm, 0));
      awaitStopped();
    } finally {
      leave();
    }
  }

  /** As {@link #requireAlive}, without waiting for what may be stuck. */
  private void requireOpen() {
    if (!launching || closed || failure.get() != null) {
      requireAlive();
    }
  }

  /** NCCL has stopped what ran: it leaves the streams, unless it is queued behind other work. */
  private void awaitStopped() {
    long start = System.nanoTime();
    while (hasUnfinished() && System.nanoTime() - start < config.closeTimeout().toNanos()) {
      CudaStream.pause(System.nanoTime() - start);
    }
  }

  @Override
  public void suspend() {
    Features.SUSPEND.require();
    enterFor("suspend");
    try {
      requireIdle("suspend");
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
  public Registration register(DeviceBuffer buffer) {
    Features.REGISTER.require();
    CudaBuffer own = registrable(buffer, "register");
    enterFor("register");
    try {
      return CudaRegistration.create(this, own);
    } finally {
      leave();
    }
  }

  @Override
  public Window registerWindow(DeviceBuffer buffer, boolean symmetric, boolean strictOrdering) {
    Features.WINDOWS.require();
    CudaBuffer own = registrable(buffer, "registerWindow");
    if (own.address() % CudaHeap.ALIGNMENT != 0) {
      throw new InvalidArgumentException(
          "registerWindow: the buffer starts at 0x" + Long.toHexString(own.address()),
          "windows start at multiples of " + CudaHeap.ALIGNMENT + " bytes, as allocated buffers");
    }
    enterFor("registerWindow");
    try {
      requireIdle("registerWindow");
      return CudaWindow.create(this, own, symmetric, strictOrdering);
    } finally {
      leave();
    }
  }

  @Override
  public List<Registration> register(@Nullable MemoryPool pool) {
    return ofChunks(pool, "register", CudaRegistration.class, this::register);
  }

  @Override
  public List<Window> registerWindows(
      @Nullable MemoryPool pool, boolean symmetric, boolean strictOrdering) {
    return ofChunks(
        pool,
        "registerWindows",
        CudaWindow.class,
        chunk -> registerWindow(chunk, symmetric, strictOrdering));
  }

  /** One registration of each chunk: the one there is, or a new one. */
  private <R> List<R> ofChunks(
      @Nullable MemoryPool pool,
      String call,
      Class<? extends R> kind,
      Function<CudaBuffer, R> registration) {
    List<R> all = new ArrayList<>();
    for (CudaBuffer chunk : CudaPool.require(pool, cudaDevice, call).buffers()) {
      R known = null;
      for (CudaRegistered one : registered) {
        if (one.buffer() == chunk && kind.isInstance(one) && !one.isClosed()) {
          known = kind.cast(one);
        }
      }
      all.add(known == null ? registration.apply(chunk) : known);
    }
    return List.copyOf(all);
  }

  private CudaBuffer registrable(@Nullable DeviceBuffer buffer, String what) {
    if (!(buffer instanceof CudaBuffer own) || own.device() != cudaDevice || own.byteSize() == 0) {
      throw new InvalidArgumentException(
          what + ": the buffer is null, empty or not on " + cudaDevice,
          "allocate it on communicator.device()");
    }
    own.requireOpen();
    return own;
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
    requireOneSided("putSignal");
    if (!(window instanceof CudaWindow own) || own.communicator() != this) {
      throw new InvalidArgumentException(
          "putSignal: the window is not of communicator " + name, "register it with this one");
    }
    if (own.isClosed() || !own.isSupported()) {
      throw new InvalidUsageException(
          "putSignal: the window is " + (own.isClosed() ? "closed" : "not supported here"),
          "keep windows open, and see isSupported()");
    }
    if (byteOffset < 0) {
      throw new InvalidArgumentException(
          "putSignal: the offset is " + byteOffset + " bytes", "pass 0 or more");
    }
    requireInWindow(buffer, count, type);
    oneSided(
        OpKind.PUT_SIGNAL,
        buffer,
        count,
        type,
        peer,
        new long[] {own.handle().address(), byteOffset},
        stream);
  }

  private void requireInWindow(@Nullable DeviceBuffer buffer, long count, @Nullable DataType type) {
    if (buffer == null || type == null || count < 0) {
      // The common checks say it.
      return;
    }
    for (CudaRegistered one : registered) {
      if (one instanceof CudaWindow window
          && window.covers(buffer.address(), count * type.byteSize())) {
        return;
      }
    }
    throw new InvalidArgumentException(
        "putSignal: the send buffer does not lie in a symmetric window of communicator " + name,
        "register it with registerWindow(buffer, true, …), on all ranks");
  }

  /** What NCCL would refuse with an error that ends the communicator. */
  private void requireOneSided(String what) {
    Features.ONE_SIDED.require();
    if (CudaLibraries.driverVersion() < OLDEST_DRIVER_FOR_ONE_SIDED) {
      throw new InvalidUsageException(
          what
              + ": the driver serves CUDA "
              + CudaLibraries.cudaText(CudaLibraries.driverVersion()),
          "one-sided operations need a driver of CUDA 12.5 or newer");
    }
    if (!hostRma) {
      hostRma = properties().hostRmaSupport();
    }
    if (!hostRma) {
      throw new InvalidUsageException(
          what + ": communicator " + name + " has no one-sided operations",
          "see NcclProperties.hostRmaSupport(): they need symmetric memory and CUDA 12.5");
    }
  }

  @Override
  public void signal(int peer, Stream stream) {
    requireOneSided("signal");
    oneSided(OpKind.SIGNAL, null, 0, DataType.INT8, peer, new long[2], stream);
  }

  @Override
  public void waitSignals(int[] counts, Stream stream) {
    requireOneSided("waitSignals");
    if (counts == null
        || counts.length != nranks()
        || Arrays.stream(counts).anyMatch(count -> count < 0)
        || Arrays.stream(counts).allMatch(count -> count == 0)) {
      throw new InvalidArgumentException(
          "waitSignals: the counts are " + Arrays.toString(counts),
          "pass " + nranks() + " numbers of 0 or more, not all 0");
    }
    long[] details = Arrays.stream(counts).asLongStream().toArray();
    oneSided(OpKind.WAIT_SIGNALS, null, 0, DataType.INT8, 0, details, stream);
  }

  private boolean hasUnfinished() {
    pollStreams();
    return unfinishedGraphs.get() > 0 || fifo().oldestInUse() != null;
  }

  /** Learns what is complete by now. */
  private void pollStreams() {
    for (int i = 0; i < fifo().capacity(); i++) {
      CudaWork work = fifo().at(i);
      if (work.isInUse() && work.stream instanceof CudaStream stream && !stream.isCapturing()) {
        stream.poll();
      }
    }
    for (Holder holder : holders) {
      if (holder instanceof CudaExecutableGraph graph) {
        graph.poll();
      }
    }
  }

  @Override
  public void abort() {
    if (!closed) {
      fail(
          new AbortedException(
              "communicator " + name + " was aborted by rank " + rank(), "create a new one"));
    }
  }

  @Override
  public void close() {
    synchronized (closing) {
      if (closed) {
        return;
      }
      finishOwnWork();
      if (failure.get() == null) {
        registered.forEach(CudaRegistered::end);
      }
      releaseHolders();
      closed = true;
      team.left(this);
      CallWatch.remove(this);
      destroyNative();
      awaitEnd();
      // Where it had failed, NCCL let go of them in its abort.
      registered.forEach(CudaRegistered::end);
      barrierFlag.close();
      fifoBooking.release();
      account.close();
      JoinMemory.Rank rank = joined;
      if (rank != null) {
        cudaDevice.addPredicted(-rank.predicted(When.COLLECTIVE));
      }
    }
  }

  private void finishOwnWork() {
    long start = System.nanoTime();
    long timeout = config.closeTimeout().toNanos();
    if (launching) {
      awaitReady(config.closeTimeout(), () -> launchingName() + " was unfinished at close");
    }
    while (hasUnfinished()) {
      CudaWork oldest = fifo().oldestInUse();
      if (oldest != null
          && oldest.stream instanceof CudaStream stream
          && stream.poll()
          && oldest.isInUse()) {
        throw new InvalidUsageException(
            "communicator " + name + " has operations in an open group",
            "launch or close the group first");
      }
      long waited = System.nanoTime() - start;
      if (waited > timeout && failure.get() == null) {
        fail(
            new AbortedException(
                (oldest == null ? "a graph" : oldest.describe())
                    + " was unfinished when its communicator was closed",
                "synchronize before closing; close-timeout sets how long close waits"));
      } else if (waited > 2 * timeout) {
        throw new InvalidUsageException(
            (oldest == null ? "a graph" : oldest.describe())
                + " cannot be given up: it is queued behind other work",
            "close the stream first");
      }
      CudaStream.pause(waited);
    }
  }

  private void destroyNative() {
    guard.enter();
    MemorySegment last = handle;
    handle = MemorySegment.NULL;
    guard.leave();
    if (!last.equals(MemorySegment.NULL)) {
      ending =
          inBackground(
              () -> {
                int result = Nccl.ncclCommDestroy(last);
                if (NcclResults.isFailure(result)) {
                  LOG.warn(NcclResults.failure(result, "destroying communicator " + name));
                  NcclResults.check(Nccl.ncclCommAbort(last), "ncclCommAbort");
                }
              },
              name);
    }
  }

  /** NCCL writes no more after that; where it does not end in time, its memory is left to it. */
  private void awaitEnd() {
    try {
      if (hasEnded(releasing) && hasEnded(ending)) {
        arena.close();
      } else {
        LOG.warn(
            "NCCL has not ended communicator {} after {} ms; it goes on in the background",
            name,
            config.closeTimeout().toMillis());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private boolean hasEnded(@Nullable Thread thread) throws InterruptedException {
    return thread == null || thread.join(config.closeTimeout());
  }

  @Override
  public String toString() {
    return "communicator " + name + ", rank " + rank() + " of " + nranks();
  }
}
