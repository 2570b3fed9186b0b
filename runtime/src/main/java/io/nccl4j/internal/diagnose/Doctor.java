package io.nccl4j.internal.diagnose;

import io.nccl4j.BackendInfo;
import io.nccl4j.Feature;
import io.nccl4j.bindings.GpuLibrary;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LoadedLibrary;
import io.nccl4j.bindings.Pmix;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.diagnose.Diagnosis;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.internal.machine.MachineFiles;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Goes through all checks. */
public final class Doctor {
  private static final int OLDEST_JAVA = 22;

  private Doctor() {}

  /**
   * What is wrong with this machine.
   *
   * @param host what the host backend found
   * @param cuda what the cuda backend found; null if nothing of it is to be loaded
   * @param cudaRequired whether it is a failure that it cannot be used
   * @param shmBytes what NCCL needs at least in {@code /dev/shm} with a rank on each GPU
   * @param uniqueIds what killed jobs have left in the folders for unique ids
   */
  public static Diagnosis examine(
      BackendInfo host,
      @Nullable BackendInfo cuda,
      boolean cudaRequired,
      long shmBytes,
      Check uniqueIds) {
    MachineFiles machine = MachineFiles.here();
    List<Check> checks = new ArrayList<>();
    java(checks, host, cudaRequired);
    if (cuda != null) {
      checks.addAll(new GpuChecks(machine, cuda, cudaRequired).run());
    }
    boolean gpus = cuda != null && !cuda.devices().isEmpty();
    List<SharedMemorySegment> segments = new SharedMemorySegments(machine).list();
    checks.addAll(new SystemChecks(machine, gpus, shmBytes).run(segments));
    checks.addAll(
        new NetworkChecks(machine, host, Pmix::unavailableReason, Ucp::unavailableReason).run());
    checks.add(uniqueIds);
    checks.addAll(new VariableChecks(machine, cuda == null ? 0 : release(cuda)).run());
    return new Diagnosis(checks, segments);
  }

  /** Removes the files in {@code /dev/shm} that are proven to be unused, and returns them. */
  public static List<SharedMemorySegment> removeUnused() {
    return new SharedMemorySegments(MachineFiles.here()).removeUnused();
  }

  /** NCCL's release; 0 if there is none. */
  private static int release(BackendInfo cuda) {
    boolean known = !cuda.libraries().isEmpty() && !cuda.libraries().getFirst().version().isEmpty();
    return known && GpuLibrary.NCCL.load() instanceof LoadedLibrary ? GpuLibrary.NCCL.version() : 0;
  }

  private static void java(List<Check> checks, BackendInfo host, boolean nativeRequired) {
    Runtime.Version version = Runtime.version();
    String home =
        " (" + System.getProperty("java.vendor") + "), " + System.getProperty("java.home");
    checks.add(
        version.feature() >= OLDEST_JAVA
            ? Check.ok("Java", version + home)
            : Check.fail("Java", version + home, "use a JDK " + OLDEST_JAVA + " or newer"));
    if (Libc.isAvailable()) {
      checks.add(Check.ok("native access", "granted"));
    } else {
      String reason = Libc.unavailableReason();
      String remedy = "start Java with " + Libc.nativeAccessOption() + ", on Linux";
      checks.add(
          nativeRequired
              ? Check.fail("native access", reason, remedy)
              : Check.warn("native access", reason + "; ranks can only be threads", remedy));
    }
    host.feature(Feature.VECTOR_REDUCTIONS)
        .ifPresent(
            found ->
                checks.add(
                    found.isPresent()
                        ? Check.ok("Vector API", "used for reductions")
                        : Check.warn(
                            "Vector API", found.reason(), "start Java with " + found.needs())));
  }
}
