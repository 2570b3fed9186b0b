package io.nccl4j.internal.diagnose;

import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.BackendInfo.LibraryInfo;
import io.nccl4j.Feature;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.internal.machine.ProcessFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Libraries, driver and what connects GPUs, from what the cuda backend found and the files. */
final class GpuChecks {
  private static final String FABRIC_MANAGER = "Fabric Manager";
  private static final int CAP_SYS_NICE = 23;

  /** The name of a process's command has at most 15 letters. */
  private static final String FABRIC_MANAGER_COMMAND = "nv-fabricmanage";

  private static final List<Feature> OF_DEVICES =
      List.of(Feature.VIRTUAL_MEMORY, Feature.FILE_DESCRIPTORS);

  private final MachineFiles machine;
  private final BackendInfo info;
  private final boolean required;

  /**
   * Checks of the cuda backend.
   *
   * @param required whether it is a failure that it cannot be used
   */
  GpuChecks(MachineFiles machine, BackendInfo info, boolean required) {
    this.machine = machine;
    this.info = info;
    this.required = required;
  }

  List<Check> run() {
    List<Check> checks = new ArrayList<>();
    if (info.isUsable()) {
      checks.add(Check.ok("cuda", "can be used, " + info.devices().size() + " devices"));
    } else if (required || machine.exists("/dev/nvidiactl")) {
      checks.add(Check.fail("cuda", info.problem(), info.remedy()));
    } else {
      checks.add(Check.ok("cuda", "there is no GPU: " + info.problem()));
    }
    info.libraries().stream().filter(LibraryInfo::isFound).forEach(l -> checks.add(library(l)));
    if (info.devices().isEmpty()) {
      return checks;
    }
    for (FeatureInfo found : info.features()) {
      if (OF_DEVICES.contains(found.feature())) {
        String name = found.feature().label();
        checks.add(
            found.isPresent()
                ? Check.ok(name, "on all devices")
                : Check.fail(name, found.reason(), "it needs " + found.needs()));
      }
    }
    info.facts().stream()
        .filter(fact -> fact.name().equals("P2P"))
        .forEach(
            fact ->
                checks.add(
                    fact.value().startsWith("every")
                        ? Check.ok("P2P", fact.value())
                        : Check.warn(
                            "P2P",
                            fact.value() + ": data goes through the host's memory",
                            "see nvidia-smi topo -p2p r; PCI access control (ACS) and a virtual"
                                + " machine can forbid it")));
    multicast(checks);
    numa(checks);
    return checks;
  }

  private static Check library(LibraryInfo library) {
    String found = library.version() + ", " + library.path() + " (" + library.foundBy() + ")";
    if (library.problem().isEmpty()) {
      return Check.ok(library.name(), found);
    }
    return Check.fail(
        library.name(), found + ": " + library.problem(), "use " + library.floor() + " or newer");
  }

  /** NVSwitch machines need a service, which containers do not show. */
  private void multicast(List<Check> checks) {
    checks.add(
        Check.ok(
            "NVLS",
            info.hasFeature(Feature.MULTICAST)
                ? "the devices have multicast"
                : "no multicast: "
                    + info.feature(Feature.MULTICAST)
                        .map(FeatureInfo::reason)
                        .orElse("not known")));
    if (!machine.hasNvSwitches()) {
      checks.add(Check.ok(FABRIC_MANAGER, "not needed, or not visible: no NVSwitch is seen"));
    } else if (runs()) {
      checks.add(Check.ok(FABRIC_MANAGER, "runs"));
    } else if (Container.of(machine) != Container.NONE) {
      checks.add(Check.ok(FABRIC_MANAGER, "not visible from here; it runs outside containers"));
    } else {
      checks.add(
          Check.fail(
              FABRIC_MANAGER,
              "there are NVSwitches, and it does not run: no P2P, no NVLS",
              "systemctl start nvidia-fabricmanager, of exactly the driver's version"));
    }
  }

  private boolean runs() {
    ProcessFiles processes = machine.processes();
    try {
      return processes.ids().stream()
          .anyMatch(pid -> processes.command(pid).equals(FABRIC_MANAGER_COMMAND));
    } catch (IOException e) {
      return false;
    }
  }

  /** Without these calls CUDA makes no host memory, and NCCL falls back to /dev/shm. */
  private void numa(List<Check> checks) {
    boolean filtered = machine.processes().status("Seccomp").equals("2");
    if (!filtered || Container.of(machine) == Container.NONE) {
      return;
    }
    String capabilities = machine.processes().status("CapEff");
    boolean allowed =
        !capabilities.isEmpty()
            && (Long.parseUnsignedLong(capabilities, 16) >> CAP_SYS_NICE & 1) == 1;
    checks.add(
        allowed
            ? Check.ok("NUMA calls", "allowed (SYS_NICE)")
            : Check.warn(
                "NUMA calls",
                "probably forbidden in this container: NCCL then shares memory through /dev/shm",
                "start the container with --cap-add SYS_NICE"));
  }
}
