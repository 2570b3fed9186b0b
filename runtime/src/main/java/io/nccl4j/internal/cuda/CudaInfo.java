package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.DeviceInfo;
import io.nccl4j.BackendInfo.Fact;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.BackendInfo.LibraryInfo;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.GpuLibrary;
import io.nccl4j.bindings.LibraryNotFound;
import io.nccl4j.bindings.LibraryNotFound.Attempt;
import io.nccl4j.bindings.LibraryResult;
import io.nccl4j.bindings.LoadedLibrary;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.memory.MemorySupport;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.NcclJoin;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;

/**
 * What the cuda backend found: each part on its own, so that one that is missing does not hide the
 * others.
 */
public final class CudaInfo {
  private static final int TEXT_BYTES = 256;
  private static final Path IMEX_CHANNELS = Path.of("/dev/nvidia-caps-imex-channels");

  private CudaInfo() {}

  /** Loads what is there and asks it; throws nothing because of what is missing. */
  public static BackendInfo collect() {
    String problem = "";
    String remedy = "";
    try {
      CudaLibraries.require();
    } catch (BackendUnavailableException e) {
      problem = e.problem();
      remedy = e.remedy();
    }
    LibraryInfo nccl = library(GpuLibrary.NCCL);
    LibraryInfo cuda = library(GpuLibrary.CUDA);
    if (problem.indexOf('\n') >= 0) {
      // The places that were tried are the library's.
      problem = cuda.isFound() ? nccl.problem() : cuda.problem();
    }
    List<Fact> facts = new ArrayList<>();
    List<Integer> handles = devices(cuda, facts);
    List<DeviceInfo> devices = new ArrayList<>();
    for (int i = 0; i < handles.size(); i++) {
      devices.add(device(i, handles.get(i)));
    }
    List<FeatureInfo> features = new ArrayList<>();
    if (nccl.isFound() && !nccl.version().isEmpty()) {
      for (Features feature : Features.values()) {
        features.add(ofLibrary(feature, nccl));
      }
    }
    if (!handles.isEmpty()) {
      for (MemoryFeature feature : MemoryFeature.values()) {
        features.add(ofDevices(feature, handles));
      }
    }
    return new BackendInfo(
        Backend.CUDA, problem, remedy, List.of(nccl, cuda), devices, features, facts);
  }

  private static LibraryInfo library(GpuLibrary library) {
    boolean isNccl = library == GpuLibrary.NCCL;
    String headers =
        isNccl
            ? CudaLibraries.versionText(Nccl.NCCL_VERSION_CODE())
            : CudaLibraries.cudaText(Cuda.CUDA_VERSION());
    int oldest = isNccl ? CudaLibraries.OLDEST_NCCL : CudaLibraries.OLDEST_DRIVER;
    String floor = isNccl ? CudaLibraries.versionText(oldest) : CudaLibraries.cudaText(oldest);
    String file = isNccl ? "libnccl.so.2" : "libcuda.so.1";
    LibraryResult result = library.load();
    return switch (result) {
      case LibraryNotFound missing ->
          new LibraryInfo(
              file, "", "", "", headers, floor, reason(missing), places(missing.attempts()));
      case LoadedLibrary loaded -> {
        String version = "";
        String problem = "";
        try {
          int number = library.version();
          version = isNccl ? CudaLibraries.versionText(number) : CudaLibraries.cudaText(number);
          problem = number < oldest ? "older than " + floor : "";
        } catch (IllegalStateException e) {
          problem = String.valueOf(e.getMessage());
        }
        yield new LibraryInfo(
            file,
            loaded.path(),
            rule(library, loaded.source()),
            version,
            headers,
            floor,
            problem,
            places(loaded.passedOver()));
      }
    };
  }

  private static String rule(GpuLibrary library, LoadedLibrary.Source source) {
    return switch (source) {
      case SETTING ->
          "setting "
              + (System.getProperty(library.property(), "").isEmpty()
                  ? library.variable()
                  : library.property());
      case LD_LIBRARY_PATH -> "LD_LIBRARY_PATH";
      case SYSTEM -> "system loader";
      case WELL_KNOWN -> "well-known place";
    };
  }

  private static List<String> places(List<Attempt> attempts) {
    return attempts.stream().map(a -> label(a.source()) + ": " + a).toList();
  }

  private static String label(LoadedLibrary.Source source) {
    return source.name().toLowerCase(Locale.ROOT).replace('_', ' ');
  }

  /** One line: what was wrong with a file that is there, or how many places there were. */
  private static String reason(LibraryNotFound missing) {
    List<Attempt> attempts = missing.attempts();
    String head = "cannot load " + missing.name();
    for (Attempt attempt : attempts) {
      boolean there = Files.exists(Path.of(attempt.place()));
      if (attempts.size() == 1 || there || attempt.reason().startsWith("native access")) {
        return head + ": " + attempt;
      }
    }
    return head + ": it is in none of " + attempts.size() + " places";
  }

