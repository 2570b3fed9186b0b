package io.nccl4j.cuda;

import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.schedule.GroupScope;
import io.nccl4j.schedule.Padded;
import io.nccl4j.spi.EngineStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A CUDA stream, and a ring of what is in it that the device has not passed yet.
 *
 * <p>How far the device has come is learnt from the stream itself when everything is waited for,
 * and otherwise from marks: events recorded every {@value #ENTRIES_PER_MARK} entries, or when
 * somebody needs to know. There is no event per operation.
 *
 * <p>A communicator that does not block hands its launch to a thread of NCCL. Whatever is put into
 * the stream next would overtake it, so that everything but the next operation of a group waits for
 * launches to be done.
 *
 * <p>It owns its marks' events, and the CUDA stream unless somebody else made it.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaStream extends Padded implements EngineStream<CudaWork> {
  /**
   * A quarter of what CUDA queues before a call waits for the device, where no deadline sees it.
   */
  static final int CAPACITY = 256;

  private static final int ENTRIES_PER_MARK = CAPACITY / 2;
  private static final int NON_BLOCKING = 1;

  /** CUDA's handles of the default streams; 0 is the first of them. */
  private static final long LEGACY = 1;

  private static final long PER_THREAD = 2;
  private static final int CAPTURE_RELAXED = 2;
  private static final long SPIN_NANOS = 20_000;
  private static final long YIELD_NANOS = 200_000;
  private static final long PARK_NANOS = 30_000;
  private static final long LOOK_NANOS = 1_000_000;

  private final CudaDevice device;
  private final MemorySegment handle;
  private final boolean owned;
  private final boolean isDefault;
  private final Marks marks;
  private final Slot[] ring = new Slot[CAPACITY];
  private final Guard guard = new Guard();
  private final List<CudaCommunicator> launching = new ArrayList<>();

  /** Entries put in; the submitting thread's. */
  private volatile long next;

  /** Entries that the device has passed. Under the guard. */
  private volatile long head;

  private long marked;
  private volatile boolean isLaunching;
  private volatile boolean isStuck;
  private @Nullable CudaWork first;
  private @Nullable CudaWork last;
  private @Nullable CudaLaunch launch;
  private @Nullable CudaCapture capture;
  private volatile @Nullable NcclException error;
  private volatile long failedAt = Long.MAX_VALUE;
  private volatile boolean closed;

  /** Under the guard. */
  private boolean destroyed;

  private CudaStream(CudaDevice device, MemorySegment handle, boolean owned, Marks marks) {
    this.device = device;
    this.handle = handle;
    this.owned = owned;
    this.isDefault = handle.address() <= LEGACY;
    this.marks = marks;
    for (int i = 0; i < CAPACITY; i++) {
      ring[i] = new Slot();
    }
  }

  static CudaStream open(CudaDevice device) {
    return open(device, () -> newHandle(device), true);
  }

  /**
   * A stream that somebody else made.
   *
   * @throws InvalidArgumentException if it is not a stream of this device
   */
  static CudaStream wrap(CudaDevice device, long handle) {
    return open(device, () -> foreignHandle(device, handle), false);
  }

  private static CudaStream open(CudaDevice device, Supplier<MemorySegment> handle, boolean owned) {
    Marks marks = new Marks(device);
    CudaStream stream;
    try {
      stream = new CudaStream(device, handle.get(), owned, marks);
    } catch (NcclException e) {
      marks.destroyBecauseOf(e);
      throw e;
    }
    device.streams().add(stream);
    return stream;
  }

  /** A stream that does not wait for the default stream; the caller's. */
  static MemorySegment newHandle(CudaDevice device) {
    try (CudaDevice.Scope ignored = device.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuStreamCreate(out, NON_BLOCKING), "cuStreamCreate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  private static MemorySegment foreignHandle(CudaDevice device, long handle) {
    MemorySegment stream = MemorySegment.ofAddress(handle);
    if (handle == PER_THREAD) {
      throw new InvalidArgumentException(
          "wrapStream: the default stream of each thread is a different one",
          "wrap a stream that was created, or the legacy default stream (0)");
    }
    try (CudaDevice.Scope ignored = device.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = handle <= LEGACY ? Driver.SUCCESS : Cuda.cuStreamGetCtx(stream, out);
      if (result != Driver.SUCCESS) {
        throw new InvalidArgumentException(
                "wrapStream: 0x" + Long.toHexString(handle) + " is not a CUDA stream",
                "pass a CUstream or cudaStream_t")
            .causedBy(Driver.failure(result, "cuStreamGetCtx"));
      }
      if (handle > LEGACY && !device.isContext(out.get(ValueLayout.ADDRESS, 0))) {
        throw new InvalidArgumentException(
            "wrapStream: the stream is not on " + device + ", or in a context of its own",
            "wrap it on the device whose primary context it was created in");
      }
    }
    return stream;
  }

  /** Calls the driver; the default stream is that of the current context. */
  int call(IntSupplier call) {
    if (!isDefault) {
      return call.getAsInt();
    }
    try (CudaDevice.Scope ignored = device.enter()) {
      return call.getAsInt();
    }
  }

  /** Launches a graph; CUDA's result. */
  int launch(MemorySegment graph) {
    return isDefault
        ? call(() -> Cuda.cuGraphLaunch(graph, handle))
        : Cuda.cuGraphLaunch(graph, handle);
  }

  MemorySegment handle() {
    return handle;
  }

  @Override
  public Device device() {
    return device;
  }

  // ---- submitting

  @Override
  public void awaitRoom() {
    requireUsable();
    awaitLaunches();
    if (capture != null) {
      return;
    }
    if (next - marked >= ENTRIES_PER_MARK) {
      mark();
    }
    if (next - head >= CAPACITY) {
      awaitPosition(next - CAPACITY + 1, Long.MAX_VALUE);
      throwIfFailed();
    }
  }

  @Override
  public void append(CudaWork work) {
    CudaCapture capturing = capture;
    if (capturing != null) {
      work.order = capturing.nextOrder();
    }
    if (first == null) {
      first = work;
    } else {
      Objects.requireNonNull(last).next = work;
    }
    last = work;
  }

  @Override
  public boolean hasAppended() {
    return first != null;
  }

  @Override
  public boolean startsTogether() {
    return true;
  }

  @Override
  public void hold() {
    if (launch == null) {
      CudaLaunch group = CudaLaunch.ofThread();
      group.hold(this);
      launch = group;
    }
  }

  @Override
  public void publish() {
    CudaWork plan = Objects.requireNonNull(first);
    first = null;
    last = null;
    CudaLaunch group = launch;
    if (group != null) {
      group.add(this, plan);
    } else {
      CudaLaunch.one(this, plan);
    }
  }

  @Override
  public void start() {
    CudaLaunch group = launch;
    if (group != null) {
      group.start();
    }
  }

  void leaveLaunch() {
    launch = null;
  }

  /** Notes works that were handed to NCCL. */
  void launched(CudaWork plan) {
    CudaCapture capturing = capture;
    if (capturing != null) {
      capturing.addPlan(this, plan);
      return;
    }
    Slot slot = nextSlot();
    slot.works = plan;
    advance();
  }

  /** A communicator whose launch into this stream goes on in the background. */
  void launchesFrom(CudaCommunicator communicator) {
    if (!launching.contains(communicator)) {
      launching.add(communicator);
    }
    isLaunching = true;
  }

  /** Waits until what was handed to NCCL is in the stream. */
  void awaitLaunches() {
    if (isLaunching) {
      for (CudaCommunicator communicator : launching) {
        communicator.awaitLaunched();
      }
      launching.clear();
      isLaunching = false;
    }
  }

  private boolean haveLaunched() {
    if (!isLaunching) {
      return true;
    }
    for (CudaCommunicator communicator : launching) {
      if (!communicator.hasLaunched()) {
        return false;
      }
    }
    launching.clear();
    isLaunching = false;
    return true;
  }

  private Slot nextSlot() {
    return ring[(int) next & CAPACITY - 1];
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // one thread submits
  private void advance() {
    next++;
  }

  /** Notes a launch of a graph; there is room for it. */
  void launched(CudaExecutableGraph graph) {
    nextSlot().graph = graph;
    advance();
  }

  private void mark() {
    if (isDefault) {
      try (CudaDevice.Scope ignored = device.enter()) {
        marks.record(handle, next);
      }
    } else {
      marks.record(handle, next);
    }
    marked = next;
  }

  @Override
  public void copy(DeviceBuffer target, DeviceBuffer source) {
    CudaBuffer to = device(target, "target");
    CudaBuffer from = device(source, "source");
    long s = from.address();
    long t = to.address();
    if (s < t + from.byteSize() && t < s + from.byteSize()) {
      throw new InvalidArgumentException(
          "copy: source and target overlap", "copy between separate ranges");
    }
    requireRoom(to.byteSize(), from.byteSize());
    awaitRoom();
    enqueue(
        from.byteSize() == 0
            ? null
            : () -> Cuda.cuMemcpyAsync(to.address(), from.address(), from.byteSize(), handle),
        "cuMemcpyAsync",
        to,
        from,
        CudaNode.COPY);
  }

  @Override
  public void copy(DeviceBuffer target, PinnedBuffer source) {
    CudaBuffer to = device(target, "target");
    CudaPinnedBuffer from = pinned(source, "source");
    requireRoom(to.byteSize(), from.byteSize());
    awaitRoom();
    enqueue(
        from.byteSize() == 0
            ? null
            : () ->
                Cuda.cuMemcpyHtoDAsync_v2(to.address(), from.segment(), from.byteSize(), handle),
        "cuMemcpyHtoDAsync",
        to,
        from,
        CudaNode.COPY);
  }

  @Override
  public void copy(PinnedBuffer target, DeviceBuffer source) {
    CudaPinnedBuffer to = pinned(target, "target");
    CudaBuffer from = device(source, "source");
    requireRoom(to.byteSize(), from.byteSize());
    awaitRoom();
    enqueue(
        from.byteSize() == 0
            ? null
            : () ->
                Cuda.cuMemcpyDtoHAsync_v2(to.segment(), from.address(), from.byteSize(), handle),
        "cuMemcpyDtoHAsync",
        to,
        from,
        CudaNode.COPY);
  }

  @Override
  public void fill(DeviceBuffer target, byte value) {
    CudaBuffer to = device(target, "target");
    awaitRoom();
    enqueue(
        to.byteSize() == 0
            ? null
            : () -> Cuda.cuMemsetD8Async(to.address(), value, to.byteSize(), handle),
        "cuMemsetD8Async",
        to,
        null,
        CudaNode.FILL);
  }

  /** Launches a kernel; there is room for it. */
  void run(PtxKernel.Run kernel, IntSupplier launch) {
    enqueue(launch, "cuLaunchKernel", kernel, null, CudaNode.KERNEL);
  }

  private void enqueue(
      @Nullable IntSupplier call, String name, Object target, @Nullable Object source, int kind) {
    if (call != null) {
      try (CudaDevice.Scope ignored = device.enter()) {
        Driver.check(call.getAsInt(), name);
      }
    }
    CudaCapture capturing = capture;
    if (capturing != null) {
      capturing.addTransfer(this, kind, target, source);
      return;
    }
    Slot slot = nextSlot();
    slot.target = target;
    slot.source = source;
    advance();
  }

  @Override
  public void record(Event event) {
    CudaEvent own = CudaEvent.require(event);
    own.requireOpen();
    requireUsable();
    awaitLaunches();
    Driver.check(call(() -> Cuda.cuEventRecord(own.handle(), handle)), "cuEventRecord");
    if (capture != null) {
      own.capturedIn(capture, capture.frontier(this));
    } else {
      own.recordedOn(this, next);
    }
  }

  @Override
  public void waitFor(Event event) {
    CudaEvent other = CudaEvent.require(event);
    other.requireOpen();
    CudaCapture of = other.capture();
    if (capture != null || of != null) {
      joinCapture(other, of);
      return;
    }
    awaitRoom();
    CudaStream from = other.stream();
    if (from == null || from == this) {
      return;
    }
    from.requirePassable(other.position());
    Driver.check(
        call(() -> Cuda.cuStreamWaitEvent(handle, other.handle(), 0)), "cuStreamWaitEvent");
    Slot slot = nextSlot();
    slot.other = from;
    slot.otherPosition = other.position();
    advance();
  }

  /** What is recorded there has failed: who waits for it fails, too. */
  private void requirePassable(long position) {
    NcclException failure = failureUpTo(position);
    if (failure != null) {
      throw failure;
    }
  }

  private void joinCapture(CudaEvent event, @Nullable CudaCapture of) {
    if (of == null) {
      throw new InvalidUsageException(
          "waitFor: the stream is being captured, the event was recorded outside the capture",
          "wait for it before beginCapture, or record it on a stream of the capture");
    }
    if (of.hasEnded()) {
      throw new InvalidUsageException(
          "waitFor: the event was recorded in a capture that has ended", "record it anew");
    }
    if (capture != null && capture != of) {
      throw new InvalidUsageException(
          "waitFor: the event belongs to another capture", "keep captures apart");
    }
    requireUsable();
    awaitLaunches();
    guard.enter();
    try {
      Driver.check(Cuda.cuStreamWaitEvent(handle, event.handle(), 0), "cuStreamWaitEvent");
      capture = of;
    } finally {
      guard.leave();
    }
    of.join(this, event.capturedAfter());
  }

  @Override
  public void beginCapture() {
    requireUsable();
    if (capture != null) {
      throw new InvalidUsageException(
          "beginCapture: the stream is being captured", "end that capture first");
    }
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "beginCapture: a group is open on this thread", "launch or close it first");
    }
    awaitLaunches();
    if (isDefault) {
      throw new InvalidUsageException(
          "beginCapture: CUDA does not capture the default stream", "use a stream of its own");
    }
    guard.enter();
    try {
      Driver.check(Cuda.cuStreamBeginCapture_v2(handle, CAPTURE_RELAXED), "cuStreamBeginCapture");
      capture = new CudaCapture(this);
    } finally {
      guard.leave();
    }
  }

  @Override
  public Graph endCapture() {
    requireOpen();
    CudaCapture ending = capture;
    if (ending == null) {
      throw new InvalidUsageException(
          "endCapture: the stream is not being captured", "call beginCapture first");
    }
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "endCapture: a group is open on this thread", "launch or close it first");
    }
    awaitLaunches();
    return ending.end(this);
  }

  @Override
  public boolean isCapturing() {
    return capture != null;
  }

  @Nullable CudaCapture capture() {
    return capture;
  }

  void leaveCapture() {
    capture = null;
  }

  private void refuseInCapture(String call) {
    if (capture != null) {
      throw new InvalidUsageException(
          call + ": the stream is being captured, which runs nothing",
          "end the capture, or use another stream");
    }
  }

  private static void requireRoom(long room, long bytes) {
    if (room < bytes) {
      throw new InvalidArgumentException(
          "copy: the target has " + room + " bytes, the source " + bytes,
          "copy a slice of the source");
    }
  }

  private static CudaBuffer device(@Nullable DeviceBuffer buffer, String name) {
    if (!(buffer instanceof CudaBuffer own)) {
      throw new InvalidArgumentException(
          "the " + name + " buffer is " + (buffer == null ? "null" : "not on a cuda device"),
          "pass a buffer of this stream's backend");
    }
    own.requireOpen();
    return own;
  }

  private static CudaPinnedBuffer pinned(@Nullable PinnedBuffer buffer, String name) {
    if (!(buffer instanceof CudaPinnedBuffer own)) {
      throw new InvalidArgumentException(
          "the pinned " + name + " buffer is " + (buffer == null ? "null" : "not of a cuda device"),
          "pass a buffer of this stream's backend");
    }
    if (own.isClosed()) {
      throw new InvalidUsageException(
          "the pinned " + name + " buffer is closed", "keep it open until its last use");
    }
    return own;
  }

  // ---- waiting

  @Override
  public boolean query() {
    requireUsable();
    refuseInCapture("query");
    boolean done = poll();
    if (!done) {
      look();
    }
    throwIfFailed();
    return done;
  }

  /** Whether the device has passed everything; never waits. */
  boolean poll() {
    // Read first: a launch that is under way was noted before its entry.
    long end = next;
    if (!haveLaunched()) {
      return false;
    }
    int result = isDefault ? call(() -> Cuda.cuStreamQuery(handle)) : Cuda.cuStreamQuery(handle);
    if (result == Driver.NOT_READY) {
      return false;
    }
    if (result != Driver.SUCCESS) {
      broken(result);
    }
    passed(end);
    return true;
  }

  @Override
  public void synchronize() {
    requireOpen();
    refuseInCapture("synchronize");
    awaitPosition(next, Long.MAX_VALUE);
    throwIfFailed();
  }

  @Override
  public void synchronize(Duration timeout) {
    if (timeout == null || timeout.isNegative()) {
      throw new InvalidArgumentException(
          "the timeout is " + timeout, "pass a duration of 0 or more");
    }
    requireOpen();
    refuseInCapture("synchronize");
    long nanos =
        timeout.compareTo(Duration.ofNanos(Long.MAX_VALUE)) >= 0
            ? Long.MAX_VALUE
            : timeout.toNanos();
    boolean done = awaitPosition(next, nanos);
    throwIfFailed();
    if (!done) {
      throw new DeadlineException(
          "not complete after " + timeout.toMillis() + " ms: " + describeHead(),
          "the work stays queued: synchronize again, or abort its communicator");
    }
  }

  /** Waits until the device has passed an entry, or the time is over. */
  boolean awaitPosition(long position, long timeoutNanos) {
    if (isStuck) {
      return true;
    }
    long start = System.nanoTime();
    long progress = start;
    long looked = start;
    long seen = head;
    while (!hasPassed(position)) {
      long now = System.nanoTime();
      if (now - start > timeoutNanos) {
        return false;
      }
      if (head != seen) {
        seen = head;
        progress = now;
      }
      if (now - looked > LOOK_NANOS) {
        looked = now;
        look();
        checkDeadline(now - progress);
      }
      pause(now - start);
    }
    return true;
  }

  /** Waits until an event that was recorded here is complete. */
  void awaitEvent(CudaEvent event) {
    long start = System.nanoTime();
    long looked = start;
    while (!event.poll()) {
      long now = System.nanoTime();
      if (now - looked > LOOK_NANOS) {
        looked = now;
        look();
        checkDeadline(now - start);
      }
      pause(now - start);
    }
  }

  /** Waits until the device has passed one more entry. */
  void awaitHead() {
    if (isStuck) {
      throwIfFailed();
    }
    if (head < next) {
      awaitPosition(head + 1, Long.MAX_VALUE);
    }
  }

  static void pause(long waitedNanos) {
    if (waitedNanos < SPIN_NANOS) {
      Thread.onSpinWait();
    } else if (waitedNanos < YIELD_NANOS) {
      Thread.yield();
    } else {
      LockSupport.parkNanos(PARK_NANOS);
    }
  }

  /** Whether the device has passed an entry; asks it. */
  boolean hasPassed(long position) {
    if (head >= position && position < next) {
      return true;
    }
    if (position == next) {
      return poll();
    }
    if (position > marked) {
      if (!haveLaunched()) {
        return false;
      }
      mark();
    }
    long reached = marks.poll();
    if (reached < 0) {
      broken((int) -reached);
      return true;
    }
    if (reached > head) {
      passed(reached);
    }
    return head >= position;
  }

  /** The context is lost, or the stream: nothing in it will complete. */
  private void broken(int result) {
    NcclException e = Driver.failure(result, "cuStreamQuery");
    fail(e, head);
    for (long i = head; i < next; i++) {
      Slot slot = ring[(int) i & CAPACITY - 1];
      for (CudaWork work = slot.works; work != null; work = (CudaWork) work.next) {
        work.communicator.fail(e);
      }
    }
    passed(next);
  }

  /** Gives back what entries before {@code position} held. */
  void passed(long position) {
    guard.enter();
    try {
      long at = head;
      while (at < position) {
        Slot slot = ring[(int) at & CAPACITY - 1];
        retire(slot, at + 1);
        slot.clear();
        head = ++at;
      }
    } finally {
      guard.leave();
    }
  }

  private void retire(Slot slot, long position) {
    CudaWork work = slot.works;
    while (work != null) {
      CudaWork following = (CudaWork) work.next;
      NcclException failure = work.communicator.outcome();
      if (failure != null) {
        fail(failure, position);
      }
      work.communicator.completed(work);
      work.free();
      work = following;
    }
    if (slot.graph != null) {
      NcclException failure = slot.graph.passed();
      if (failure != null) {
        fail(failure, position);
      }
    }
    if (slot.other != null) {
      NcclException failure = slot.other.failureUpTo(slot.otherPosition);
      if (failure != null) {
        fail(failure, position);
      }
    }
  }

  /** Looks for faults of the communicators with work in this stream. Any thread. */
  void look() {
    Set<CudaCommunicator> waiting = new LinkedHashSet<>();
    guard.enter();
    try {
      for (long i = head; i < next; i++) {
        ring[(int) i & CAPACITY - 1].addCommunicators(waiting);
      }
    } finally {
      guard.leave();
    }
    waiting.forEach(CudaCommunicator::look);
  }

  private void checkDeadline(long waitedNanos) {
    Slot slot = ring[(int) head & CAPACITY - 1];
    checkDeadline(slot.works, slot.graph, waitedNanos);
    for (CudaCommunicator communicator : slot.communicators()) {
      if (communicator.shouldHaveEnded(System.nanoTime())) {
        throw stuck(communicator);
      }
    }
  }

  private static void checkDeadline(
      @Nullable CudaWork work, @Nullable CudaExecutableGraph graph, long waitedNanos) {
    if (work != null) {
      work.communicator.checkDeadline(work, waitedNanos);
    } else if (graph != null) {
      graph.checkDeadline(waitedNanos);
    }
  }

  /** Nothing of this stream may be touched again. */
  private NcclException stuck(CudaCommunicator communicator) {
    NcclException e =
        new InternalErrorException(
            "communicator "
                + communicator.name()
                + " was aborted, but "
                + device
                + " still runs its work: "
                + describeHead(),
            "restart the process");
    NcclException cause = communicator.failureCause();
    if (cause != null) {
      e.causedBy(cause);
    }
    fail(e, head);
    isStuck = true;
    return e;
  }

  /** Keeps the deadline of what lies first in the stream, for a thread that is not its user. */
  final class Patience {
    private long seen = head;
    private long since = System.nanoTime();

    void checkDeadline() {
      long now = System.nanoTime();
      CudaWork work = null;
      CudaExecutableGraph graph = null;
      guard.enter();
      try {
        if (head != seen || head == next) {
          seen = head;
          since = now;
          return;
        }
        Slot slot = ring[(int) head & CAPACITY - 1];
        work = slot.works;
        graph = slot.graph;
      } finally {
        guard.leave();
      }
      CudaStream.checkDeadline(work, graph, now - since);
    }
  }

  Patience newPatience() {
    return new Patience();
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    CudaCapture capturing = capture;
    awaitLaunches();
    closed = true;
    if (capturing == null) {
      destroy();
    } else {
      capturing.drop(this, this::destroy);
    }
  }

  private void destroy() {
    try {
      // In a capture nobody could wait for what was queued before it.
      awaitPosition(next, Long.MAX_VALUE);
    } finally {
      device.streams().remove(this);
    }
    if (isStuck) {
      return;
    }
    NcclException failure = null;
    guard.enter();
    destroyed = true;
    guard.leave();
    if (owned) {
      try (CudaDevice.Scope ignored = device.enter()) {
        failure = Driver.also(null, Cuda.cuStreamDestroy_v2(handle), "cuStreamDestroy");
      }
    }
    if (failure != null) {
      marks.destroyBecauseOf(failure);
      throw failure;
    }
    marks.close();
  }

  @Override
  public boolean isClosed() {
    return closed;
  }

  @Override
  public long position() {
    return next;
  }

  @Override
  public long passed() {
    return head;
  }

  /**
   * Asks the device whether it has passed everything. CUDA refuses to answer for a stream that is
   * being captured, and ends the capture; a stream that is destroyed must not be asked.
   */
  @Override
  public void learnPassed() {
    long end = next;
    if (end == head || isLaunching) {
      return;
    }
    int result = Driver.NOT_READY;
    guard.enter();
    try {
      if (!destroyed && capture == null) {
        result = call(() -> Cuda.cuStreamQuery(handle));
      }
    } finally {
      guard.leave();
    }
    if (result == Driver.SUCCESS) {
      passed(end);
    }
  }

  // ---- failure

  private void fail(NcclException e, long position) {
    if (error == null) {
      failedAt = position;
      error = e;
    }
  }

  /** Why what lies before a position failed; null if it did not. */
  @Nullable NcclException failureUpTo(long position) {
    NcclException e = error;
    return e != null && failedAt <= position ? e : null;
  }

  @Override
  public void requireUsable() {
    requireOpen();
    throwIfFailed();
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the stream is closed", "create a new one with device.newStream()");
    }
  }

  void throwIfFailed() {
    NcclException failure = error;
    if (failure != null) {
      throw failure;
    }
  }

  // ---- diagnosis, by any thread

  /** For messages; may be out of date. */
  String describeHead() {
    if (head == next) {
      return "nothing is queued";
    }
    Slot slot = ring[(int) head & CAPACITY - 1];
    CudaWork work = slot.works;
    return work == null ? slot.describe() : work.communicator.explain(work);
  }

  /** What uses a buffer, in words; null if nothing does. */
  @Nullable String userOf(Object buffer) {
    if (head == next || closed) {
      return null;
    }
    if (capture == null && !isLaunching) {
      poll();
    }
    guard.enter();
    try {
      for (long i = head; i < next; i++) {
        Slot slot = ring[(int) i & CAPACITY - 1];
        if (slot.uses(buffer)) {
          return slot.describe();
        }
      }
      return null;
    } finally {
      guard.leave();
    }
  }
}
