package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A buffer that other ranks can reach. */
final class CudaWindow extends CudaRegistered implements NcclCommunicator.Window {
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
}
