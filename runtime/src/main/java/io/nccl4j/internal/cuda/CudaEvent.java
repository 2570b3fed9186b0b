package io.nccl4j.internal.cuda;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.internal.schedule.EventEngine;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A CUDA event, and where it was recorded last. It owns the CUDA event.
 *
 * <p>CUDA answers for the last record alone. While somebody waits for a record its CUDA event is
 * not recorded again, the next record gets another one; else a record that is complete would speak
 * for one that is not, and what that one's stream still runs would be given back.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaEvent implements EventEngine {
  /** A record: {@code position} entries of a stream lie before it. */
  final class Place {
    private final MemorySegment recorded;
    private StreamWaits waits;
    private long position;

    /** Who waits for it, and whether the event was recorded again or closed; under the event. */
    private int waiting;

    private boolean isPast;

    private Place(MemorySegment recorded, StreamWaits waits, long position) {
      this.recorded = recorded;
      this.waits = waits;
      this.position = position;
    }

    StreamWaits waits() {
      return waits;
    }

    /**
     * Whether it is complete; asks CUDA.
     *
     * @throws InvalidUsageException if the event is closed
     */
    boolean isReached() {
      synchronized (CudaEvent.this) {
        requireOpen();
        int result = Cuda.cuEventQuery(recorded);
        if (result == Driver.NOT_READY) {
          return false;
        }
        Driver.check(result, "cuEventQuery");
        waits.queue().passed(position);
        return true;
      }
    }

    /** Why what lies before it failed; null if it did not. */
    @Nullable NcclException failure() {
      return waits.queue().failureUpTo(position);
    }

    /** Ends what {@link #awaited()} began. */
    void release() {
      synchronized (CudaEvent.this) {
        if (--waiting > 0 || !isPast) {
          return;
        }
      }
      Driver.check(Cuda.cuEventDestroy_v2(recorded), "cuEventDestroy");
    }
  }

  private final Gpu gpu;

  /** What is recorded next, and the last record; guarded by this object. */
  private MemorySegment handle;

  private @Nullable Place last;
  private volatile boolean closed;

  CudaEvent(Gpu gpu) {
    this.gpu = gpu;
    this.handle = newHandle(gpu);
  }

  private static MemorySegment newHandle(Gpu gpu) {
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuEventCreate(out, 0), "cuEventCreate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  synchronized MemorySegment handle() {
    return handle;
  }

  /** Where it was recorded last; null if nowhere. */
  private synchronized @Nullable Place last() {
    return last;
  }

  /** The same, for who waits for it until {@link Place#release}. */
  private synchronized @Nullable Place awaited() {
    Place place = last;
    if (place != null) {
      place.waiting++;
    }
    return place;
  }

  /** Records it in a stream, behind {@code at} entries. */
  synchronized void recordOn(StreamHandle stream, StreamWaits on, long at) {
    record(stream);
    Place place = last;
    if (place == null || place.isPast || place.waiting > 0) {
      last = new Place(handle, on, at);
    } else {
      // Nobody waits for it: recording in a loop allocates nothing.
      place.waits = on;
      place.position = at;
    }
  }

  /** Records it in a capture, and not in a stream. */
  synchronized void recordInCapture(StreamHandle stream) {
    record(stream);
  }

  private void record(StreamHandle stream) {
    if (leaveToWaiting()) {
      handle = newHandle(gpu);
    }
    Driver.check(stream.record(handle), "cuEventRecord");
  }

  /** Whether the CUDA event of the last record belongs to those who wait for it from now on. */
  private boolean leaveToWaiting() {
    Place place = last;
    if (place == null || place.waiting == 0 || place.isPast) {
      return false;
    }
    place.isPast = true;
    return true;
  }

  /**
   * Lets a stream wait for the last record, if there is one and the stream's order does not
   * suffice.
   *
   * @throws NcclException why what was recorded has failed: who waits for it fails, too
   */
  synchronized void awaitBy(StreamHandle stream, StreamQueue waiting) {
    Place place = last;
    if (place == null || place.waits.queue() == waiting) {
      return;
    }
    NcclException failure = place.failure();
    if (failure != null) {
      throw Failures.again(failure);
    }
    Driver.check(stream.waitFor(handle), "cuStreamWaitEvent");
    waiting.add(place.waits.queue(), place.position);
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the event is closed", "create a new one with device.newEvent()");
    }
  }

  @Override
  public boolean isRecorded() {
    return last() != null;
  }

  @Override
  public boolean isDone() {
    Place place = last();
    return place == null || place.isReached();
  }

  @Override
  public void synchronize() {
    Place place = awaited();
    if (place == null) {
      return;
    }
    NcclException failure;
    try {
      place.waits.await(place::isReached);
      failure = place.failure();
    } finally {
      place.release();
    }
    if (failure != null) {
      throw Failures.again(failure);
    }
  }

  @Override
  public Duration elapsedSince(EventEngine start) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_FLOAT);
      Driver.check(
          Cuda.cuEventElapsedTime(out, ((CudaEvent) start).handle(), handle()),
          "cuEventElapsedTime");
      return Duration.ofNanos((long) (out.get(ValueLayout.JAVA_FLOAT, 0) * 1e6));
    }
  }

  @Override
  public CompletableFuture<Void> toFuture() {
    Place place = awaited();
    return place == null ? CompletableFuture.completedFuture(null) : EventPoller.futureOf(place);
  }

  @Override
  public void close() {
    synchronized (this) {
      closed = true;
      if (leaveToWaiting()) {
        return;
      }
    }
    Driver.check(Cuda.cuEventDestroy_v2(handle()), "cuEventDestroy");
  }
}
