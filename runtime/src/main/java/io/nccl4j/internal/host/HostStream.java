package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostPinnedBuffer;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.internal.spi.TransferChecks;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * What a program does with a stream: it submits, captures and waits. The queue it submits to, and
 * how that is carried out, is {@link HostQueue}.
 */
final class HostStream extends HostQueue implements EngineStream<HostWork> {
  private final HostDevice device;
  private final CommunicatorConfig limits;
  private @Nullable HostWork first;
  private @Nullable HostWork last;
  private @Nullable Capture capture;

  private volatile boolean closed;

  private HostStream(HostDevice device, CommunicatorConfig limits) {
    super(limits.operationTimeout().toNanos());
    this.device = device;
    this.limits = limits;
  }

  static HostStream open(HostDevice device) {
    return open(device, CommunicatorConfig.defaults());
  }

  /**
   * A stream.
   *
   * @param limits the timeouts of what belongs to no communicator
   */
  static HostStream open(HostDevice device, CommunicatorConfig limits) {
    HostStream stream = new HostStream(device, limits);
    Progress.add(stream);
    return stream;
  }

  // ---- submitting

  @Override
  public Device device() {
    return device;
  }

  @Override
  public void awaitRoom() {
    requireUsable();
    if (capture == null && isFull()) {
      Progress.drive(this, firstRoom(), Long.MAX_VALUE);
      throwIfFailed();
    }
  }

  @Override
  public void append(HostWork work) {
    if (capture != null) {
      work.order = capture.nextOrder();
    }
    if (first == null) {
      first = work;
    } else {
      java.util.Objects.requireNonNull(last).next = work;
    }
    last = work;
  }

  @Override
  public boolean hasAppended() {
    return first != null;
  }

  @Override
  public void publish() {
    HostWork plan = java.util.Objects.requireNonNull(first);
    first = null;
    last = null;
    if (capture != null) {
      capture.addPlan(this, plan);
      return;
    }
    put(plan);
  }

  @Override
  public void publish(HostWork work) {
    if (capture != null || first != null) {
      append(work);
      publish();
      return;
    }
    put(work);
  }

  /** The next entry, made a launch of a graph; there is room for it. */
  StreamTask graphTask(HostExecutableGraph graph, long launch, int bases) {
    StreamTask task = nextEntry();
    task.kind = StreamTask.GRAPH;
    task.graph = graph;
    task.generation = launch;
    task.begun = false;
    if (task.bases.length < bases) {
      task.bases = new long[bases];
    }
    return task;
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
    capture = new Capture(this);
  }

