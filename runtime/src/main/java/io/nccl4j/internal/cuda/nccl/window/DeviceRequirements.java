package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.ncclDevCommRequirements;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclProperties;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import java.lang.foreign.MemorySegment;

/** What a device communicator is to hold, as NCCL takes it, and whether NCCL can. */
final class DeviceRequirements {
  private DeviceRequirements() {}

  /** Throws unless the loaded NCCL knows the layout of these headers. */
  static void requireKnown(NcclDeviceRequirements asked) {
    int loaded = CudaLibraries.ncclVersion();
    if (asked.headers() > loaded) {
      throw new InvalidUsageException(
          "the kernels were compiled with the headers of NCCL "
              + CudaLibraries.versionText(asked.headers())
              + ", but NCCL "
              + CudaLibraries.versionText(loaded)
              + " is loaded, which does not know their layout",
          "install NCCL "
              + CudaLibraries.versionText(asked.headers())
              + " or newer, or compile the kernels with older headers");
    }
  }

  /** Throws what NCCL would refuse with an error that ends the communicator. */
  static void requireSupported(
      NcclDeviceRequirements asked, NcclProperties properties, String communicator) {
    if (!properties.deviceApiSupport()) {
      throw new InvalidUsageException(
          "communicator "
              + communicator
              + " has no symmetric memory, which device communicators"
              + " need",
          "see NcclProperties.deviceApiSupport(): the GPUs must reach each other's memory, and"
              + " NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE not be 0");
    }
    if (asked.lsaMultimem() && !properties.multimemSupport()) {
      throw new InvalidUsageException(
          "communicator " + communicator + " has no multicast (NVLS)",
          "see NcclProperties.multimemSupport(): NVSwitch is needed, and NCCL_NVLS_ENABLE not 0");
    }
    NcclProperties.GinType gin =
        asked.ginConnection() == NcclDeviceRequirements.GinConnection.RAIL
            ? properties.railedGinType()
            : properties.ginType();
    if (asked.usesGin() && gin == NcclProperties.GinType.NONE) {
      throw new InvalidUsageException(
          "kernels of communicator " + communicator + " cannot use the network (GIN)",
          "see NcclProperties.ginType(): it needs an InfiniBand network, and NCCL_GIN_ENABLE not"
              + " 0");
    }
  }

  /** Writes them as {@code ncclDevCommRequirements}. */
  static void write(NcclDeviceRequirements asked, MemorySegment to) {
    NcclStructs.fillDeviceRequirements(to, asked.headers());
    ncclDevCommRequirements.lsaMultimem(to, asked.lsaMultimem());
    ncclDevCommRequirements.barrierCount(to, asked.barriers());
    ncclDevCommRequirements.lsaBarrierCount(to, asked.lsaBarriers());
    ncclDevCommRequirements.railGinBarrierCount(to, asked.railGinBarriers());
    ncclDevCommRequirements.ginContextCount(to, asked.ginContexts());
    ncclDevCommRequirements.ginSignalCount(to, asked.ginSignals());
    ncclDevCommRequirements.ginCounterCount(to, asked.ginCounters());
    ncclDevCommRequirements.ginConnectionType(to, asked.ginConnection().ordinal());
    ncclDevCommRequirements.ginExclusiveContexts(to, asked.ginExclusiveContexts());
    ncclDevCommRequirements.ginQueueDepth(to, asked.ginQueueDepth());
    asked.ginTrafficClass().ifPresent(value -> ncclDevCommRequirements.ginTrafficClass(to, value));
    ncclDevCommRequirements.worldGinBarrierCount(to, asked.worldGinBarriers());
  }
}
