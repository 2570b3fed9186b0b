package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.memory.KernelArgument;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.OptionalLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's device communicator of one rank. NCCL may write its structure until the rank is closed.
 */
final class CudaDeviceCommunicator implements NcclDeviceCommunicator, KernelArgument {
  private static final Logger LOG = LogManager.getLogger(CudaDeviceCommunicator.class);

  private final CudaRegistrations all;
  private final NcclDeviceRequirements requirements;
  private final MemorySegment structure;
  private volatile boolean closed;

  private CudaDeviceCommunicator(
      CudaRegistrations all, NcclDeviceRequirements requirements, MemorySegment structure) {
    this.all = all;
    this.requirements = requirements;
    this.structure = structure;
  }

  static CudaDeviceCommunicator create(CudaRegistrations all, NcclDeviceRequirements requirements) {
    Arena arena = all.calls().rank().handle().arena();
    MemorySegment structure =
        arena.allocate(NcclStructs.deviceCommunicatorBytes(requirements.headers()), Long.BYTES);
    MemorySegment asked = arena.allocate(NcclStructs.DEVICE_REQUIREMENTS_BYTES, Long.BYTES);
    DeviceRequirements.write(requirements, asked);
    all.calls()
        .run(
            "creation of a device communicator",
            comm -> Nccl.ncclDevCommCreate(comm, asked, structure));
    return new CudaDeviceCommunicator(all, requirements, structure);
  }

  @Override
  public NcclCommunicator communicator() {
    return all.owner();
  }

  @Override
  public NcclDeviceRequirements requirements() {
    return requirements;
  }

  @Override
  public int lsaRank() {
    return NcclStructs.lsaRank(structure, requirements.headers());
  }

  @Override
  public int lsaSize() {
    return NcclStructs.lsaSize(structure, requirements.headers());
  }

  @Override
  public MemorySegment structure() {
    requireUsable();
    return structure.asReadOnly();
  }

  @Override
  public OptionalLong multimemAddress(NcclCommunicator.@Nullable Window window, long byteOffset) {
    requireUsable();
    CudaWindow own = all.requireWindow(window, "multimemAddress");
    MemorySegment multimem = NcclStructs.lsaMultimem(structure, requirements.headers());
    return multimem.get(ValueLayout.JAVA_LONG, 0) == 0
        ? OptionalLong.empty()
        : own.multimemAddress(byteOffset, multimem);
  }

  // ---- as an argument of a kernel

  @Override
  public Device device() {
    return all.owner().device();
  }

  @Override
  public MemorySegment value() {
    return structure;
  }

  @Override
  public boolean isStructure() {
    return true;
  }

  @Override
  public String describe() {
    return "a device communicator of "
        + structure.byteSize()
        + " bytes, made for the headers of NCCL "
        + CudaLibraries.versionText(requirements.headers());
  }

  @Override
  public void requireUsable() {
    if (closed) {
      throw new InvalidUsageException(
          "the device communicator is closed",
          "keep it open, and its communicator, until the last launch with it");
    }
    all.requireAlive();
  }

  /** For graphs, which ask before each launch: also if NCCL has taken its memory away. */
  @Override
  public boolean isClosed() {
    return closed || all.haveEnded();
  }

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole;
  }

  // ---- its end

  @Override
  public void close() {
    if (!closed) {
      all.closeAlone("close of a device communicator", this, this::end);
    }
  }

  /** Ends it; nothing uses it any more. */
  synchronized void end() {
    if (closed) {
      return;
    }
    closed = true;
    all.remove(this);
    try {
      if (!all.haveEnded()) {
        all.calls()
            .run("end of a device communicator", comm -> Nccl.ncclDevCommDestroy(comm, structure));
      }
    } catch (NcclException e) {
      LOG.warn("NCCL has not ended a device communicator of {}", all.owner().name(), e);
    }
  }

  @Override
  public String toString() {
    return "device communicator of " + all.owner();
  }
}
