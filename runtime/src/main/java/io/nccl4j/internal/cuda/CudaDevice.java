package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CudaModule;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryFeature;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPool;
import io.nccl4j.MemoryPoolOptions;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryReport;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.VirtualMemory;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.memory.Deferral;
import io.nccl4j.internal.memory.DeviceBudget;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.internal.spi.NativeSegments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * A GPU. Its primary context, the one that NCCL and other libraries of the process use, is retained
 * at the first use and kept until the process ends.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaDevice implements Device {
  /** The device's context is current on this thread until {@link #close()}. */
  record Scope() implements AutoCloseable {
    private static final Scope ENTERED = new Scope();

    @Override
    public void close() {
      Driver.check(Cuda.cuCtxPopCurrent_v2(MemorySegment.NULL), "cuCtxPopCurrent");
    }
  }

  private static final Logger LOG = LogManager.getLogger(CudaDevice.class);
  private static final int NAME_BYTES = 256;

  private final int ordinal;
  private final int handle;
  private final String name;
  private final int capability;
  private final MemoryBook book = new MemoryBook();
  private final MemoryBook.Account account;
  private final AtomicLong predictedForNccl = new AtomicLong();
  private final CudaStreams streams = new CudaStreams();
  private final CudaHeap heap = new CudaHeap(this);
  private final PinnedHeap pinned = new PinnedHeap(this);
  private final Deferral deferred = new Deferral();
  private volatile @Nullable MemorySegment context;
  private @Nullable Transfers transfers;
  private @Nullable List<Integer> peers;

  CudaDevice(int ordinal) {
    this.ordinal = ordinal;
    account = book.open(toString(), this);
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

  // ---- for the backend

  /** Makes the device's context current on this thread; closing the scope undoes it. */
  Scope enter() {
    MemorySegment current = context;
    Driver.check(
        Cuda.cuCtxPushCurrent_v2(current == null ? retain() : current), "cuCtxPushCurrent");
    return Scope.ENTERED;
  }

  /** Has the context ready, so that {@link #enter} neither waits nor fails later. */
  void prepare() {
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

  CudaHeap heap() {
    return heap;
  }

  /** Frees what was closed while it was in use, as far as nothing uses it any more. */
  void sweep() {
    if (!deferred.isEmpty()) {
      streams.learnPassed();
      deferred.sweep();
    }
  }

  /**
   * Releases what belongs to a closed buffer when nothing uses it any more: now, or at a later
   * {@link #sweep()}.
   */
  void whenUnused(Object buffer, Runnable release) {
    if (GroupScope.collected().stream().anyMatch(work -> Slot.uses(work, buffer))) {
      GroupScope.afterGroups(
          () -> {
            whenSafe(streams.usesOf(buffer)::areOver, release);
            sweep();
          });
      return;
    }
    Uses uses = streams.usesOf(buffer);
    if (uses.areOver()) {
      release.run();
    } else {
      whenSafe(uses::areOver, release);
    }
    sweep();
  }

  /** Releases something at the first {@link #sweep()} that finds it safe. */
  void whenSafe(BooleanSupplier safe, Runnable release) {
    deferred.add(
        safe,
        () -> {
          try {
            release.run();
          } catch (NcclException e) {
            // Whoever closed it is gone, and whoever sweeps has nothing to do with it.
            LOG.warn(
                "what was closed on {} while in use is left to CUDA: {}", this, e.getMessage());
          }
        });
  }

  /** Who has taken which of its memory. */
  MemoryBook book() {
    return book;
  }

  /** What belongs to no communicator. */
  MemoryBook.Account account() {
    return account;
  }

  PinnedHeap pinned() {
    return pinned;
  }

  CudaStreams streams() {
    return streams;
  }

  synchronized Transfers transfers() {
    if (transfers == null) {
      transfers = new Transfers(this);
    }
    return transfers;
  }

  int attribute(int attribute) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      Driver.check(Cuda.cuDeviceGetAttribute(out, attribute, handle), "cuDeviceGetAttribute");
      return out.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /** The driver's number of the device. */
  int handle() {
    return handle;
  }

  /** Compute capability, for example 90. */
  int capability() {
    return capability;
  }

  /** Ordinals of the devices that can use this one's memory directly. */
  synchronized List<Integer> peers() {
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

  /** Free and total memory, in words; the context is current. */
  String freeMemory() {
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

  // ---- Device

  @Override
  public Backend backend() {
    return Backend.CUDA;
  }

  @Override
  public int ordinal() {
    return ordinal;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public DeviceBuffer allocate(long bytes) {
    requireSize(bytes);
    sweep();
    return DeviceBudget.allocate(
        this, bytes, this::takenBytes, () -> allocate(account, MemoryPurpose.USER, bytes));
  }

  /** Free memory of the device, in bytes; −1 if it is unknown. */
  long freeBytes() {
    try (Scope ignored = enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment free = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment total = arena.allocate(ValueLayout.JAVA_LONG);
      int result = Cuda.cuMemGetInfo_v2(free, total);
      return result == Driver.SUCCESS ? free.get(ValueLayout.JAVA_LONG, 0) : -1;
    }
  }

  /** What this backend has taken, and what NCCL is predicted to take for communicators. */
  long takenBytes() {
    return book.bytes(this, MemoryPlace.DEVICE) + predictedForNccl.get();
  }

  /** A communicator was made, or with a negative number closed. */
  void addPredicted(long bytes) {
    predictedForNccl.addAndGet(bytes);
  }

  /** Memory that is booked on {@code owner}. */
  CudaBuffer allocate(MemoryBook.Account owner, MemoryPurpose purpose, long bytes) {
    CudaHeap.Block block = heap.allocate(owner, purpose, bytes);
    return CudaBuffer.allocated(
        this, block.address(), bytes, block.booking(), () -> heap.free(block));
  }

  @Override
  public BackendInfo.Feature support(MemoryFeature feature) {
    return MemorySupport.of(this, feature);
  }

  @Override
  public VirtualMemory newVirtualMemory() {
    return new CudaVirtualMemory(this);
  }

  @Override
  public MemoryPool newMemoryPool(MemoryPoolOptions options) {
    return CudaPool.open(this, options);
  }

  @Override
  public DeviceBuffer wrap(@Nullable MemorySegment segment) {
    MemorySegment sharable = NativeSegments.requireSharable(segment);
    return wrap(sharable.address(), sharable.byteSize());
  }

  @Override
  public DeviceBuffer wrap(long devicePointer, long bytes) {
    requireSize(bytes);
    try (Scope ignored = enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      int result =
          Cuda.cuPointerGetAttribute(out, Cuda.CU_POINTER_ATTRIBUTE_MEMORY_TYPE(), devicePointer);
      if (result != Driver.SUCCESS) {
        throw new InvalidArgumentException(
            "CUDA does not know the memory at 0x" + Long.toHexString(devicePointer),
            "wrap memory that CUDA allocated or registered, or use a buffer and copyFrom");
      }
    }
    return CudaBuffer.wrapped(this, devicePointer, bytes);
  }

  @Override
  public PinnedBuffer allocatePinned(long bytes) {
    requireSize(bytes);
    sweep();
    return new CudaPinnedBuffer(this, bytes);
  }

  @Override
  public MemoryReport memory() {
    sweep();
    return book.report(toString(), this);
  }

  @Override
  public boolean bindThread() {
    return Affinity.bindThreadNear(pciAddress());
  }

  @Override
  public String pciAddress() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(NAME_BYTES);
      Driver.check(Cuda.cuDeviceGetPCIBusId(out, NAME_BYTES, handle), "cuDeviceGetPCIBusId");
      return out.getString(0).toLowerCase(java.util.Locale.ROOT);
    }
  }

  /** Whether it is the primary context of this device. */
  boolean isContext(MemorySegment other) {
    return other.equals(context);
  }

  @Override
  public Stream wrapStream(long stream) {
    return CudaStream.wrap(this, stream);
  }

  @Override
  public Stream newStream() {
    return CudaStream.open(this);
  }

  @Override
  public Event newEvent() {
    return new CudaEvent(this);
  }

  @Override
  public CudaModule loadModule(@Nullable String ptx) {
    return PtxModule.load(this, ptx);
  }

  private static void requireSize(long bytes) {
    if (bytes < 0) {
      throw new InvalidArgumentException(
          "the size is " + bytes + " bytes", "pass a size of 0 or more");
    }
  }

  @Override
  public String toString() {
    return "cuda device " + ordinal;
  }
}
