package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.spi.HeapArrays;
import io.nccl4j.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * Memory of a GPU: a block of its heap, memory of another library, or a slice of one of these.
 *
 * <p>The block, if there is one, is owned by the buffer that was allocated, not by its slices.
 */
final class CudaBuffer implements DeviceBuffer {
  private static final VarHandle CLOSED;

  static {
    try {
      CLOSED = MethodHandles.lookup().findVarHandle(CudaBuffer.class, "closed", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final CudaDevice device;
  private final MemorySegment pointer;
  private final long address;
  private final long bytes;
  private final CudaBuffer root;
  private final CudaHeap.@Nullable Block block;

  @SuppressWarnings("unused") // by VarHandle
  private boolean closed;

  /** Registrations and windows of it and its slices; the root's, under its lock. */
  private int registrations;

  private CudaBuffer(
      CudaDevice device,
      long address,
      long bytes,
      @Nullable CudaBuffer root,
      CudaHeap.@Nullable Block block) {
    this.device = device;
    this.pointer = MemorySegment.ofAddress(address);
    this.address = address;
    this.bytes = bytes;
    this.root = root == null ? this : root;
    this.block = block;
  }

  /** An allocated buffer, which owns {@code block}. */
  static CudaBuffer allocated(CudaDevice device, CudaHeap.Block block, long bytes) {
    return new CudaBuffer(device, block.address(), bytes, null, block);
  }

  /** Memory that stays somebody else's. */
  static CudaBuffer wrapped(CudaDevice device, long address, long bytes) {
    return new CudaBuffer(device, address, bytes, null, null);
  }

  /** The address as native calls take it. */
  MemorySegment pointer() {
    return pointer;
  }

  /** The allocated or wrapped buffer this one is a part of, or this one. */
  CudaBuffer root() {
    return root;
  }

  @Override
  public Device device() {
    return device;
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
    requireOpen();
    if (byteOffset < 0 || byteSize < 0 || byteOffset > bytes - byteSize) {
      throw new InvalidArgumentException(
          "slice of "
              + byteSize
              + " bytes at "
              + byteOffset
              + " of a buffer of "
              + bytes
              + " bytes",
          "slices lie inside their buffer");
    }
    return new CudaBuffer(device, address + byteOffset, byteSize, root, null);
  }

  @Override
  public void copyFrom(Object array) {
    requireOpen();
    MemorySegment source = HeapArrays.fitting(array, bytes);
    device.transfers().toDevice(address, source);
  }

  @Override
  public void copyTo(Object array) {
    requireOpen();
    MemorySegment target = HeapArrays.fitting(array, bytes);
    device.transfers().toHost(target, address);
  }

  void requireOpen() {
    if (isClosed()) {
      throw new InvalidUsageException(
          "the buffer is closed", "keep buffers open until their last use");
    }
  }

  /**
   * Notes that NCCL knows of it, so that it cannot be closed; its memory is booked on whoever
   * registered it first.
   */
  void hold(MemoryBook.Account account) {
    synchronized (root) {
      requireOpen();
      if (root.registrations++ == 0 && root.block != null) {
        root.block.booking().move(account, MemoryPurpose.WINDOW);
      }
    }
  }

  /** Undoes one {@link #hold}; the last one gives the memory back to the device's account. */
  void release() {
    synchronized (root) {
      if (--root.registrations == 0 && root.block != null) {
        root.block.booking().move(device.account(), MemoryPurpose.USER);
      }
    }
  }

  private synchronized boolean closeUnheld() {
    if (registrations > 0) {
      throw new InvalidUsageException(
          "the buffer is registered with a communicator",
          "close its registrations and windows, or their communicators, before the buffer");
    }
    return CLOSED.compareAndSet(this, false, true);
  }

  @Override
  public boolean isClosed() {
    return (boolean) CLOSED.getOpaque(this) || (boolean) CLOSED.getOpaque(root);
  }

  @Override
  public void close() {
    if ((boolean) CLOSED.getOpaque(this)) {
      return;
    }
    if (root == this) {
      String user = device.streams().userOf(this);
      if (user != null) {
        throw new InvalidUsageException(
            "the buffer is in use by " + user, "synchronize the stream before closing the buffer");
      }
    }
    if (closeUnheld() && block != null) {
      device.heap().free(block);
    }
  }
}
