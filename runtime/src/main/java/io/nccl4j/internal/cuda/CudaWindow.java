package io.nccl4j.internal.cuda;

import io.nccl4j.NcclCommunicator;
import io.nccl4j.bindings.nccl.Nccl;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A buffer that other ranks can reach. */
final class CudaWindow extends CudaRegistered implements NcclCommunicator.Window {
  private static final int SYMMETRIC = 1;
  private static final int STRICT_ORDERING = 2;

  private final boolean symmetric;

  private CudaWindow(
      CudaCommunicator communicator, CudaBuffer buffer, MemorySegment handle, boolean symmetric) {
    super(communicator, buffer, handle);
    this.symmetric = symmetric;
  }

  static CudaWindow create(
      CudaCommunicator communicator, CudaBuffer buffer, boolean symmetric, boolean strict) {
    int flags = (symmetric ? SYMMETRIC : 0) | (strict ? STRICT_ORDERING : 0);
    MemorySegment out = communicator.nccl().out();
    buffer.hold(communicator.account());
    try {
      CudaCalls.run(
          communicator,
          "window registration",
          comm ->
              Nccl.ncclCommWindowRegister(comm, buffer.pointer(), buffer.byteSize(), out, flags));
      return new CudaWindow(communicator, buffer, out.get(ValueLayout.ADDRESS, 0), symmetric);
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
}
