package io.nccl4j.internal.cuda.driver;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.bindings.GpuLibrary;
import io.nccl4j.bindings.LibraryNotFound;
import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** NCCL and the CUDA driver as this process has them, checked before the first use. */
public final class CudaLibraries {
  /** The oldest NCCL: cuMem by default, so that its memory does not deadlock. */
  public static final int OLDEST_NCCL = 21900;

  /** The oldest driver: CUDA 12.1, which has multicast. */
  public static final int OLDEST_DRIVER = 12010;

  private static final int NO_DEVICE = 100;

  private static final Map<String, Boolean> SYMBOLS = new ConcurrentHashMap<>();

  private CudaLibraries() {}

  /** The driver's own part: devices can be counted only after {@code cuInit}. */
  private static final class Loaded {
    static final int NCCL_VERSION = GpuLibrary.NCCL.version();
    static final int DRIVER_VERSION = GpuLibrary.CUDA.version();
    static final int INIT = Cuda.cuInit(0);

    /** Minus an error where they cannot be counted. */
    static final int DEVICES = INIT == Driver.SUCCESS ? countDevices() : 0;

    private static int countDevices() {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
        int result = Cuda.cuDeviceGetCount(out);
        return result == Driver.SUCCESS ? out.get(ValueLayout.JAVA_INT, 0) : -result;
      }
    }
  }

  /**
   * Loads and checks both.
   *
   * @throws BackendUnavailableException that says what is missing or too old
   */
  public static void require() {
    requireFile(
        GpuLibrary.CUDA, "install NVIDIA's driver (in a container, start it with --gpus all)");
    requireFile(
        GpuLibrary.NCCL, "install NCCL (package libnccl2, or pip install nvidia-nccl-cu13)");
    int driver = version(GpuLibrary.CUDA);
    if (driver < OLDEST_DRIVER) {
      throw new BackendUnavailableException(
          "the driver supports CUDA "
              + cudaText(driver)
              + ", nccl4j needs "
              + cudaText(OLDEST_DRIVER)
              + " or newer",
          "update NVIDIA's driver to 530 or newer");
    }
    int nccl = version(GpuLibrary.NCCL);
    if (nccl < OLDEST_NCCL) {
      throw new BackendUnavailableException(
          "NCCL is "
              + versionText(nccl)
              + ", nccl4j needs "
              + versionText(OLDEST_NCCL)
              + " or newer",
          "install a newer NCCL, or name one with " + GpuLibrary.NCCL.variable());
    }
    requireDevices();
  }

  private static void requireFile(GpuLibrary library, String remedy) {
    if (library.load() instanceof LibraryNotFound missing) {
      throw new BackendUnavailableException(
          missing.message(),
          remedy + ", or name the file in " + library.variable() + " or -D" + library.property());
    }
  }

  private static int version(GpuLibrary library) {
    try {
      return library.version();
    } catch (IllegalStateException e) {
      throw (BackendUnavailableException)
          new BackendUnavailableException(
                  String.valueOf(e.getMessage()),
                  library == GpuLibrary.CUDA
                      ? "install NVIDIA's driver"
                      : "name another file with " + library.variable())
              .causedBy(e);
    }
  }

  private static void requireDevices() {
    if (Loaded.INIT != Driver.SUCCESS && Loaded.INIT != NO_DEVICE) {
      throw unusable("cuInit", Loaded.INIT);
    }
    if (Loaded.DEVICES < 0) {
      throw unusable("cuDeviceGetCount", -Loaded.DEVICES);
    }
    if (Loaded.DEVICES == 0) {
      throw new BackendUnavailableException(
          "there is no GPU that CUDA can use", "see nvidia-smi and CUDA_VISIBLE_DEVICES");
    }
  }

  private static BackendUnavailableException unusable(String call, int error) {
    return new BackendUnavailableException(
        call + " failed with " + Driver.text(error, true) + ": " + Driver.text(error, false),
        "check that nvidia-smi works here; the driver's kernel and user parts must match");
  }

  public static int ncclVersion() {
    return Loaded.NCCL_VERSION;
  }

  public static int driverVersion() {
    return Loaded.DRIVER_VERSION;
  }

  public static int deviceCount() {
    return Loaded.DEVICES;
  }

  /** Whether NCCL has a function. */
  public static boolean hasNccl(String function) {
    return SYMBOLS.computeIfAbsent(function, GpuLibrary.NCCL::has);
  }

  /** For example {@code 2.30.7}. */
  public static String versionText(int version) {
    return version / 10000 + "." + version / 100 % 100 + "." + version % 100;
  }

  /** For example {@code 13.0}. */
  public static String cudaText(int version) {
    return version / 1000 + "." + version / 10 % 100;
  }
}
