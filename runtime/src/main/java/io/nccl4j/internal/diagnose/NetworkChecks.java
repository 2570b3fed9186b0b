package io.nccl4j.internal.diagnose;

import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.Feature;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bindings.Pmix;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.internal.machine.LocalAddress;
import io.nccl4j.internal.machine.MachineFiles;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;

/** What ranks need that have others on other machines. */
final class NetworkChecks {
  private static final String ENGINE = "NCCL4J_NETWORK";
  private static final String OFF = "off";
  private static final String UCX = "ucx";

  private final MachineFiles machine;
  private final BackendInfo host;
  private final Supplier<String> pmixProblem;
  private final Supplier<String> ucxProblem;

  /**
   * Checks of a machine.
   *
   * @param host what the host backend found
   * @param pmixProblem why libpmix cannot be used, as {@link Pmix#unavailableReason}
   * @param ucxProblem why libucp cannot be used, as {@link Ucp#unavailableReason}
   */
  NetworkChecks(
      MachineFiles machine,
      BackendInfo host,
      Supplier<String> pmixProblem,
      Supplier<String> ucxProblem) {
    this.machine = machine;
    this.host = host;
    this.pmixProblem = pmixProblem;
    this.ucxProblem = ucxProblem;
  }

  List<Check> run() {
    List<Check> checks = new ArrayList<>();
    host.feature(Feature.NETWORK_RANKS).ifPresent(found -> checks.add(network(found)));
    checks.add(address());
    checks.add(congestion());
    if (!machine.variable("PMIX_NAMESPACE").isEmpty()) {
      checks.add(pmix());
    }
    if (machine.variable(ENGINE).strip().equals(UCX)) {
      checks.add(ucx());
    }
    return checks;
  }

  private Check network(FeatureInfo found) {
    String wanted = machine.variable(ENGINE).strip();
    if (wanted.equals(OFF)) {
      return Check.ok("network", OFF + " by " + ENGINE + ": all ranks must be on one machine");
    }
    return found.isPresent()
        ? Check.ok("network", "ranks may be on several machines")
        : Check.warn(
            "network",
            found.reason() + "; all ranks must be on one machine",
            "add " + found.needs());
  }

  private Check address() {
    String name = "network address";
    Optional<InetAddress> wanted;
    try {
      wanted = LocalAddress.wanted(machine.environment());
    } catch (InvalidArgumentException e) {
      return Check.fail(name, e.problem(), e.remedy());
    }
    InetAddress address = wanted.orElseGet(LocalAddress::ofDefaultRoute);
    String found = address.getHostAddress() + " (" + LocalAddress.interfaceOf(address) + ")";
    if (!address.isLoopbackAddress()) {
      return Check.ok(
          name, found + (wanted.isPresent() ? "" : ", unless rank 0 is reached from another"));
    }
    return wanted.isPresent()
        ? Check.warn(
            name,
            found + ": only this machine reaches it",
            "name another interface or address in " + LocalAddress.VARIABLE)
        : Check.ok(name, "none that other machines reach");
  }

  private Check congestion() {
    String name = "congestion control";
    String algorithm = machine.congestionControl();
    if (algorithm.isEmpty()) {
      return Check.ok(name, "not known");
    }
    return algorithm.startsWith("bbr")
        ? Check.warn(
            name,
            algorithm + ": slow between near machines that exchange much at once",
            Container.of(machine).set(MachineFiles.CONGESTION_CONTROL + "=cubic"))
        : Check.ok(name, algorithm);
  }

  private Check ucx() {
    String problem = ucxProblem.get();
    if (!problem.isEmpty()) {
      return Check.fail(
          "libucp",
          problem,
          "install UCX 1.14 or newer, set "
              + Ucp.VARIABLE
              + " to the path of its libucp, or unset "
              + ENGINE);
    }
    String defect = Ucp.defect();
    return defect.isEmpty()
        ? Check.ok("libucp", "found: UCX carries data between machines")
        : Check.warn("libucp", defect, "install UCX 1.14 or newer");
  }

  private Check pmix() {
    String problem = pmixProblem.get();
    return problem.isEmpty()
        ? Check.ok("libpmix", "found: the launcher passes on unique ids")
        : Check.warn(
            "libpmix",
            problem + "; ranks on several machines do not meet through the launcher",
            "install it, name its file in "
                + Pmix.VARIABLE
                + ", or set NCCL4J_RENDEZVOUS and NCCL4J_SECRET");
  }
}
