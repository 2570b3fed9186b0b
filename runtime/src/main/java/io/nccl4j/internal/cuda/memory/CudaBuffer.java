package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.memory.DeviceBudget;
import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.spi.BackendBuffer;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.internal.spi.NativeSegments;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Memory of a GPU: a block of its heap or of a pool, memory of another library, or a slice of one
 * of these.
 *
 * <p>The block, if there is one, is owned by the buffer that was allocated, not by its slices. A
 * pool uses its buffers again for other blocks, when all works with them are done.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class CudaBuffer implements BackendBuffer {
  private static final int OPEN = 0;
  private static final int CLOSED = -1;
  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(CudaBuffer.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final DeviceMemory device;

  /** The allocated or wrapped buffer this one is a part of, or this one. */
  private final CudaBuffer root;

  private final MemoryBook.@Nullable Booking booking;
  private final MemoryPurpose purpose;
  private final @Nullable Runnable release;
  private MemorySegment pointer;
  private long address;
  private long bytes;
  private @Nullable PoolBlock pooled;

  /** How often a pool has used the root again; a slice's is that of its making. */
  private int generation;

  /** Whether it is over a caller's read-only memory; as its root says. */
  private boolean readOnly;

  /** Whether a graph knows it, and may ask for ever whether it is closed. */
  private boolean captured;

  /** Registrations and windows of it and its slices, counted at the root; or that it is closed. */
  @SuppressWarnings("unused") // by VarHandle
  private int state;

  private CudaBuffer(
      DeviceMemory device,
      long address,
      long bytes,
      @Nullable CudaBuffer root,
      MemoryBook.@Nullable Booking booking,
      MemoryPurpose purpose,
      @Nullable Runnable release) {
    this.device = device;
    this.pointer = MemorySegment.ofAddress(address);
    this.address = address;
    this.bytes = bytes;
    this.root = root == null ? this : root;
    this.generation = this.root.generation;
    this.booking = booking;
    this.purpose = purpose;
    this.release = release;
  }

  /** Memory of the device's heap, booked on {@code owner} and freed by its close. */
  public static CudaBuffer allocate(
      DeviceMemory device, MemoryBook.Account owner, MemoryPurpose purpose, long bytes) {
    CudaHeap heap = device.heap();
    CudaHeap.Block block = heap.allocate(owner, purpose, bytes);
    return new CudaBuffer(
        device,
        block.address(),
        bytes,
        null,
        block.booking(),
        MemoryPurpose.USER,
        () -> heap.free(block));
  }

  /** As {@link #allocate}, as long as it is within the device's budget. */
  public static CudaBuffer allocateWithin(
      DeviceMemory device, MemoryBook.Account owner, MemoryPurpose purpose, long bytes) {
    device.sweep();
    return DeviceBudget.allocate(
        device.device(), bytes, device::takenBytes, () -> allocate(device, owner, purpose, bytes));
  }

  /**
   * Memory that another library allocated on the device, and frees.
   *
   * @throws InvalidArgumentException if CUDA does not know it
   */
  public static CudaBuffer wrap(DeviceMemory device, long address, long bytes) {
    try (Gpu.Scope ignored = device.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      int result =
          Cuda.cuPointerGetAttribute(out, Cuda.CU_POINTER_ATTRIBUTE_MEMORY_TYPE(), address);
      if (result != Driver.SUCCESS) {
        throw new InvalidArgumentException(
            "CUDA does not know the memory at 0x" + Long.toHexString(address),
            "wrap memory that CUDA allocated or registered, or use a buffer and copyFrom");
      }
    }
    return wrapped(device, address, bytes);
  }

  /** The same for memory that is not to be written to. */
  public static CudaBuffer wrapReadOnly(DeviceMemory device, long address, long bytes) {
    CudaBuffer buffer = wrap(device, address, bytes);
    buffer.readOnly = true;
    return buffer;
  }

  /** A buffer over memory that was mapped and is unmapped by others; they are told of its close. */
  static CudaBuffer mapped(DeviceMemory device, long address, long bytes, Runnable forget) {
    return new CudaBuffer(device, address, bytes, null, null, MemoryPurpose.USER, forget);
  }

  private static CudaBuffer wrapped(DeviceMemory device, long address, long bytes) {
    return new CudaBuffer(device, address, bytes, null, null, MemoryPurpose.USER, null);
  }

  /** A whole chunk of a pool, booked, for registrations. */
  static CudaBuffer chunk(DeviceMemory device, CudaMapping memory, MemoryBook.Booking booking) {
    return new CudaBuffer(
        device, memory.address(), memory.bytes(), null, booking, MemoryPurpose.POOL, null);
  }

  /** A buffer of a pool, closed. */
  static CudaBuffer ofPool(DeviceMemory device) {
    CudaBuffer buffer = wrapped(device, 0, 0);
    STATE.setRelease(buffer, CLOSED);
    return buffer;
  }

  /** Makes a pool's closed buffer stand for a block. */
  void open(PoolBlock of, MemorySegment memory, long byteSize) {
    pointer = memory;
    address = of.offset();
    bytes = byteSize;
    pooled = of;
    generation++;
    STATE.setRelease(this, OPEN);
  }

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole || root == whole;
  }

  @Override
  public void capture() {
    root.captured = true;
  }

  /** The address as native calls take it. */
  public MemorySegment pointer() {
    return pointer;
  }

  @Override
  public Device device() {
    return device.device();
  }

  @Override
  public long address() {
    return address;
  }

  @Override
  public long byteSize() {
    return bytes;
  }

  @Override
  public DeviceBuffer slice(long byteOffset, long byteSize) {
    requireSlice(byteOffset, byteSize);
    return new CudaBuffer(
        device, address + byteOffset, byteSize, root, null, MemoryPurpose.USER, null);
  }

  @Override
  public void copyFrom(MemorySegment source) {
    requireOpen();
    requireWritable("copyFrom");
    device.transfers().toDevice(address, NativeSegments.requireReadable(source, bytes));
  }

  @Override
  public void copyTo(MemorySegment target) {
    requireOpen();
    device.transfers().toHost(NativeSegments.requireWritable(target, bytes), address);
  }

  @Override
  public Optional<MemorySegment> hostSegment() {
    requireOpen();
    return Optional.empty();
  }

  /**
   * Notes that NCCL knows of it, so that it cannot be closed; its memory is booked on whoever
   * registered it first.
   */
  public void hold(MemoryBook.Account account) {
    synchronized (root) {
      int held = (int) STATE.getVolatile(root);
      requireOpen();
      while (!STATE.compareAndSet(root, held, held + 1)) {
        requireOpen();
        held = (int) STATE.getVolatile(root);
      }
      if (held == OPEN && root.booking != null) {
        root.booking.move(account, MemoryPurpose.WINDOW);
      }
    }
  }

  /** Undoes one {@link #hold}; the last one gives the memory back to the device's account. */
  public void release() {
    synchronized (root) {
      int held = (int) STATE.getAndAdd(root, -1) - 1;
      if (held == OPEN && root.booking != null) {
        root.booking.move(device.account(), root.purpose);
      }
    }
  }

  /** Whether NCCL knows of it. */
  boolean isHeld() {
    return (int) STATE.getVolatile(root) > OPEN;
  }

  /** Whether this call closed it. */
  private boolean closeUnheld() {
    int before = (int) STATE.compareAndExchange(this, OPEN, CLOSED);
    if (before > OPEN) {
      throw new InvalidUsageException(
          "the buffer is registered with a communicator",
          "close its registrations and windows, or their communicators, before the buffer");
    }
    return before == OPEN;
  }

  @Override
  public boolean isQuiet() {
    return device.users().userOf(root) == null;
  }

  @Override
  public boolean isReadOnly() {
    return root.readOnly;
  }

  @Override
  public boolean isClosed() {
    return (int) STATE.getOpaque(this) == CLOSED
        || (int) STATE.getOpaque(root) == CLOSED
        || generation != root.generation;
  }

  @Override
  public void close() {
    if ((int) STATE.getOpaque(this) == CLOSED) {
      return;
    }
    PoolBlock ofPool = pooled;
    if (ofPool != null) {
      if (closeUnheld()) {
        ofPool.close(this, !captured);
      }
      return;
    }
    if (closeUnheld() && release != null) {
      device.whenUnused(this, release);
    }
  }

  /** Throws if unfinished works use it or its slices, open or closed: its memory must stay. */
  void requireUnused() {
    String user = device.users().userOf(this);
    if (user != null) {
      throw new InvalidUsageException(
          "a buffer over it is in use by " + user, "synchronize the stream first");
    }
  }
}
