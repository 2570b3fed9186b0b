package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.internal.bootstrap.MeetingAddress;
import java.util.Map;
import java.util.Optional;

/**
 * Where the processes of a job meet if their launcher says on which machine rank 0 is, and they
 * share a secret, but nobody named an address.
 */
final class LauncherAddress {
  private static final String MASTER = "MASTER_ADDR";
  private static final String MASTER_PORT = "MASTER_PORT";
  private static final String STEP_NODES = "SLURM_STEP_NODELIST";
  private static final String JOB_NODES = "SLURM_JOB_NODELIST";

  /** Below the ports that Linux gives to connections, so that only other jobs can have taken it. */
  private static final int FIRST_SLURM_PORT = 20_000;

  private static final int SLURM_PORTS = 12_000;

  /** Steps of a job in a row, before they come to the ports of the next one. */
  private static final int STEPS = 101;

  private LauncherAddress() {}

  /** Whether a launcher says where rank 0 is. */
  static boolean isKnownTo(String launcher, Map<String, String> environment) {
    return switch (launcher) {
      case "torchrun" -> isIn(environment, MASTER) && isIn(environment, MASTER_PORT);
      case "slurm" -> isIn(environment, STEP_NODES) || isIn(environment, JOB_NODES);
      default -> false;
    };
  }

  /**
   * The address; empty if the launcher does not know it, or there is no secret.
   *
   * @throws InvalidArgumentException if a variable cannot be understood
   * @throws io.nccl4j.InvalidUsageException if the secret could be guessed
   */
  static Optional<MeetingAddress> of(String launcher, Map<String, String> environment) {
    if (!MeetingAddress.hasSecret(environment) || !isKnownTo(launcher, environment)) {
      return Optional.empty();
    }
    return Optional.of(launcher.equals("slurm") ? slurm(environment) : torchrun(environment));
  }

  /** The port after the one at which torchrun's own rendezvous listens. */
  private static MeetingAddress torchrun(Map<String, String> environment) {
    int port = (int) number(environment, MASTER_PORT) + 1;
    if (port <= 1 || port > MeetingAddress.MOST_PORT) {
      throw new InvalidArgumentException(
          MASTER_PORT + " is " + (port - 1) + ", and no TCP port follows it",
          "choose another, or set " + MeetingAddress.VARIABLE);
    }
    return new MeetingAddress(
        text(environment, MASTER), port, MeetingAddress.secret(environment), MASTER);
  }

  /** Rank 0 is on the first machine; all processes come to the same port by the same numbers. */
  private static MeetingAddress slurm(Map<String, String> environment) {
    String variable = isIn(environment, STEP_NODES) ? STEP_NODES : JOB_NODES;
    String host = firstHost(variable, text(environment, variable));
    long step = number(environment, "SLURM_JOB_ID") * STEPS + number(environment, "SLURM_STEP_ID");
    int port = FIRST_SLURM_PORT + (int) Math.floorMod(step, (long) SLURM_PORTS);
    return new MeetingAddress(host, port, MeetingAddress.secret(environment), variable);
  }

  /** The first host of a list: {@code node003} of {@code node[003-007,9],gpu1}. */
  static String firstHost(String variable, String list) {
    StringBuilder host = new StringBuilder();
    boolean inBrackets = false;
    boolean passing = false;
    for (char c : list.toCharArray()) {
      if (c == ',' && !inBrackets) {
        break;
      }
      if (c == '[' == inBrackets && (c == '[' || c == ']')) {
        throw unknown(variable, list);
      }
      if (c == '[' || c == ']') {
        inBrackets = c == '[';
        passing = false;
      } else {
        passing |= inBrackets && (c == ',' || c == '-');
        host.append(passing ? "" : c);
      }
    }
    if (inBrackets || host.isEmpty()) {
      throw unknown(variable, list);
    }
    return host.toString();
  }

  private static InvalidArgumentException unknown(String variable, String list) {
    return new InvalidArgumentException(
        variable + " is '" + list + "', which is no list of machines",
        "set " + MeetingAddress.VARIABLE);
  }

  private static boolean isIn(Map<String, String> environment, String variable) {
    return !text(environment, variable).isEmpty();
  }

  private static String text(Map<String, String> environment, String variable) {
    return environment.getOrDefault(variable, "").strip();
  }

  private static long number(Map<String, String> environment, String variable) {
    String text = text(environment, variable);
    try {
      return Long.parseLong(text);
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  variable + " is '" + text + "'",
                  "use a number, or set " + MeetingAddress.VARIABLE)
              .causedBy(e);
    }
  }
}
