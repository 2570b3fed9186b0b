package io.nccl4j.internal.diagnose;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Setting;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.internal.machine.MachineFiles;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;

/** The variables that are set: known, in this release, harmless. */
final class VariableChecks {
  private static final String OWN_PREFIX = "NCCL4J_";

  /** What nccl4j and its launcher read, besides the settings of communicators. */
  private static final List<String> OWN =
      List.of(
          "NCCL4J_CUDA_LIBRARY",
          "NCCL4J_DEVICE_MEMORY_BUDGET",
          "NCCL4J_HOSTID",
          "NCCL4J_JAVA_HOME",
          "NCCL4J_JAVA_OPTS",
          "NCCL4J_JOB",
          "NCCL4J_LAUNCHER",
          "NCCL4J_LOCAL_NRANKS",
          "NCCL4J_LOCAL_RANK",
          "NCCL4J_LOG_LEVEL",
          "NCCL4J_NCCL_LIBRARY",
          "NCCL4J_NETWORK",
          "NCCL4J_NETWORK_INTERFACE",
          "NCCL4J_NETWORK_PORTS",
          "NCCL4J_NETWORK_SECURITY",
          "NCCL4J_NRANKS",
          "NCCL4J_PMIX_LIBRARY",
          "NCCL4J_PROCS_CHILD",
          "NCCL4J_RANK",
          "NCCL4J_RENDEZVOUS",
          "NCCL4J_RENDEZVOUS_DIR",
          "NCCL4J_SECRET",
          "NCCL4J_SECRET_FILE",
          "NCCL4J_TERMINAL",
          "NCCL4J_TURNS",
          "NCCL4J_UCX_LIBRARY",
          "NCCL4J_UNIQUE_ID",
          "NCCL4J_UNIQUE_ID_FILE");

  /** Read by plugins, whatever comes after. */
  private static final List<String> OF_PLUGINS =
      List.of("NCCL_INSPECTOR_", "NCCL_PROFILE_", "NCCL_TUNER_", "NCCL_OFI_", "NCCL_FASTRAK_");

  private final MachineFiles machine;
  private final int release;

  /**
   * Checks the variables of a machine.
   *
   * @param release of NCCL, as {@code ncclGetVersion} counts; 0 if it is not known
   */
  VariableChecks(MachineFiles machine, int release) {
    this.machine = machine;
    this.release = release;
  }

  List<Check> run() {
    List<Check> checks = new ArrayList<>();
    NcclSettings settings = new NcclSettings(machine);
    if (!settings.files().isEmpty()) {
      checks.add(Check.ok("NCCL files", "read: " + String.join(", ", settings.files())));
    }
    String named = settings.value("NCCL_CONF_FILE");
    if (!named.isEmpty() && !settings.files().contains(named)) {
      checks.add(
          Check.warn(
              "NCCL_CONF_FILE",
              "there is no " + named + ", and ~/.nccl.conf is not read",
              "correct it or unset it"));
    }
    settings.all().forEach(setting -> checks.add(check(setting)));
    if (settings.all().isEmpty()) {
      checks.add(Check.ok("NCCL variables", "none is set"));
    }
    cuda(checks);
    own(checks);
    return checks;
  }

  private Check check(Setting setting) {
    String name = setting.name();
    String found = setting.value() + " (" + setting.source() + ")";
    NcclVariable variable = NcclVariable.all().get(name);
    if (variable == null) {
      if (OF_PLUGINS.stream().anyMatch(name::startsWith)) {
        return Check.ok(name, found + ": read by a plugin");
      }
      String like =
          NcclVariable.nearest(name, NcclVariable.all().keySet())
              .map(near -> "did you mean " + near + "? Or unset it")
              .orElse("unset it, unless a plugin reads it");
      return Check.warn(name, found + ": no release of NCCL reads it", like);
    }
    if (variable.removed() > 0 && (release == 0 || release >= variable.removed())) {
      return Check.warn(
          name,
          found + ": no longer read since NCCL " + NcclVariable.release(variable.removed()),
          variable.text().contains("; now ")
              ? "use " + variable.text().substring(variable.text().indexOf("; now ") + 6)
              : "unset it");
    }
    if (release > 0 && release < variable.since()) {
      return Check.warn(
          name,
          found + ": not read by NCCL " + NcclVariable.release(release),
          "it exists from NCCL " + NcclVariable.release(variable.since()) + " on");
    }
    if (variable.isDangerous(setting.value())) {
      return Check.warn(name, found + ": " + variable.danger(), "unset it unless you need it");
    }
    return Check.ok(name, found + ": " + variable.text());
  }

  private void cuda(List<Check> checks) {
    String blocking = machine.variable("CUDA_LAUNCH_BLOCKING");
    if (!blocking.isEmpty() && !blocking.equals("0")) {
      checks.add(
          Check.fail(
              "CUDA_LAUNCH_BLOCKING",
              blocking + ": a launch waits for its kernel, and so for ranks not launched yet",
              "unset it"));
    }
    String visible = machine.environment().get("CUDA_VISIBLE_DEVICES");
    if (visible != null) {
      boolean none = visible.isBlank() || visible.startsWith("-");
      checks.add(
          none
              ? Check.warn("CUDA_VISIBLE_DEVICES", "hides all GPUs", "unset it to use them")
              : Check.ok("CUDA_VISIBLE_DEVICES", visible));
    }
  }

  private void own(List<Check> checks) {
    TreeSet<String> known = new TreeSet<>(OWN);
    try {
      for (Setting setting : CommunicatorConfig.defaults().settings()) {
        known.add(OWN_PREFIX + setting.name().toUpperCase(Locale.ROOT).replace('-', '_'));
        if (!setting.source().equals("default")) {
          checks.add(Check.ok(setting.name(), setting.value() + " (" + setting.source() + ")"));
        }
      }
    } catch (InvalidArgumentException e) {
      checks.add(Check.fail("nccl4j settings", e.problem(), e.remedy()));
      return;
    }
    for (String name : new TreeSet<>(machine.environment().keySet())) {
      if (name.startsWith(OWN_PREFIX) && !known.contains(name)) {
        String remedy =
            NcclVariable.nearest(name, known)
                .map(near -> "did you mean " + near + "?")
                .orElse("unset it");
        checks.add(Check.warn(name, "nccl4j does not read it", remedy));
      }
    }
  }
}
