package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.KernelArgument;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.spi.Resource;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.OptionalLong;
import java.util.function.ToIntFunction;

/** A buffer that other ranks can reach. */
final class CudaWindow extends CudaRegistered implements NcclCommunicator.Window, KernelArgument {
  private static final int SYMMETRIC = 1;
  private static final int STRICT_ORDERING = 2;

  private final boolean symmetric;

  private CudaWindow(
      CudaRegistrations all, CudaBuffer buffer, MemorySegment handle, boolean symmetric) {
    super(all, buffer, handle);
    this.symmetric = symmetric;
  }

  static CudaWindow create(
      CudaRegistrations all, CudaBuffer buffer, boolean symmetric, boolean strict) {
    int flags = (symmetric ? SYMMETRIC : 0) | (strict ? STRICT_ORDERING : 0);
    MemorySegment out = all.calls().rank().handle().out();
    buffer.hold(all.account());
    try {
      all.calls()
          .run(
              "window registration",
              comm ->
                  Nccl.ncclCommWindowRegister(
                      comm, buffer.pointer(), buffer.byteSize(), out, flags));
      return new CudaWindow(all, buffer, out.get(ValueLayout.ADDRESS, 0), symmetric);
    } catch (RuntimeException e) {
      buffer.release();
      throw e;
    }
  }

  /** Whether one-sided operations can read a range of memory through it. */
  boolean covers(long address, long bytes) {
    long start = buffer().address();
    return symmetric
        && isSupported()
        && address >= start
        && address + bytes <= start + buffer().byteSize();
  }

  @Override
  int deregister(MemorySegment comm, MemorySegment registration) {
    return Nccl.ncclCommWindowDeregister(comm, registration);
  }

  @Override
  public boolean isSupported() {
    return !handle().equals(MemorySegment.NULL);
  }

  // ---- as kernels see it

  @Override
  public OptionalLong peerAddress(int rank, long byteOffset) {
    requireRank(rank, all().owner().nranks(), "peerAddress");
    return address(
        "peerAddress",
        byteOffset,
        out -> Nccl.ncclGetPeerDevicePointer(handle(), byteOffset, rank, out));
  }

  @Override
  public long lsaAddress(int lsaRank, long byteOffset) {
    Features.DEVICE_API.require();
    requireUsable();
    requireRank(lsaRank, all().lsaSize(), "lsaAddress");
    return address(
            "lsaAddress",
            byteOffset,
            out -> Nccl.ncclGetLsaDevicePointer(handle(), byteOffset, lsaRank, out))
        .orElseThrow();
  }

  @Override
  public OptionalLong multimemAddress(long byteOffset) {
    return address(
        "multimemAddress",
        byteOffset,
        out -> Nccl.ncclGetLsaMultimemDevicePointer(handle(), byteOffset, out));
  }

  /** The same for the ranks of a device communicator, by its handle of multicast. */
  OptionalLong multimemAddress(long byteOffset, MemorySegment multimem) {
    return address(
        "multimemAddress",
        byteOffset,
        out -> Nccl.ncclGetMultimemDevicePointer(handle(), byteOffset, multimem, out));
  }

  /** NCCL's answer; empty if it has no address. */
  private OptionalLong address(String call, long byteOffset, ToIntFunction<MemorySegment> ask) {
    Features.DEVICE_API.require();
    requireUsable();
    if (byteOffset < 0 || byteOffset >= buffer().byteSize()) {
      throw new InvalidArgumentException(
          call + ": the offset is " + byteOffset + " bytes, the window has " + buffer().byteSize(),
          "pass an offset inside the window");
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      all().calls().query(call, comm -> ask.applyAsInt(out));
      long address = out.get(ValueLayout.ADDRESS, 0).address();
      return address == 0 ? OptionalLong.empty() : OptionalLong.of(address);
    }
  }

  private static void requireRank(int rank, int ranks, String call) {
    if (rank < 0 || rank >= ranks) {
      throw new InvalidArgumentException(
          call + ": the rank is " + rank, "pass 0 to " + (ranks - 1));
    }
  }

  @Override
  public Device device() {
    return buffer().device();
  }

  @Override
  public MemorySegment value() {
    return handle();
  }

  @Override
  public boolean isStructure() {
    return false;
  }

  @Override
  public String describe() {
    return "a window";
  }

  @Override
  public void requireUsable() {
    if (isClosed() || !isSupported()) {
      throw new InvalidUsageException(
          "the window is " + (isClosed() ? "closed" : "not supported here"),
          "keep windows open, and see isSupported()");
    }
    all().requireAlive();
  }

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole || Resource.isPart(buffer(), whole);
  }
}
