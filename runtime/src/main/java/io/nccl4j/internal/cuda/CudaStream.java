package io.nccl4j.internal.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Marks;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.internal.cuda.module.KernelStream;
import io.nccl4j.internal.cuda.module.PtxKernel;
import io.nccl4j.internal.cuda.nccl.CudaPending;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.spi.EngineStream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Comparator;
import java.util.Objects;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import java.util.function.ToIntFunction;
import org.jspecify.annotations.Nullable;

/**
 * A CUDA stream: what may be put into it, and when. It owns the CUDA stream unless somebody else
 * made it, and the events of its marks.
 */
final class CudaStream extends Padded implements EngineStream<CudaWork>, KernelStream {
  private static final int CAPTURE_RELAXED = 2;

  private final CudaDevice device;
  private final StreamHandle handle;
  private final Marks marks;
  private final StreamLaunches launches = new StreamLaunches();
  private final StreamQueue queue;
  private final StreamWaits waits;
  private final StreamTransfers transfers;
  private @Nullable CudaWork first;
  private @Nullable CudaWork last;
  private @Nullable CudaLaunch launch;

  /** Begun and joined under the guard. */
  private @Nullable CudaCapture capture;

  private volatile boolean closed;

  /** Under the guard. */
  private boolean destroyed;

  private CudaStream(CudaDevice device, StreamHandle handle, Marks marks) {
    this.device = device;
    this.handle = handle;
    this.marks = marks;
    this.queue = new StreamQueue(device, handle, launches, marks);
    this.waits = new StreamWaits(device, queue);
    this.transfers = new StreamTransfers(device, this, handle, queue);
  }

  static CudaStream open(CudaDevice device) {
    return open(device, () -> StreamHandle.create(device.gpu()));
  }

  /**
   * A stream that somebody else made.
   *
   * @throws InvalidArgumentException if it is not a stream of this device
   */
  static CudaStream wrap(CudaDevice device, long handle) {
    return open(device, () -> StreamHandle.wrap(device.gpu(), handle));
  }

  private static CudaStream open(CudaDevice device, Supplier<StreamHandle> handle) {
    Marks marks = new Marks(device.gpu());
    CudaStream stream;
    try {
      stream = new CudaStream(device, handle.get(), marks);
    } catch (NcclException e) {
      marks.destroyBecauseOf(e);
      throw e;
    }
    device.streams().add(stream);
    return stream;
  }

  @Override
  public MemorySegment handle() {
    return handle.get();
  }

  StreamQueue queue() {
    return queue;
  }

  StreamWaits waits() {
    return waits;
  }

  @Override
  public Device device() {
    return device;
  }

  // ---- operations

  @Override
  public void awaitRoom() {
    requireUsable();
    launches.await();
    if (capture != null) {
      return;
    }
    queue.markIfDue();
    if (queue.isFull()) {
      waits.awaitPosition(queue.next() - StreamQueue.CAPACITY + 1, Long.MAX_VALUE);
      queue.throwIfFailed();
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
    } else {
      queue.add(plan);
    }
  }

  /** A launch into this stream that goes on in the background. */
  void launchesFrom(CudaPending pending) {
    launches.add(pending);
  }

  /** Waits until what was handed to NCCL is in the stream. */
  void awaitLaunches() {
    launches.await();
  }

  /** Launches a graph, for which there is room; CUDA's result. */
  int launch(MemorySegment graph) {
    return handle.launch(graph);
  }

  // ---- copies, fills, kernels

  @Override
  public void copy(DeviceBuffer target, DeviceBuffer source) {
    transfers.copy(target, source);
  }

  @Override
  public void copy(DeviceBuffer target, PinnedBuffer source) {
    transfers.copy(target, source);
  }

  @Override
  public void copy(PinnedBuffer target, DeviceBuffer source) {
    transfers.copy(target, source);
  }

  @Override
  public void fill(DeviceBuffer target, byte value) {
    transfers.fill(target, value);
  }

  @Override
  public void run(PtxKernel.Run kernel, IntSupplier call) {
    transfers.run(kernel, call);
  }

  // ---- events

