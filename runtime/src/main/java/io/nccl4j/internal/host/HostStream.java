package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostPinnedBuffer;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.schedule.Capture;
import io.nccl4j.internal.schedule.EventEngine;
import io.nccl4j.internal.schedule.ScheduledStream;
import io.nccl4j.internal.schedule.StreamEngine;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.Resource;
import io.nccl4j.internal.spi.TransferChecks;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * What is put into a host stream, and waited for there. The queue it goes to, and how that is
 * carried out, is {@link HostQueue}.
 */
final class HostStream extends HostQueue implements StreamEngine<HostWork> {
  private final Device device;
  private final DeviceRanks ranks;
  private final CommunicatorConfig limits;
  private @Nullable Capture<HostWork> capture;

  private volatile boolean closed;

  private HostStream(Device device, DeviceRanks ranks, CommunicatorConfig limits) {
    super(limits.operationTimeout().toNanos());
    this.device = device;
    this.ranks = ranks;
    this.limits = limits;
  }

  static ScheduledStream<HostWork> open(Device device, DeviceRanks ranks) {
    return open(device, ranks, CommunicatorConfig.defaults());
  }

  /**
   * A stream.
   *
   * @param limits the timeouts of what belongs to no communicator
   */
  static ScheduledStream<HostWork> open(
      Device device, DeviceRanks ranks, CommunicatorConfig limits) {
    HostStream stream = new HostStream(device, ranks, limits);
    Progress.add(stream);
    return new ScheduledStream<>(stream);
  }

  /** What carries a stream out; null if it is of another backend. */
  static @Nullable HostStream of(@Nullable Stream stream) {
    return stream instanceof ScheduledStream<?> scheduled
            && scheduled.engine() instanceof HostStream own
        ? own
        : null;
  }

  // ---- submitting

  @Override
  public Device device() {
    return device;
  }

  @Override
  public void awaitRoom() {
    throwIfFailed();
    if (capture == null && isFull()) {
      Progress.drive(this, firstRoom(), Long.MAX_VALUE);
      // What comes next is under way while the caller submits.
      Progress.takeSteps(this);
      throwIfFailed();
    }
  }

  @Override
  public void put(HostWork plan) {
    if (capture != null) {
      capture.addPlan(this, plan);
    } else {
      enqueue(plan);
    }
  }

  @Override
  public boolean isCapturing() {
    return capture != null;
  }

  @Override
  public @Nullable Capture<HostWork> capture() {
    return capture;
  }

  @Override
  public void beginCapture() {
    capture = new Capture<>(this);
  }

  @Override
  public void joinCapture(Capture<HostWork> joined, EventEngine event) {
    capture = joined;
  }

  @Override
  public HostGraph endCapture() {
    Capture<HostWork> ending = Objects.requireNonNull(capture);
    ending.requireOrigin(this);
    ending.end();
    return new HostGraph(ending.joinedNodes());
  }

  @Override
  public void leaveCapture() {
    capture = null;
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
      Resource targetOwner,
      MemorySegment target,
      long targetOffset,
      long room,
      Resource sourceOwner,
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
      capture.addTransfer(this, task);
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
  public void record(EventEngine event) {
    if (capture == null) {
      HostEvent own = (HostEvent) event;
      StreamTask task = nextTask(StreamTask.RECORD);
      task.event = own;
      task.generation = own.issue(this, submitted() + 1);
      release();
    }
  }

  @Override
  public void waitFor(EventEngine event) {
    StreamTask task = nextTask(StreamTask.WAIT);
    HostQueue awaited = ((HostEvent) event).awaitBy(task);
    if (awaited == null || awaited.hasPassed(task.generation)) {
      task.clear();
    } else {
      release();
    }
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

  // ---- waiting

  @Override
  public boolean poll() {
    Progress.poke(this);
    throwIfFailed();
    if (hasPending()) {
      return false;
    }
    ranks.compare();
    return true;
  }

  @Override
  public boolean await(long timeoutNanos) {
    boolean done = Progress.drive(this, submitted(), timeoutNanos);
    throwIfFailed();
    if (done) {
      ranks.compare();
    }
    return done;
  }

  @Override
  public String describeFirst() {
    return describeHead();
  }

  @Override
  public void close() {
    if (capture != null) {
      capture.drop(this);
    }
    if (hasPending()) {
      long timeout = unfinished().closeTimeout(limits.closeTimeout()).toNanos();
      try {
        if (!Progress.drive(this, submitted(), timeout)) {
          boolean ignored = giveUp(timeout);
        }
      } catch (InterruptedWaitException e) {
        giveUp(
            Wording.closedEarly(
                describeHead()
                    + ", unfinished when its stream was closed by an interrupted thread"));
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
}
