package io.nccl4j.internal.schedule;

import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.internal.spi.BackendBuffer;
import io.nccl4j.internal.spi.EngineStream;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * A stream of any backend: what may be put into it, and when. The backend's {@link StreamEngine}
 * carries it out. Works are appended one by one and become visible together, as a plan.
 *
 * @param <W> the backend's work
 */
public final class ScheduledStream<W extends Work> extends Padded implements EngineStream {
  private static final AtomicLong CREATED = new AtomicLong();

  private final long number = CREATED.incrementAndGet();
  private final StreamEngine<W> engine;
  private @Nullable W first;
  private @Nullable W last;

  /** A stream that is carried out by {@code engine}, and closed with it. */
  public ScheduledStream(StreamEngine<W> engine) {
    this.engine = engine;
  }

  /** What carries it out. */
  public StreamEngine<W> engine() {
    return engine;
  }

  @Override
  public long number() {
    return number;
  }

  @Override
  public Device device() {
    return engine.device();
  }

  // ---- operations

  /**
   * Waits, by driving what is queued, until one more plan can be published.
   *
   * @throws NcclException if the stream has failed
   */
  public void awaitRoom() {
    requireOpen();
    engine.awaitRoom();
  }

  /** Adds a work to the plan that is being put together. */
  void append(W work) {
    if (work.isCaptured()) {
      number(work);
    }
    if (first == null) {
      first = work;
    } else {
      Objects.requireNonNull(last).next = work;
    }
    last = work;
  }

  private void number(W work) {
    work.order = Objects.requireNonNull(engine.capture()).nextOrder();
  }

  /** Whether {@link #append} was called since the last {@link #publish}. */
  boolean hasAppended() {
    return first != null;
  }

  /**
   * Publishes the appended works as one plan, to be seen by whoever drives the stream.
   *
   * @throws NcclException see {@link StreamEngine#put}
   */
  void publish() {
    W plan = Objects.requireNonNull(first);
    first = null;
    last = null;
    engine.put(plan);
  }

  /** Publishes a plan of one work: {@link #append} and {@link #publish()} in one. */
  void publish(W work) {
    if (first != null) {
      append(work);
      publish();
      return;
    }
    if (work.isCaptured()) {
      number(work);
    }
    engine.put(work);
  }

  @Override
  public void copy(DeviceBuffer target, DeviceBuffer source) {
    requireOpen();
    requireWritable(target, "copy");
    engine.copy(target, source);
  }

  @Override
  public void copy(DeviceBuffer target, PinnedBuffer source) {
    requireOpen();
    requireWritable(target, "copy");
    engine.copy(target, source);
  }

  @Override
  public void copy(PinnedBuffer target, DeviceBuffer source) {
    requireOpen();
    engine.copy(target, source);
  }

  @Override
  public void fill(DeviceBuffer target, byte value) {
    requireOpen();
    requireWritable(target, "fill");
    engine.fill(target, value);
  }

  /** The engine says what is wrong with any other target. */
  private static void requireWritable(@Nullable DeviceBuffer target, String call) {
    if (target instanceof BackendBuffer own) {
      own.requireWritable(call);
    }
  }

  // ---- events

  @Override
  public void record(Event event) {
    ScheduledEvent own = ScheduledEvent.require(event, device().backend());
    requireUsable();
    engine.record(own.engine());
    own.recordedIn(engine);
  }

  @Override
  public void waitFor(Event event) {
    ScheduledEvent other = ScheduledEvent.require(event, device().backend());
    if (isCapturing() || other.capture() != null) {
      joinCapture(other);
    } else {
      awaitRoom();
      engine.waitFor(other.engine());
    }
  }

  @SuppressWarnings("unchecked") // an event of this backend is recorded on its streams only
  private void joinCapture(ScheduledEvent event) {
    Capture<W> of = (Capture<W>) event.capture();
    if (of == null) {
      throw new InvalidUsageException(
          "waitFor: the stream is being captured, the event was recorded outside the capture",
          "wait for it before beginCapture, or record it on a stream of the capture");
    }
    if (of.hasEnded()) {
      throw new InvalidUsageException(
          "waitFor: the event was recorded in a capture that has ended", "record it anew");
    }
    if (engine.capture() != null && engine.capture() != of) {
      throw new InvalidUsageException(
          "waitFor: the event belongs to another capture", "keep captures apart");
    }
    requireUsable();
    engine.joinCapture(of, event.engine());
    of.join(engine, event.capturedAfter());
  }

  // ---- captures

  @Override
  public void beginCapture() {
    requireUsable();
    if (isCapturing()) {
      throw new InvalidUsageException(
          "beginCapture: the stream is being captured", "end that capture first");
    }
    requireNoGroup("beginCapture");
    engine.beginCapture();
  }

  @Override
  public Graph endCapture() {
    requireOpen();
    if (!isCapturing()) {
      throw new InvalidUsageException(
          "endCapture: the stream is not being captured", "call beginCapture first");
    }
    requireNoGroup("endCapture");
    return new ScheduledGraph<>(device(), engine.endCapture());
  }

  private static void requireNoGroup(String call) {
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          call + ": a group is open on this thread", "launch or close it first");
    }
  }

  @Override
  public boolean isCapturing() {
    return engine.isCapturing();
  }

  private void refuseInCapture(String call) {
    if (isCapturing()) {
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
    return engine.poll();
  }

  @Override
  public void synchronize() {
    requireOpen();
    refuseInCapture("synchronize");
    boolean ignored = engine.await(Long.MAX_VALUE);
  }

  @Override
  public void synchronize(Duration timeout) {
    if (timeout == null || timeout.isNegative()) {
      throw new InvalidArgumentException(
          "the timeout is " + timeout, "pass a duration of 0 or more");
    }
    requireOpen();
    refuseInCapture("synchronize");
    boolean isForEver = timeout.compareTo(Duration.ofNanos(Long.MAX_VALUE)) >= 0;
    if (!engine.await(isForEver ? Long.MAX_VALUE : timeout.toNanos())) {
      throw new DeadlineException(
          "not complete after " + timeout.toMillis() + " ms: " + engine.describeFirst(),
          "the work stays queued: synchronize again, or abort its communicator");
    }
  }

  @Override
  public CompletableFuture<Void> completion() {
    requireOpen();
    refuseInCapture("completion");
    Event event = device().newEvent();
    try {
      record(event);
      CompletableFuture<Void> future = event.toFuture();
      CompletableFuture<Void> ignored = future.whenComplete((none, failure) -> event.close());
      return future;
    } catch (NcclException e) {
      event.close();
      throw e;
    }
  }

  @Override
  public long position() {
    return engine.position();
  }

  @Override
  public long passed() {
    return engine.passed();
  }

  @Override
  public void learnPassed() {
    engine.learnPassed();
  }

  @Override
  public void requireUsable() {
    requireOpen();
    engine.throwIfFailed();
  }

  private void requireOpen() {
    if (engine.isClosed()) {
      throw new InvalidUsageException(
          "the stream is closed", "create a new one with device.newStream()");
    }
  }

  @Override
  public void close() {
    if (!engine.isClosed()) {
      engine.close();
    }
  }

  @Override
  public boolean isClosed() {
    return engine.isClosed();
  }
}
