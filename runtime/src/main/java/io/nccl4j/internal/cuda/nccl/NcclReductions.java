package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.Scalars;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/**
 * Reductions that NCCL made for what is being launched: they are destroyed after that. The
 * submitting thread's, under the handle's guard.
 */
public final class NcclReductions {
  private static final int HOST_IMMEDIATE = 1;
  private static final int DEVICE = 0;

  private final NcclHandle handle;
  private final MemorySegment out;

  /** Room for one element in host memory. */
  private final MemorySegment scalar;

  private int[] created = new int[4];
  private int count;

  NcclReductions(NcclHandle handle) {
    this.handle = handle;
    this.out = handle.arena().allocate(ValueLayout.JAVA_INT);
    this.scalar = handle.arena().allocate(Long.BYTES, Long.BYTES);
  }

  boolean isEmpty() {
    return count == 0;
  }

  /** Makes the scaled sum of a work; NCCL's result. */
  int create(Work work) {
    DeviceBuffer onDevice = work.op.deviceScalar();
    if (onDevice == null) {
      Scalars.write(scalar, work.type, work.op);
    }
    int result =
        Nccl.ncclRedOpCreatePreMulSum(
            out,
            onDevice == null ? scalar : ((CudaBuffer) onDevice).pointer(),
            work.type.ordinal(),
            onDevice == null ? HOST_IMMEDIATE : DEVICE,
            handle.get());
    if (result == NcclResults.SUCCESS) {
      if (count == created.length) {
        created = Arrays.copyOf(created, 2 * count);
      }
      created[count++] = out.get(ValueLayout.JAVA_INT, 0);
    }
    return result;
  }

  /** NCCL's number of the one made last. */
  int latest() {
    return created[count - 1];
  }

  /** Destroys all; returns NCCL's last result that is a failure, if there is one. */
  public int release() {
    int failed = NcclResults.SUCCESS;
    for (int i = 0; i < count && !handle.isGone(); i++) {
      int result = Nccl.ncclRedOpDestroy(created[i], handle.get());
      failed = NcclResults.isFailure(result) ? result : failed;
    }
    count = 0;
    return failed;
  }
}
