package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A registered buffer. */
final class CudaRegistration extends CudaRegistered implements NcclCommunicator.Registration {
  private CudaRegistration(CudaRegistrations all, CudaBuffer buffer, MemorySegment handle) {
    super(all, buffer, handle);
  }

  static CudaRegistration create(CudaRegistrations all, CudaBuffer buffer) {
    MemorySegment out = all.calls().rank().handle().out();
    buffer.hold(all.account());
    try {
      all.calls()
          .run(
              "registration",
              comm -> Nccl.ncclCommRegister(comm, buffer.pointer(), buffer.byteSize(), out));
      return new CudaRegistration(all, buffer, out.get(ValueLayout.ADDRESS, 0));
    } catch (RuntimeException e) {
      buffer.release();
      throw e;
    }
  }

  @Override
  int deregister(MemorySegment comm, MemorySegment registration) {
    return Nccl.ncclCommDeregister(comm, registration);
  }

  @Override
  public boolean isActive() {
    return !isClosed() && !handle().equals(MemorySegment.NULL);
  }
}
