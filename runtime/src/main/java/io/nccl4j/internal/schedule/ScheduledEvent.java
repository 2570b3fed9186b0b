package io.nccl4j.internal.schedule;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * An event of any backend: what may be asked of it, and whether it was last recorded in a capture.
 * The backend's {@link EventEngine} knows where in a stream it was recorded.
 */
public final class ScheduledEvent implements Event {
  private final Device device;
  private final EventEngine engine;
  private final AtomicBoolean closed = new AtomicBoolean();
  private volatile @Nullable Capture<?> capture;
  private int[] capturedAfter = {};

  /** An event that is carried out by {@code engine}, and closed with it. */
  public ScheduledEvent(Device device, EventEngine engine) {
    this.device = device;
    this.engine = engine;
  }

  /** The event, which is open and of that backend. */
  static ScheduledEvent require(@Nullable Event event, Backend backend) {
    ScheduledEvent own =
        ofBackend(event, "the event", backend, "pass an event of this stream's backend");
    own.requireOpen();
    return own;
  }

  private static ScheduledEvent ofBackend(
      @Nullable Event event, String name, Backend backend, String remedy) {
    if (!(event instanceof ScheduledEvent own) || own.device.backend() != backend) {
      throw new InvalidArgumentException(
          name + " is " + (event == null ? "null" : "not of a " + backend.label() + " device"),
          remedy);
    }
    return own;
  }

  EventEngine engine() {
    return engine;
  }

  /** Notes that it was recorded on a stream, and whether in a capture. */
  <W extends Work> void recordedIn(StreamEngine<W> stream) {
    Capture<W> in = stream.capture();
    if (in != null) {
      capturedAfter = in.frontier(stream);
    }
    capture = in;
  }

  /** The capture that it was last recorded in; null if it was outside of one. */
  @Nullable Capture<?> capture() {
    return capture;
  }

  /** The nodes of the capture that lie before it. */
  int[] capturedAfter() {
    return capturedAfter;
  }

  private void requireOpen() {
    if (closed.get()) {
      throw new InvalidUsageException(
          "the event is closed", "create a new one with device.newEvent()");
    }
  }

  private void requireUsable(String call) {
    requireOpen();
    if (capture != null) {
      throw new InvalidUsageException(
          call + ": the event was last recorded in a capture, which runs nothing",
          "record it outside a capture");
    }
  }

  @Override
  public Device device() {
    return device;
  }

  @Override
  public boolean isComplete() {
    requireUsable("isComplete");
    return engine.poll();
  }

  @Override
  public void synchronize() {
    requireUsable("synchronize");
    engine.synchronize();
  }

  @Override
  public Duration elapsedSince(Event start) {
    requireOpen();
    ScheduledEvent begin =
        ofBackend(start, "the start event", device.backend(), "pass an event of this backend");
    begin.requireDone("start");
    requireDone("end");
    return engine.elapsedSince(begin.engine);
  }

  private void requireDone(String name) {
    requireUsable("elapsedSince");
    if (!engine.isRecorded() || !engine.isDone()) {
      throw new InvalidUsageException(
          "the "
              + name
              + " event "
              + (engine.isRecorded() ? "is not complete" : "was never recorded"),
          "record it and synchronize first");
    }
  }

  @Override
  public CompletableFuture<Void> toFuture() {
    requireUsable("toFuture");
    return engine.toFuture();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      engine.close();
    }
  }
}
