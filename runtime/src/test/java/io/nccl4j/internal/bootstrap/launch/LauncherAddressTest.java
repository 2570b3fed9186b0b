package io.nccl4j.internal.bootstrap.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.bootstrap.MeetingAddress;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Where ranks meet by what torchrun and Slurm say, and a secret. */
@Tag("parallel")
class LauncherAddressTest {
  private static final String SECRET = "0123456789abcdef";

  private static Map<String, String> torchrun(String port) {
    return new HashMap<>(
        Map.of("MASTER_ADDR", "node0", "MASTER_PORT", port, "NCCL4J_SECRET", SECRET));
  }

  private static Map<String, String> slurm(String nodes, long job, long step) {
    return new HashMap<>(
        Map.of(
            "SLURM_JOB_NODELIST",
            nodes,
            "SLURM_JOB_ID",
            Long.toString(job),
            "SLURM_STEP_ID",
            Long.toString(step),
            "NCCL4J_SECRET",
            SECRET));
  }

  private static MeetingAddress address(String launcher, Map<String, String> environment) {
    return LauncherAddress.of(launcher, environment).orElseThrow();
  }

  private static void fails(
      Class<? extends NcclException> type,
      String part,
      String launcher,
      Map<String, String> environment) {
    String message =
        assertThrows(type, () -> LauncherAddress.of(launcher, environment)).getMessage();
    assertTrue(message.contains(part), message);
  }

  @Test
  void torchrunsRanksMeetAtThePortAfterItsOwn() {
    assertEquals("tcp://node0:29501", address("torchrun", torchrun("29500")).toString());
    assertEquals("tcp://node0:65535", address("torchrun", torchrun("65534")).toString());
    fails(
        InvalidArgumentException.class,
        "MASTER_PORT is 65535, and no TCP port follows it; choose another, or set"
            + " NCCL4J_RENDEZVOUS",
        "torchrun",
        torchrun("65535"));
    fails(
        InvalidArgumentException.class, "MASTER_PORT is '29500a'", "torchrun", torchrun("29500a"));
  }

  @ParameterizedTest
  @CsvSource({
    "node7, node7",
    "'node1,node0', node1",
    "'node[003-007,9],gpu1', node003",
    "'gpu1,node[003-007,9]', gpu1",
    "'node[9,1-4]', node9",
    "'rack[2-3]n[01-12]-ib,x', rack2n01-ib",
    "'[10-12]', 10",
    "'node-a-[1-2].cluster', node-a-1.cluster"
  })
  void slurmsRanksMeetOnTheFirstMachine(String list, String host) {
    assertEquals(host, address("slurm", slurm(list, 77, 0)).host());
  }

  @ParameterizedTest
  @ValueSource(strings = {"node[1-2", "node]1", "node[[1]]", ",node1", "[],a"})
  void whatIsNoListOfMachinesIsRefused(String list) {
    fails(
        InvalidArgumentException.class,
        "SLURM_JOB_NODELIST is '" + list + "', which is no list of machines",
        "slurm",
        slurm(list, 77, 0));
  }

  @Test
  void theStepsMachinesCountBeforeTheJobs() {
    Map<String, String> environment = slurm("node[1-4]", 77, 1);
    environment.put("SLURM_STEP_NODELIST", "node[3-4]");
    assertEquals("node3", address("slurm", environment).host());
  }

  /** Jobs and steps that follow each other do not meet on one machine. */
  @Test
  void jobsAndStepsOfSlurmHavePortsOfTheirOwn() {
    Set<Integer> ports = new HashSet<>();
    for (long job = 4_000_000_000L; job < 4_000_000_010L; job++) {
      for (int step = 0; step < 10; step++) {
        int port = address("slurm", slurm("node1", job, step)).port();
        assertEquals(port, address("slurm", slurm("node1", job, step)).port());
        assertTrue(port >= 20_000 && port < 32_000, () -> "port " + port);
        assertTrue(ports.add(port), "job " + job + ", step " + step);
      }
    }
    fails(
        InvalidArgumentException.class,
        "SLURM_JOB_ID is ''; use a number, or set NCCL4J_RENDEZVOUS",
        "slurm",
        Map.of("SLURM_STEP_NODELIST", "node1", "NCCL4J_SECRET", SECRET));
  }

  @Test
  void nobodyMeetsWithoutAGoodSecret() {
    Map<String, String> environment = torchrun("29500");
    environment.put("NCCL4J_SECRET", "short");
    fails(
        InvalidUsageException.class,
        "the secret in NCCL4J_SECRET has 5 bytes",
        "torchrun",
        environment);
    environment.remove("NCCL4J_SECRET");
    assertEquals(Optional.empty(), LauncherAddress.of("torchrun", environment));
  }

  @Test
  void otherLaunchersDoNotSay() {
    Map<String, String> environment = slurm("node1", 77, 0);
    environment.putAll(torchrun("29500"));
    assertEquals(Optional.empty(), LauncherAddress.of("mpich", environment));
    environment.remove("MASTER_ADDR");
    assertEquals(Optional.empty(), LauncherAddress.of("torchrun", environment));
    environment.put("SLURM_JOB_NODELIST", " ");
    assertEquals(Optional.empty(), LauncherAddress.of("slurm", environment));
  }
}
