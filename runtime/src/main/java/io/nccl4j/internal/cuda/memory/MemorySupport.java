package io.nccl4j.internal.cuda.memory;

import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.GpuLibrary;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.driver.Gpu;
import org.jspecify.annotations.Nullable;

/** What a GPU can do with its memory. */
public final class MemorySupport {
  private static final String MULTICAST_CALL = "cuMulticastCreate";

  private MemorySupport() {}

  /** What the device says of it, by the driver's attribute. */
  public static int attribute(MemoryFeature feature) {
    return switch (feature) {
      case VIRTUAL_MEMORY -> Cuda.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED();
      case FILE_DESCRIPTORS ->
          Cuda.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED();
      case FABRIC_HANDLES -> Cuda.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED();
      case MULTICAST -> Cuda.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED();
    };
  }

  /** Whether a device has it, and why not. */
  public static FeatureInfo of(Gpu gpu, @Nullable MemoryFeature feature) {
    if (feature == null) {
      throw new InvalidArgumentException("the feature is null", "pass a MemoryFeature");
    }
    String reason =
        reason(
            feature,
            feature != MemoryFeature.MULTICAST || GpuLibrary.CUDA.has(MULTICAST_CALL),
            Gpu.attribute(gpu.handle(), attribute(feature)),
            CudaLibraries.deviceCount());
    return new FeatureInfo(feature.feature(), reason.isEmpty(), feature.needs(), reason);
  }

  /**
   * Why it is absent; nothing if it is there.
   *
   * @param says the attribute; −1 if the driver does not know it
   */
  static String reason(MemoryFeature feature, boolean hasCall, int says, int devices) {
    if (!hasCall) {
      return "the driver has no " + MULTICAST_CALL;
    }
    if (says <= 0) {
      return says < 0 ? "the driver does not know the attribute" : "the device says no";
    }
    if (feature == MemoryFeature.MULTICAST && devices < 2) {
      return "this process sees one device, and multicast joins several";
    }
    return "";
  }

  /**
   * Throws unless a device has it.
   *
   * @throws InvalidUsageException that says why not
   */
  static void require(Gpu gpu, MemoryFeature feature) {
    FeatureInfo found = of(gpu, feature);
    if (!found.isPresent()) {
      throw new InvalidUsageException(
          gpu + " has no " + feature.label() + ": " + found.reason(), "it needs " + found.needs());
    }
  }
}