  @Override
  public void record(Event event) {
    CudaEvent own = CudaEvent.require(event);
    own.requireOpen();
    requireUsable();
    launches.await();
    ToIntFunction<MemorySegment> call =
        recorded -> handle.call(() -> Cuda.cuEventRecord(recorded, handle.get()));
    CudaCapture capturing = capture;
    if (capturing != null) {
      own.recordIn(capturing, call, capturing.frontier(this));
    } else {
      own.recordOn(this, call, queue.next());
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
    other.awaitBy(
        this, recorded -> handle.call(() -> Cuda.cuStreamWaitEvent(handle.get(), recorded, 0)));
  }

  // ---- captures

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
    launches.await();
    queue.guard().enter();
    try {
      Driver.check(Cuda.cuStreamWaitEvent(handle.get(), event.handle(), 0), "cuStreamWaitEvent");
      capture = of;
    } finally {
      queue.guard().leave();
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
    launches.await();
    if (handle.isDefault()) {
      throw new InvalidUsageException(
          "beginCapture: CUDA does not capture the default stream", "use a stream of its own");
    }
    queue.guard().enter();
    try {
      Driver.check(
          Cuda.cuStreamBeginCapture_v2(handle.get(), CAPTURE_RELAXED), "cuStreamBeginCapture");
      capture = new CudaCapture(this);
    } finally {
      queue.guard().leave();
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
    launches.await();
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

  // ---- waiting

  @Override
  public boolean query() {
    requireUsable();
    refuseInCapture("query");
    boolean done = queue.poll();
    if (!done) {
      queue.look();
    }
    queue.throwIfFailed();
    return done;
  }

  @Override
  public void synchronize() {
    requireOpen();
    refuseInCapture("synchronize");
    waits.awaitPosition(queue.next(), Long.MAX_VALUE);
    queue.throwIfFailed();
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
    boolean done = waits.awaitPosition(queue.next(), nanos);
    queue.throwIfFailed();
    if (!done) {
      throw new DeadlineException(
          "not complete after " + timeout.toMillis() + " ms: " + queue.describeFirst(),
          "the work stays queued: synchronize again, or abort its communicator");
    }
  }

  @Override
  public long position() {
    return queue.next();
  }

  @Override
  public long passed() {
    return queue.head();
  }

  /**
   * Asks the device whether it has passed everything. CUDA refuses to answer for a stream that is
   * being captured, and ends the capture; a stream that is destroyed must not be asked.
   */
  @Override
  public void learnPassed() {
    long end = queue.next();
    if (end == queue.head() || launches.areUnderWay()) {
      return;
    }
    int result = Driver.NOT_READY;
    queue.guard().enter();
    try {
      if (!destroyed && capture == null) {
        result = handle.query();
      }
    } finally {
      queue.guard().leave();
    }
    if (result == Driver.SUCCESS) {
      queue.passed(end);
    }
  }

  @Override
  public void requireUsable() {
    requireOpen();
    queue.throwIfFailed();
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the stream is closed", "create a new one with device.newStream()");
    }
  }

  /** What uses a buffer, in words; null if nothing does. Any thread. */
  @Nullable String userOf(Object buffer) {
    if (queue.isEmpty()) {
      return null;
    }
    if (capture == null && !closed && !launches.areUnderWay()) {
      queue.poll();
    }
    return queue.userOf(buffer);
  }

  // ---- its end

  @Override
  public void close() {
    if (closed) {
      return;
    }
    CudaCapture capturing = capture;
    launches.finish(this::closeTimeout);
    closed = true;
    if (capturing == null) {
      destroy();
    } else {
      capturing.drop(this, this::destroy);
    }
  }

  /** As long as the communicators with work in it take to close. */
  private Duration closeTimeout() {
    return queue.communicators().stream()
        .map(communicator -> communicator.config().closeTimeout())
        .max(Comparator.naturalOrder())
        .orElseGet(() -> CommunicatorConfig.defaults().closeTimeout());
  }

  private void destroy() {
    boolean isOver = true;
    try {
      // In a capture nobody could wait for what was queued before it.
      isOver = waits.finish(closeTimeout().toNanos());
    } finally {
      if (isOver) {
        device.streams().remove(this);
      }
    }
    if (!isOver) {
      // It waits for another stream.
      device.deviceMemory().whenSafe(queue::isEmpty, this::release);
    } else if (!waits.isStuck()) {
      release();
    }
  }

  private void release() {
    device.streams().remove(this);
    queue.guard().enter();
    destroyed = true;
    queue.guard().leave();
    NcclException failure = handle.destroy();
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
}
