package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.internal.cuda.StandIn;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The command line on two machines: two network namespaces, which a cable of their own connects.
 * What runs in one reaches the other only by TCP.
 */
@Tag("parallel")
@Timeout(300)
class TwoMachinesTest {
  private static final int PORT = 29_400;
  private static final String NAME = "nccl4j" + ProcessHandle.current().pid() % 100_000;
  private static final String SUBNET = "10.213.77.";

  @TempDir Path folder;

  private static String namespace(int machine) {
    return NAME + (machine == 0 ? "a" : "b");
  }

  /** An interface has at most 15 characters. */
  private static String cable(int machine) {
    return namespace(machine) + "c";
  }

  @BeforeAll
  static void connect() throws Exception {
    String reason = "";
    try {
      ip("netns add " + namespace(0));
      ip("netns add " + namespace(1));
      ip("link add " + cable(0) + " type veth peer name " + cable(1));
      for (int machine = 0; machine < 2; machine++) {
        String in = "-n " + namespace(machine) + " ";
        ip("link set " + cable(machine) + " netns " + namespace(machine));
        ip(in + "addr add " + SUBNET + (machine + 1) + "/24 dev " + cable(machine));
        ip(in + "link set lo up");
        ip(in + "link set " + cable(machine) + " up");
      }
    } catch (IOException e) {
      reason = e.getMessage();
    }
    if (!reason.isEmpty()) {
      disconnect();
      System.out.println(
          "network namespaces cannot be made for a test, which needs root and iproute2: " + reason);
    }
    assumeTrue(reason.isEmpty(), reason);
  }

  @AfterAll
  static void disconnect() throws Exception {
    for (int machine = 0; machine < 2; machine++) {
      try {
        ip("netns del " + namespace(machine));
      } catch (IOException e) {
        // It may not be there.
        System.out.println(e.getMessage());
      }
    }
  }

  private static void ip(String arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of("ip"));
    command.addAll(List.of(arguments.split(" ")));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IOException("ip " + arguments + ": " + said.strip());
    }
  }

  /** A command on both machines, on each with its ranks. */
  private void run(Map<String, String> more, String line, String... expected) throws Exception {
    List<Jvm> machines = new ArrayList<>();
    try {
      for (int machine = 0; machine < 2; machine++) {
        Map<String, String> environment = new HashMap<>(more);
        environment.put("NCCL4J_RENDEZVOUS", "tcp://" + SUBNET + "1:" + PORT);
        environment.put("NCCL4J_SECRET", "of the test with " + NAME);
        environment.put("JOB_COMPLETION_INDEX", "" + machine);
        // NCCL would take both for one machine, since they are.
        environment.put("NCCL_HOSTID", namespace(machine));
        environment.put("NCCL4J_NRANKS", line.contains("-t 2") ? "4" : "2");
        List<String> inside = List.of("ip", "netns", "exec", namespace(machine));
        machines.add(Jvm.start(folder, "machine" + machine, environment, inside, line));
      }
      for (Jvm machine : machines) {
        assertEquals(0, machine.await(), machine::said);
      }
      String said = machines.getFirst().said();
      for (String text : expected) {
        assertTrue(said.contains(text), () -> text + " is missing in " + said);
      }
    } finally {
      machines.forEach(Jvm::close);
    }
  }

  @Test
  void allReduce() throws Exception {
    run(
        Map.of(),
        "allreduce -t 2 -b 8 -e 2M -f 64 -n 2 -w 1",
        "# Hosts 2: ranks 0-1 | 2-3",
        "# Network: netty (TCP) on " + cable(0) + ", " + SUBNET + "1",
        "# Out of bounds values : 0 OK");
  }

  @Test
  void allToAllThroughTls() throws Exception {
    run(
        Map.of("NCCL4J_NETWORK_SECURITY", "tls"),
        "alltoall -t 2 -b 32 -e 256K -f 64 -n 2 -w 1",
        "netty (TCP, TLS)",
        "# Out of bounds values : 0 OK");
  }

  /** Here NCCL carries the data; its unique id comes the same way. */
  @Test
  void cudaMeetsByTheSameRendezvous() throws Exception {
    StandIn libraries = StandIn.require();
    run(
        Map.of(
            "NCCL4J_CUDA_LIBRARY", libraries.cuda().toString(),
            "NCCL4J_NCCL_LIBRARY", libraries.nccl().toString(),
            "STANDIN_CUDA_DEVICES", "1"),
        "allreduce --backend cuda -b 8 -e 4K -f 512 -n 2 -w 1",
        "# Out of bounds values : 0 OK");
  }

  @Tag("long")
  @ParameterizedTest
  @ValueSource(
      strings = {
        "allreduce",
        "reduce",
        "broadcast",
        "allgather",
        "reducescatter",
        "alltoall",
        "alltoallv",
        "gather",
        "scatter",
        "sendrecv",
        "hypercube"
      })
  void everyProgram(String program) throws Exception {
    for (String security : List.of("auth", "tls")) {
      run(
          Map.of("NCCL4J_NETWORK_SECURITY", security),
          program + " -t 2 -b 32 -e 8M -f 64 -n 2 -w 1",
          "# Out of bounds values : 0 OK");
    }
  }
}
