package io.nccl4j.internal.cuda.driver;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/**
 * Events in a stream that say how far the device has come. When all are under way the newest one is
 * recorded again, further on, which only makes the answer coarser. It owns the events.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class Marks {
  private static final int COUNT = 16;
  private static final int DISABLE_TIMING = 2;

  private final MemorySegment[] events = new MemorySegment[COUNT];
  private final long[] positions = new long[COUNT];
  private int first;
  private int used;

  public Marks(Gpu gpu) {
    int created = 0;
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      for (; created < COUNT; created++) {
        Driver.check(Cuda.cuEventCreate(out, DISABLE_TIMING), "cuEventCreate");
        events[created] = out.get(ValueLayout.ADDRESS, 0);
      }
    } catch (NcclException e) {
      destroy(created, e);
      throw e;
    }
  }

  /** Records that everything before {@code position} lies before this point. */
  public void record(MemorySegment stream, long position) {
    if (used < COUNT) {
      used++;
    }
    int at = (first + used - 1) % COUNT;
    positions[at] = position;
    Driver.check(Cuda.cuEventRecord(events[at], stream), "cuEventRecord");
  }

  /** The position of the last mark that the device has passed, 0 if none; or minus an error. */
  public long poll() {
    long reached = 0;
    while (used > 0) {
      int result = Cuda.cuEventQuery(events[first]);
      if (result == Driver.NOT_READY) {
        break;
      }
      if (result != Driver.SUCCESS) {
        return -result;
      }
      reached = positions[first];
      first = (first + 1) % COUNT;
      used--;
    }
    return reached;
  }

  /** Destroys all events; throws the first failure after that. */
  public void close() {
    NcclException failure = destroy(COUNT, null);
    if (failure != null) {
      throw failure;
    }
  }

  /** Destroys all events; what fails is noted at the cause. */
  public void destroyBecauseOf(NcclException cause) {
    destroy(COUNT, cause);
  }

  /** Destroys the first {@code count} events; returns the first failure. */
  private @Nullable NcclException destroy(int count, @Nullable NcclException earlier) {
    NcclException failure = earlier;
    for (int i = 0; i < count; i++) {
      failure = Driver.also(failure, Cuda.cuEventDestroy_v2(events[i]), "cuEventDestroy");
    }
    return failure;
  }
}
