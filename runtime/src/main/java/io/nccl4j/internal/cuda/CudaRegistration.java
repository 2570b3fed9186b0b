package io.nccl4j.internal.cuda;

import io.nccl4j.NcclCommunicator;
import io.nccl4j.bindings.nccl.Nccl;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A registered buffer. */
final class CudaRegistration extends CudaRegistered implements NcclCommunicator.Registration {
  private CudaRegistration(CudaCommunicator communicator, CudaBuffer buffer, MemorySegment handle) {
    super(communicator, buffer, handle);
  }

  static CudaRegistration create(CudaCommunicator communicator, CudaBuffer buffer) {
    MemorySegment out = communicator.nccl().out();
    buffer.hold(communicator.account());
    try {
      CudaCalls.run(
          communicator,
          "registration",
          comm -> Nccl.ncclCommRegister(comm, buffer.pointer(), buffer.byteSize(), out));
      return new CudaRegistration(communicator, buffer, out.get(ValueLayout.ADDRESS, 0));
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