  /** The devices' handles; none where CUDA does not start. */
  private static List<Integer> devices(LibraryInfo cuda, List<Fact> facts) {
    if (!cuda.isFound() || cuda.version().isEmpty()) {
      return List.of();
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      Driver.check(Cuda.cuInit(0), "cuInit");
      Driver.check(Cuda.cuDeviceGetCount(out), "cuDeviceGetCount");
      int count = out.get(ValueLayout.JAVA_INT, 0);
      List<Integer> handles = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        Driver.check(Cuda.cuDeviceGet(out, i), "cuDeviceGet");
        handles.add(out.get(ValueLayout.JAVA_INT, 0));
      }
      String visible = System.getenv("CUDA_VISIBLE_DEVICES");
      if (visible != null) {
        facts.add(new Fact("CUDA_VISIBLE_DEVICES", visible));
      }
      if (count > 1) {
        facts.add(new Fact("P2P", reachable(handles, out)));
      }
      return handles;
    } catch (NcclException e) {
      facts.add(new Fact("devices", String.valueOf(e.getMessage())));
      return List.of();
    }
  }

  /** Which pairs of devices cannot use each other's memory. */
  private static String reachable(List<Integer> handles, MemorySegment out) {
    List<String> separate = new ArrayList<>();
    for (int i = 0; i < handles.size(); i++) {
      for (int j = 0; j < handles.size(); j++) {
        if (i != j) {
          Driver.check(
              Cuda.cuDeviceCanAccessPeer(out, handles.get(i), handles.get(j)),
              "cuDeviceCanAccessPeer");
          if (out.get(ValueLayout.JAVA_INT, 0) == 0) {
            separate.add(i + "-" + j);
          }
        }
      }
    }
    return separate.isEmpty()
        ? "every pair of " + handles.size() + " devices"
        : "not " + String.join(", ", separate);
  }

  private static DeviceInfo device(int ordinal, int handle) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(TEXT_BYTES);
      MemorySegment total = arena.allocate(ValueLayout.JAVA_LONG);
      boolean named = Cuda.cuDeviceGetName(text, TEXT_BYTES, handle) == Driver.SUCCESS;
      String name = named ? text.getString(0) : "";
      boolean located = Cuda.cuDeviceGetPCIBusId(text, TEXT_BYTES, handle) == Driver.SUCCESS;
      boolean measured = Cuda.cuDeviceTotalMem_v2(total, handle) == Driver.SUCCESS;
      return new DeviceInfo(
          ordinal,
          name,
          Gpu.attribute(handle, Cuda.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR())
              + "."
              + Gpu.attribute(handle, Cuda.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR()),
          measured ? total.get(ValueLayout.JAVA_LONG, 0) : -1,
          freeBytes(handle),
          located ? text.getString(0).toLowerCase(Locale.ROOT) : "");
    }
  }

  /** Asked in the device's context, which is made for it and given back. */
  private static long freeBytes(int handle) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      if (Cuda.cuDevicePrimaryCtxRetain(out, handle) != Driver.SUCCESS) {
        return -1;
      }
      try {
        if (Cuda.cuCtxPushCurrent_v2(out.get(ValueLayout.ADDRESS, 0)) != Driver.SUCCESS) {
          return -1;
        }
        MemorySegment free = arena.allocate(ValueLayout.JAVA_LONG);
        MemorySegment total = arena.allocate(ValueLayout.JAVA_LONG);
        int result = Cuda.cuMemGetInfo_v2(free, total);
        Driver.check(Cuda.cuCtxPopCurrent_v2(MemorySegment.NULL), "cuCtxPopCurrent");
        return result == Driver.SUCCESS ? free.get(ValueLayout.JAVA_LONG, 0) : -1;
      } finally {
        Driver.check(Cuda.cuDevicePrimaryCtxRelease_v2(handle), "cuDevicePrimaryCtxRelease");
      }
    }
  }

  private static FeatureInfo ofLibrary(Features feature, LibraryInfo nccl) {
    boolean present = feature.isPresent(GpuLibrary.NCCL.version());
    String reason = present ? "" : "NCCL is " + nccl.version();
    boolean allowed = "1".equals(System.getenv(NcclJoin.SHARED_GPU));
    if (present && feature == Features.SHARED_GPU && !allowed) {
      reason = "if the process is started with " + NcclJoin.SHARED_GPU + "=1";
    }
    return new FeatureInfo(feature.feature(), present, feature.needs(), reason);
  }

  private static FeatureInfo ofDevices(MemoryFeature feature, List<Integer> handles) {
    int attribute = MemorySupport.attribute(feature);
    List<Integer> without =
        IntStream.range(0, handles.size())
            .filter(i -> Gpu.attribute(handles.get(i), attribute) <= 0)
            .boxed()
            .toList();
    boolean unknown = without.stream().anyMatch(i -> Gpu.attribute(handles.get(i), attribute) < 0);
    String reason = "";
    if (unknown) {
      reason = "the driver does not know the attribute";
    } else if (without.size() == handles.size()) {
      reason = handles.size() == 1 ? "the device says no" : "no device has it";
    } else if (!without.isEmpty()) {
      reason = "not on devices " + without;
    } else if (feature == MemoryFeature.FABRIC_HANDLES && !Files.isDirectory(IMEX_CHANNELS)) {
      return new FeatureInfo(
          feature.feature(),
          false,
          feature.needs(),
          "there is no IMEX channel in " + IMEX_CHANNELS);
    }
    return new FeatureInfo(feature.feature(), without.isEmpty(), feature.needs(), reason);
  }
}
