package io.nccl4j.internal.cuda.driver;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/** A stream of CUDA, which it owns unless somebody else made it. */
@SuppressWarnings("try") // a scope is entered, not used
public final class StreamHandle {
  private static final int NON_BLOCKING = 1;

  /** CUDA's handles of the default streams; 0 is the first of them. */
  private static final long LEGACY = 1;

  private static final long PER_THREAD = 2;

  private final Gpu gpu;
  private final MemorySegment handle;
  private final boolean owned;
  private final boolean isDefault;

  private StreamHandle(Gpu gpu, MemorySegment handle, boolean owned) {
    this.gpu = gpu;
    this.handle = handle;
    this.owned = owned;
    this.isDefault = handle.address() <= LEGACY;
  }

  public static StreamHandle create(Gpu gpu) {
    return new StreamHandle(gpu, newHandle(gpu), true);
  }

  /**
   * A stream that somebody else made.
   *
   * @throws InvalidArgumentException if it is not a stream of this device
   */
  public static StreamHandle wrap(Gpu gpu, long handle) {
    MemorySegment stream = MemorySegment.ofAddress(handle);
    if (handle == PER_THREAD) {
      throw new InvalidArgumentException(
          "wrapStream: the default stream of each thread is a different one",
          "wrap a stream that was created, or the legacy default stream (0)");
    }
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = handle <= LEGACY ? Driver.SUCCESS : Cuda.cuStreamGetCtx(stream, out);
      if (result != Driver.SUCCESS) {
        throw new InvalidArgumentException(
                "wrapStream: 0x" + Long.toHexString(handle) + " is not a CUDA stream",
                "pass a CUstream or cudaStream_t")
            .causedBy(Driver.failure(result, "cuStreamGetCtx"));
      }
      if (handle > LEGACY && !gpu.isContext(out.get(ValueLayout.ADDRESS, 0))) {
        throw new InvalidArgumentException(
            "wrapStream: the stream is not on " + gpu + ", or in a context of its own",
            "wrap it on the device whose primary context it was created in");
      }
    }
    return new StreamHandle(gpu, stream, false);
  }

  /** A stream that does not wait for the default stream; the caller's. */
  public static MemorySegment newHandle(Gpu gpu) {
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuStreamCreate(out, NON_BLOCKING), "cuStreamCreate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  public MemorySegment get() {
    return handle;
  }

  /** Whether it is the default stream, which is that of the current context. */
  public boolean isDefault() {
    return isDefault;
  }

  /** Calls the driver, in the device's context where the stream asks for that. */
  private int call(IntSupplier call) {
    if (!isDefault) {
      return call.getAsInt();
    }
    try (Gpu.Scope ignored = gpu.enter()) {
      return call.getAsInt();
    }
  }

  /** Whether the device has passed everything, as CUDA's result. */
  public int query() {
    return isDefault ? call(() -> Cuda.cuStreamQuery(handle)) : Cuda.cuStreamQuery(handle);
  }

  /** Records an event; CUDA's result. */
  public int record(MemorySegment event) {
    return isDefault
        ? call(() -> Cuda.cuEventRecord(event, handle))
        : Cuda.cuEventRecord(event, handle);
  }

  /** Lets what comes later wait for an event; CUDA's result. */
  public int waitFor(MemorySegment event) {
    return isDefault
        ? call(() -> Cuda.cuStreamWaitEvent(handle, event, 0))
        : Cuda.cuStreamWaitEvent(handle, event, 0);
  }

  /** Launches a graph; CUDA's result. */
  public int launch(MemorySegment graph) {
    return isDefault
        ? call(() -> Cuda.cuGraphLaunch(graph, handle))
        : Cuda.cuGraphLaunch(graph, handle);
  }

  /** Destroys the stream if it is owned; returns the failure. */
  public @Nullable NcclException destroy() {
    if (!owned) {
      return null;
    }
    try (Gpu.Scope ignored = gpu.enter()) {
      return Driver.also(null, Cuda.cuStreamDestroy_v2(handle), "cuStreamDestroy");
    }
  }
}
