package io.nccl4j.internal.cuda.driver;

import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * A GPU as the driver knows it. Its primary context, the one that NCCL and other libraries of the
 * process use, is retained at the first use and kept until the process ends.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class Gpu {
  /** The GPU's context is current on this thread until {@link #close()}. */
  public record Scope() implements AutoCloseable {
    private static final Scope ENTERED = new Scope();

    @Override
    public void close() {
      Driver.check(Cuda.cuCtxPopCurrent_v2(MemorySegment.NULL), "cuCtxPopCurrent");
    }
  }

  private static final int NAME_BYTES = 256;

  private final int ordinal;
  private final int handle;
  private final String name;
  private final int capability;
  private volatile @Nullable MemorySegment context;
  private @Nullable List<Integer> peers;

  /** The GPU with this ordinal, which exists. */
  public Gpu(int ordinal) {
    this.ordinal = ordinal;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(NAME_BYTES);
      Driver.check(Cuda.cuDeviceGet(out, ordinal), "cuDeviceGet");
      handle = out.get(ValueLayout.JAVA_INT, 0);
      Driver.check(Cuda.cuDeviceGetName(out, NAME_BYTES, handle), "cuDeviceGetName");
      name = out.getString(0);
    }
    capability =
        10 * attribute(Cuda.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR())
            + attribute(Cuda.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR());
  }

  // ---- its context

  /** Makes the context current on this thread; closing the scope undoes it. */
  public Scope enter() {
    MemorySegment current = context;
    Driver.check(
        Cuda.cuCtxPushCurrent_v2(current == null ? retain() : current), "cuCtxPushCurrent");
    return Scope.ENTERED;
  }

  /** Has the context ready, so that {@link #enter} neither waits nor fails later. */
  public void prepare() {
    enter().close();
  }

  private synchronized MemorySegment retain() {
    MemorySegment retained = context;
    if (retained == null) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
        Driver.check(Cuda.cuDevicePrimaryCtxRetain(out, handle), "cuDevicePrimaryCtxRetain");
        retained = out.get(ValueLayout.ADDRESS, 0);
        context = retained;
      }
    }
    return retained;
  }

  /** Whether it is this GPU's primary context. */
  boolean isContext(MemorySegment other) {
    return other.equals(context);
  }

  // ---- what it is

  /** Its number in this process. */
  public int ordinal() {
    return ordinal;
  }

  /** The driver's number of it. */
  public int handle() {
    return handle;
  }

  /** For example {@code NVIDIA H200}. */
  public String name() {
    return name;
  }

  /** Compute capability, for example 90. */
  public int capability() {
    return capability;
  }

  /** Its address on the PCI bus, as in {@code /sys/bus/pci/devices}. */
  public String pciAddress() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(NAME_BYTES);
      Driver.check(Cuda.cuDeviceGetPCIBusId(out, NAME_BYTES, handle), "cuDeviceGetPCIBusId");
      return out.getString(0).toLowerCase(Locale.ROOT);
    }
  }

  /** One of its attributes, which the driver knows. */
  public int attribute(int attribute) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      Driver.check(Cuda.cuDeviceGetAttribute(out, attribute, handle), "cuDeviceGetAttribute");
      return out.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /**
   * An attribute of a GPU, −1 where the driver does not know it.
   *
   * @param handle the driver's number of the GPU
   */
  public static int attribute(int handle, int attribute) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      return Cuda.cuDeviceGetAttribute(out, attribute, handle) == Driver.SUCCESS
          ? out.get(ValueLayout.JAVA_INT, 0)
          : -1;
    }
  }

  /** Ordinals of the GPUs that can use this one's memory directly. */
  public synchronized List<Integer> peers() {
    if (peers == null) {
      peers =
          IntStream.range(0, CudaLibraries.deviceCount())
              .filter(other -> other != ordinal && isReachableFrom(other))
              .boxed()
              .toList();
    }
    return peers;
  }

  private boolean isReachableFrom(int other) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      Driver.check(Cuda.cuDeviceCanAccessPeer(out, other, handle), "cuDeviceCanAccessPeer");
      return out.get(ValueLayout.JAVA_INT, 0) != 0;
    }
  }

  // ---- its memory

  /** Free and total memory, in words; the context is current. */
  public String freeMemory() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment free = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment total = arena.allocate(ValueLayout.JAVA_LONG);
      int result = Cuda.cuMemGetInfo_v2(free, total);
      return result != Driver.SUCCESS
          ? "its free memory is unknown"
          : free.get(ValueLayout.JAVA_LONG, 0)
              + " of "
              + total.get(ValueLayout.JAVA_LONG, 0)
              + " bytes are free";
    }
  }

  /** Free memory in bytes; −1 if it is unknown. */
  public long freeBytes() {
    try (Scope ignored = enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment free = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment total = arena.allocate(ValueLayout.JAVA_LONG);
      int result = Cuda.cuMemGetInfo_v2(free, total);
      return result == Driver.SUCCESS ? free.get(ValueLayout.JAVA_LONG, 0) : -1;
    }
  }

  @Override
  public String toString() {
    return "cuda device " + ordinal;
  }
}
