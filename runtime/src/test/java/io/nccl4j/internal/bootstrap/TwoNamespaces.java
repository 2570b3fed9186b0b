package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assumptions.abort;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Two machines: two network namespaces, which a cable of their own connects. What runs in one
 * reaches the other only by TCP. Making them needs root and iproute2.
 */
public final class TwoNamespaces {
  /** An address that no machine has. */
  private static final String NOWHERE = "02:00:00:00:00:99";

  /** At most 12 characters, since an interface has at most 15. */
  private final String name;

  private final String subnet;

  /**
   * Makes them, or skips the test if that cannot be done here.
   *
   * @param prefix of their names, three characters
   * @param subnet the first three numbers of their addresses
   */
  public static TwoNamespaces require(String prefix, String subnet) throws InterruptedException {
    try {
      return new TwoNamespaces(prefix + ProcessHandle.current().pid() % 100_000, subnet);
    } catch (IOException e) {
      String reason =
          "network namespaces cannot be made, which needs root and iproute2: " + e.getMessage();
      System.out.println(reason);
      return abort(reason);
    }
  }

  private TwoNamespaces(String name, String subnet) throws IOException, InterruptedException {
    this.name = name;
    this.subnet = subnet;
    boolean made = false;
    try {
      ip("netns add " + namespace(0));
      ip("netns add " + namespace(1));
      ip("link add " + cable(0) + " type veth peer name " + cable(1));
      for (int machine = 0; machine < 2; machine++) {
        String in = "-n " + namespace(machine) + " ";
        ip("link set " + cable(machine) + " netns " + namespace(machine));
        ip(in + "addr add " + address(machine) + "/24 dev " + cable(machine));
        ip(in + "link set lo up");
        ip(in + "link set " + cable(machine) + " up");
      }
      made = true;
    } finally {
      if (!made) {
        remove();
      }
    }
  }

  /** The name of a namespace. */
  public String namespace(int machine) {
    return name + (machine == 0 ? "a" : "b");
  }

  /** The interface of a machine. */
  public String cable(int machine) {
    return namespace(machine) + "c";
  }

  /** The address of a machine. */
  public String address(int machine) {
    return subnet + "." + (machine + 1);
  }

  /** What a command begins with that runs on a machine. */
  public List<String> inside(int machine) {
    return List.of("ip", "netns", "exec", namespace(machine));
  }

  /** From now on packets vanish in both directions, and nobody is told. */
  public void cut() throws IOException, InterruptedException {
    for (int machine = 0; machine < 2; machine++) {
      ip(
          "-n "
              + namespace(machine)
              + " neigh replace "
              + address(1 - machine)
              + " lladdr "
              + NOWHERE
              + " nud permanent dev "
              + cable(machine));
    }
  }

  /** Packets get through again. */
  public void mend() throws IOException, InterruptedException {
    for (int machine = 0; machine < 2; machine++) {
      ip("-n " + namespace(machine) + " neigh flush nud permanent dev " + cable(machine));
    }
  }

  /** Runs a command on a machine; what it says. */
  public String run(int machine, String command) throws IOException, InterruptedException {
    return ip("netns exec " + namespace(machine) + " " + command);
  }

  private static String ip(String arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of("ip"));
    command.addAll(List.of(arguments.split(" ")));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IOException("ip " + arguments + ": " + said.strip());
    }
    return said;
  }

  /** Removes what there is of them. */
  public void remove() throws InterruptedException {
    for (int machine = 0; machine < 2; machine++) {
      try {
        ip("netns del " + namespace(machine));
      } catch (IOException e) {
        // It may not be there.
        System.out.println(e.getMessage());
      }
    }
  }
}