  @Override
  public Graph endCapture() {
    requireOpen();
    Capture ending = capture;
    if (ending == null) {
      throw new InvalidUsageException(
          "endCapture: the stream is not being captured", "call beginCapture first");
    }
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "endCapture: a group is open on this thread", "launch or close it first");
    }
    return new HostGraph(device, ending.end(this));
  }

  @Override
  public boolean isCapturing() {
    return capture != null;
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

  @Override
  public void copy(DeviceBuffer target, DeviceBuffer source) {
    HostBuffer to = host(target, "target");
    HostBuffer from = host(source, "source");
    TransferChecks.requireApart(to.address(), from.address(), from.byteSize());
    copy(
        to,
        to.segment(),
        to.offset(),
        to.byteSize(),
        from,
        from.segment(),
        from.offset(),
        from.byteSize());
  }

  @Override
  public void copy(DeviceBuffer target, PinnedBuffer source) {
    HostBuffer to = host(target, "target");
    HostPinnedBuffer from = pinned(source, "source");
    copy(to, to.segment(), to.offset(), to.byteSize(), from, from.segment(), 0, from.byteSize());
  }

  @Override
  public void copy(PinnedBuffer target, DeviceBuffer source) {
    HostPinnedBuffer to = pinned(target, "target");
    HostBuffer from = host(source, "source");
    copy(to, to.segment(), 0, to.byteSize(), from, from.segment(), from.offset(), from.byteSize());
  }

  private void copy(
      Object targetOwner,
      MemorySegment target,
      long targetOffset,
      long room,
      Object sourceOwner,
      MemorySegment source,
      long sourceOffset,
      long bytes) {
    TransferChecks.requireRoom(room, bytes);
    StreamTask task = nextTask(StreamTask.COPY);
    task.source = source;
    task.sourceOffset = sourceOffset;
    task.target = target;
    task.targetOffset = targetOffset;
    task.bytes = bytes;
    task.sourceOwner = sourceOwner;
    task.targetOwner = targetOwner;
    releaseOrCapture(task);
  }

  private void releaseOrCapture(StreamTask task) {
    if (capture == null) {
      release();
    } else {
      capture.addTask(this, task);
    }
  }

  @Override
  public void fill(DeviceBuffer target, byte value) {
    HostBuffer to = host(target, "target");
    StreamTask task = nextTask(StreamTask.FILL);
    task.target = to.segment();
    task.targetOffset = to.offset();
    task.bytes = to.byteSize();
    task.value = value;
    task.targetOwner = to;
    releaseOrCapture(task);
  }

  @Override
  public void record(Event event) {
    HostEvent own = host(event);
    if (capture != null) {
      own.captureAt(capture, capture.frontier(this));
      return;
    }
    StreamTask task = nextTask(StreamTask.RECORD);
    task.event = own;
    task.generation = own.issue(this, submitted() + 1);
    release();
  }

  @Override
  public void waitFor(Event event) {
    HostEvent other = host(event);
    if (capture != null || other.capture() != null) {
      joinCapture(other);
      return;
    }
    StreamTask task = nextTask(StreamTask.WAIT);
    HostQueue awaited = other.awaitBy(task);
    if (awaited == null || awaited.hasPassed(task.generation)) {
      task.clear();
    } else {
      release();
    }
  }

  private void joinCapture(HostEvent event) {
    Capture of = event.capture();
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
    capture = of;
    of.join(this, event.capturedAfter());
  }

  private StreamTask nextTask(int kind) {
    awaitRoom();
    // A capture waits for no room: the ring's next entry may be one that is still to run.
    StreamTask task = capture == null ? nextEntry() : new StreamTask();
    task.kind = kind;
    return task;
  }

  private static HostBuffer host(@Nullable DeviceBuffer buffer, String name) {
    HostBuffer own = TransferChecks.device(buffer, name, HostBuffer.class, Backend.HOST);
    own.requireUsable(name + " of a copy or fill");
    return own;
  }

  private static HostPinnedBuffer pinned(@Nullable PinnedBuffer buffer, String name) {
    HostPinnedBuffer own =
        TransferChecks.pinned(buffer, name, HostPinnedBuffer.class, Backend.HOST);
    TransferChecks.requireOpen(own.isClosed(), name);
    return own;
  }

  private static HostEvent host(@Nullable Event event) {
    if (!(event instanceof HostEvent own)) {
      throw new InvalidArgumentException(
          "the event is " + (event == null ? "null" : "not of a host device"),
          "pass an event of this stream's backend");
    }
    own.requireOpen();
    return own;
  }

  // ---- waiting

  @Override
  public boolean query() {
    requireUsable();
    refuseInCapture("query");
    Progress.poke(this);
    throwIfFailed();
    if (head() != tail()) {
      return false;
    }
    device.compare();
    return true;
  }

  @Override
  public void synchronize() {
    requireOpen();
    refuseInCapture("synchronize");
    Progress.drive(this, submitted(), Long.MAX_VALUE);
    throwIfFailed();
    device.compare();
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
    boolean done = Progress.drive(this, submitted(), nanos);
    throwIfFailed();
    if (!done) {
      throw new DeadlineException(
          "not complete after " + timeout.toMillis() + " ms: " + describeHead(),
          "the work stays queued: synchronize again, or abort its communicator");
    }
    device.compare();
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    if (capture != null) {
      capture.drop(this);
    }
    if (hasPending()) {
      long timeout = HostProcess.self().closeTimeout(this, limits.closeTimeout()).toNanos();
      try {
        if (!Progress.drive(this, submitted(), timeout)) {
          boolean ignored = giveUp(timeout);
        }
      } catch (InterruptedWaitException e) {
        giveUp(
            new AbortedException(
                describeHead() + ", unfinished when its stream was closed by an interrupted thread",
                "synchronize before closing"));
        Progress.driveUninterruptibly(this, submitted(), timeout);
      }
    }
    closed = true;
    // What other streams hold up is dropped when they go on.
    ProcessMemory.self().heap().whenSafe(() -> !hasPending(), () -> Progress.remove(this));
  }

  @Override
  public boolean isClosed() {
    return closed;
  }

  @Override
  public long position() {
    return tail();
  }

  @Override
  public long passed() {
    return head();
  }

  /** The ticker and whoever waits move it on; here nothing is waited for. */
  @Override
  public void learnPassed() {}

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
}
