package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.bootstrap.TwoNamespaces;
import io.nccl4j.internal.cuda.StandIn;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * The command line on two machines: two network namespaces, which a cable of their own connects.
 * What runs in one reaches the other only by TCP.
 */
@Timeout(300)
@Tag("parallel")
class TwoMachinesTest {
  private static final int PORT = 29_400;
  private static final String ALL_RIGHT = "# Out of bounds values : 0 OK";

  private static final Map<String, String> UCX =
      Map.of("NCCL4J_NETWORK", "ucx", "NCCL4J_NETWORK_SECURITY", "trusted");

  private static @Nullable TwoNamespaces made;

  @TempDir Path folder;

  @BeforeAll
  static void connect() throws Exception {
    made = TwoNamespaces.require("cli", "10.213.77");
  }

  @AfterAll
  static void disconnect() throws Exception {
    if (made != null) {
      made.remove();
    }
  }

  private static TwoNamespaces machines() {
    return Objects.requireNonNull(made);
  }

  /** A command on both machines, on each with its ranks. */
  private void run(Map<String, String> more, String line, String... expected) throws Exception {
    List<Jvm> running = new ArrayList<>();
    try {
      for (int machine = 0; machine < 2; machine++) {
        Map<String, String> environment = new HashMap<>(more);
        environment.put("NCCL4J_RENDEZVOUS", "tcp://" + machines().address(0) + ":" + PORT);
        environment.put("NCCL4J_SECRET", "of the test with two machines");
        environment.put("JOB_COMPLETION_INDEX", "" + machine);
        // NCCL would take both for one machine, since they are.
        environment.put("NCCL_HOSTID", machines().namespace(machine));
        environment.put("NCCL4J_NRANKS", line.contains("-t 2") ? "4" : "2");
        List<String> inside = machines().inside(machine);
        running.add(Jvm.start(folder, "machine" + machine, environment, inside, line));
      }
      for (Jvm machine : running) {
        assertEquals(0, machine.await(), machine::said);
      }
      String said = running.getFirst().said();
      for (String text : expected) {
        assertTrue(said.contains(text), () -> text + " is missing in " + said);
      }
    } finally {
      running.forEach(Jvm::close);
    }
  }

  @Test
  void allReduce() throws Exception {
    run(
        Map.of(),
        "allreduce -t 2 -b 8 -e 2M -f 64 -n 2 -w 1",
        "# Hosts 2: ranks 0-1 | 2-3",
        "# Network: netty (TCP by epoll) on " + machines().cable(0) + ", " + machines().address(0),
        ALL_RIGHT);
  }

  @Test
  void allToAllThroughTls() throws Exception {
    run(
        Map.of("NCCL4J_NETWORK_SECURITY", "tls"),
        "alltoall -t 2 -b 32 -e 256K -f 64 -n 2 -w 0",
        "netty (TCP by epoll, TLS)",
        ALL_RIGHT);
  }

  @Test
  void reduceScatterOnUcx() throws Exception {
    requireUcx();
    run(UCX, "reducescatter -t 2 -b 32 -e 2M -f 64 -n 2 -w 0", "# Network: ucx ", ALL_RIGHT);
  }

  /** Here NCCL carries the data; its unique id comes the same way. */
  @Test
  void cudaMeetsByTheSameRendezvous() throws Exception {
    run(
        StandIn.require().childEnvironment(1),
        "allreduce --backend cuda -b 8 -e 4K -f 512 -n 2 -w 0",
        ALL_RIGHT);
  }

  static List<String> programs() {
    return List.of(
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
        "hypercube");
  }

  @Tag("long")
  @ParameterizedTest
  @MethodSource("programs")
  void everyProgram(String program) throws Exception {
    for (String security : List.of("auth", "tls")) {
      runLong(program, Map.of("NCCL4J_NETWORK_SECURITY", security));
    }
  }

  @Tag("long")
  @ParameterizedTest
  @MethodSource("programs")
  void everyProgramOnUcx(String program) throws Exception {
    requireUcx();
    runLong(program, UCX);
  }

  private void runLong(String program, Map<String, String> network) throws Exception {
    run(network, program + " -t 2 -b 32 -e 8M -f 64 -n 2 -w 0", ALL_RIGHT);
  }

  private static void requireUcx() {
    String reason = Ucp.unavailableReason();
    if (!reason.isEmpty()) {
      System.out.println("UCX is not tested: " + reason);
    }
    assumeTrue(reason.isEmpty(), reason);
  }
}
