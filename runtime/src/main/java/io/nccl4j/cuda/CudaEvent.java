package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A CUDA event, and where it was recorded last. It owns the CUDA event. */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaEvent implements Event {
  private static final VarHandle CLOSED;

  static {
    try {
      CLOSED = MethodHandles.lookup().findVarHandle(CudaEvent.class, "closed", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final CudaDevice device;
  private final MemorySegment handle;
  private volatile @Nullable CudaStream stream;
  private volatile long position;
  private volatile @Nullable CudaCapture capture;
  private int[] capturedAfter = {};
  private volatile boolean closed;

  CudaEvent(CudaDevice device) {
    this.device = device;
    try (CudaDevice.Scope ignored = device.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuEventCreate(out, 0), "cuEventCreate");
      handle = out.get(ValueLayout.ADDRESS, 0);
    }
  }

  static CudaEvent require(@Nullable Event event) {
    if (!(event instanceof CudaEvent own)) {
      throw new InvalidArgumentException(
          "the event is " + (event == null ? "null" : "not of a cuda device"),
          "pass an event of this stream's backend");
    }
    return own;
  }

  MemorySegment handle() {
    return handle;
  }

  /** Where it was recorded last; null if nowhere. */
  @Nullable CudaStream stream() {
    return stream;
  }

  /** Entries of the stream before the record. */
  long position() {
    return position;
  }

  @Nullable CudaCapture capture() {
    return capture;
  }

  int[] capturedAfter() {
    return capturedAfter;
  }

  void recordedOn(CudaStream on, long at) {
    capture = null;
    position = at;
    stream = on;
  }

  /** Notes that the event was recorded in a capture, after these nodes, and not in a stream. */
  void capturedIn(CudaCapture in, int[] after) {
    capturedAfter = after;
    capture = in;
  }

  void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the event is closed", "create a new one with device.newEvent()");
    }
  }

  private void requireNotCaptured(String call) {
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
    requireOpen();
    requireNotCaptured("isComplete");
    return isReached();
  }

  private boolean isReached() {
    CudaStream on = stream;
    if (on == null) {
      return true;
    }
    int result = Cuda.cuEventQuery(handle);
    if (result == Driver.NOT_READY) {
      return false;
    }
    Driver.check(result, "cuEventQuery");
    on.queue().passed(position);
    return true;
  }

  @Override
  public void synchronize() {
    requireOpen();
    requireNotCaptured("synchronize");
    CudaStream on = stream;
    if (on != null) {
      on.waits().awaitEvent(this);
      NcclException failure = on.queue().failureUpTo(position);
      if (failure != null) {
        throw failure;
      }
    }
  }

  /** Whether it is complete, for who waits; a failure of the device counts as complete. */
  boolean poll() {
    return isReached();
  }

  @Override
  public Duration elapsedSince(Event start) {
    requireOpen();
    if (!(start instanceof CudaEvent begin)) {
      throw new InvalidArgumentException(
          "the start event is " + (start == null ? "null" : "not of a cuda device"),
          "pass an event of this backend");
    }
    requireRecorded(begin, "start");
    requireRecorded(this, "end");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_FLOAT);
      Driver.check(Cuda.cuEventElapsedTime(out, begin.handle, handle), "cuEventElapsedTime");
      return Duration.ofNanos((long) (out.get(ValueLayout.JAVA_FLOAT, 0) * 1e6));
    }
  }

  private static void requireRecorded(CudaEvent event, String name) {
    event.requireOpen();
    event.requireNotCaptured("elapsedSince");
    if (event.stream == null || !event.isReached()) {
      throw new InvalidUsageException(
          "the "
              + name
              + " event "
              + (event.stream == null ? "was never recorded" : "is not complete"),
          "record it and synchronize first");
    }
  }

  @Override
  public CompletableFuture<Void> toFuture() {
    requireOpen();
    requireNotCaptured("toFuture");
    CudaStream on = stream;
    if (on == null) {
      return CompletableFuture.completedFuture(null);
    }
    return EventPoller.futureOf(this, on, position);
  }

  @Override
  public void close() {
    if (CLOSED.compareAndSet(this, false, true)) {
      Driver.check(Cuda.cuEventDestroy_v2(handle), "cuEventDestroy");
    }
  }
}
