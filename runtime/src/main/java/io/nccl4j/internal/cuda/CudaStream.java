package io.nccl4j.internal.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Marks;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.cuda.module.KernelStream;
import io.nccl4j.internal.cuda.module.PtxKernel;
import io.nccl4j.internal.cuda.nccl.CudaPending;
import io.nccl4j.internal.schedule.Capture;
import io.nccl4j.internal.schedule.EventEngine;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.ScheduledStream;
import io.nccl4j.internal.schedule.StreamEngine;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Comparator;
import java.util.Objects;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A CUDA stream. It owns the CUDA stream unless somebody else made it, and the events of its marks.
 */
final class CudaStream extends Padded implements StreamEngine<CudaWork>, KernelStream {
  private static final int CAPTURE_RELAXED = 2;

  private final Device device;
  private final DeviceMemory memory;
  private final CudaStreams streams;
  private final StreamHandle handle;
  private final Marks marks;
  private final StreamLaunches launches = new StreamLaunches();
  private final StreamQueue queue;
  private final StreamWaits waits;
  private final StreamTransfers transfers;
  private @Nullable CudaLaunch launch;

  /** Begun and joined under the guard. */
  private @Nullable CudaCapture capture;

  private volatile boolean closed;

  /** Under the guard. */
  private boolean destroyed;

  private CudaStream(DeviceMemory memory, CudaStreams streams, StreamHandle handle, Marks marks) {
    this.device = memory.device();
    this.memory = memory;
    this.streams = streams;
    this.handle = handle;
    this.marks = marks;
    this.queue = new StreamQueue(memory.gpu(), handle, launches, marks);
    this.waits = new StreamWaits(memory.gpu(), queue);
    this.transfers = new StreamTransfers(memory.gpu(), this, handle, queue);
  }

  static ScheduledStream<CudaWork> open(DeviceMemory memory, CudaStreams streams) {
    return open(memory, streams, () -> StreamHandle.create(memory.gpu()));
  }

  /**
   * A stream that somebody else made.
   *
   * @throws InvalidArgumentException if it is not a stream of this device
   */
  static ScheduledStream<CudaWork> wrap(DeviceMemory memory, CudaStreams streams, long handle) {
    return open(memory, streams, () -> StreamHandle.wrap(memory.gpu(), handle));
  }

  private static ScheduledStream<CudaWork> open(
      DeviceMemory memory, CudaStreams streams, Supplier<StreamHandle> handle) {
    Marks marks = new Marks(memory.gpu());
    CudaStream stream;
    try {
      stream = new CudaStream(memory, streams, handle.get(), marks);
    } catch (NcclException e) {
      marks.destroyBecauseOf(e);
      throw e;
    }
    streams.add(stream);
    return new ScheduledStream<>(stream);
  }

  /** What carries a stream out; null if it is of another backend. */
  static @Nullable CudaStream of(@Nullable Stream stream) {
    return stream instanceof ScheduledStream<?> scheduled
            && scheduled.engine() instanceof CudaStream own
        ? own
        : null;
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
    queue.throwIfFailed();
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
  public void put(CudaWork plan) {
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
      capturing.hold(plan);
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
  public void record(EventEngine event) {
    CudaEvent own = (CudaEvent) event;
    launches.await();
    if (capture != null) {
      own.recordInCapture(handle);
    } else {
      own.recordOn(handle, waits, queue.next());
    }
  }

  @Override
  public void waitFor(EventEngine event) {
    ((CudaEvent) event).awaitBy(handle, queue);
  }

  // ---- captures

  @Override
  public void joinCapture(Capture<CudaWork> joined, EventEngine event) {
    launches.await();
    queue.guard().enter();
    try {
      Driver.check(
          Cuda.cuStreamWaitEvent(handle.get(), ((CudaEvent) event).handle(), 0),
          "cuStreamWaitEvent");
      capture = (CudaCapture) joined;
    } finally {
      queue.guard().leave();
    }
  }

  @Override
  public void beginCapture() {
    launches.await();
    if (handle.isDefault()) {
      throw new InvalidUsageException(
          "beginCapture: CUDA does not capture the default stream", "use a stream of its own");
    }
    queue.guard().enter();
    try {
      Driver.check(
          Cuda.cuStreamBeginCapture_v2(handle.get(), CAPTURE_RELAXED), "cuStreamBeginCapture");
      capture = new CudaCapture(this, handle.get(), memory.gpu());
    } finally {
      queue.guard().leave();
    }
  }

  @Override
  public CudaGraph endCapture() {
    launches.await();
    return Objects.requireNonNull(capture).end(this);
  }

  @Override
  public boolean isCapturing() {
    return capture != null;
  }

  @Override
  public @Nullable CudaCapture capture() {
    return capture;
  }

  @Override
  public void leaveCapture() {
    capture = null;
  }

  // ---- waiting

  @Override
  public boolean poll() {
    boolean done = queue.poll();
    if (!done) {
      queue.look();
    }
    queue.throwIfFailed();
    return done;
  }

  @Override
  public boolean await(long timeoutNanos) {
    boolean done = waits.awaitPosition(queue.next(), timeoutNanos);
    queue.throwIfFailed();
    return done;
  }

  @Override
  public void throwIfFailed() {
    queue.throwIfFailed();
  }

  @Override
  public String describeFirst() {
    return queue.describeFirst();
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
   * Asks the device whether it has passed everything. Any thread. CUDA refuses to answer for a
   * stream that is being captured, and ends the capture; a stream that is destroyed must not be
   * asked.
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
    queue.learn(result, end);
  }

  /** What uses a buffer, in words; null if nothing does. Any thread. */
  @Nullable String userOf(Object buffer) {
    if (queue.isEmpty()) {
      return null;
    }
    learnPassed();
    return queue.userOf(buffer);
  }

  // ---- its end

  @Override
  public void close() {
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
    return queue.ranks().stream()
        .map(rank -> rank.config().closeTimeout())
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
        streams.remove(this);
      }
    }
    if (!isOver) {
      // It waits for another stream.
      memory.whenSafe(queue::isEmpty, this::release);
    } else if (!waits.isStuck()) {
      release();
    }
  }

  private void release() {
    streams.remove(this);
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
