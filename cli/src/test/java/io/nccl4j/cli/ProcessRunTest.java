package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Runs of several processes on the host backend. */
@Tag("process")
@Timeout(240)
@Tag("parallel")
class ProcessRunTest {
  private static final String SHORT = "allreduce --backend host -b 8 -e 128 -f 4 -n 5 -w 0";
  // 131072 sizes take far longer than any test, which ends it.
  private static final String LONG =
      "allreduce --backend host -b 8 -e 1M -i 8 -n 1000 -w 0 --procs 2";

  private static final String SECRET_FILE = "NCCL4J_SECRET_FILE";

  @TempDir Path folder;

  private Jvm start(String line) throws IOException {
    return Jvm.start(folder, "parent", Map.of(), line);
  }

  private static void checkTable(Jvm jvm, int ranks) throws IOException {
    assertEquals(3, jvm.rows().size(), jvm.outLines().toString());
    assertEquals("0", jvm.rows().getLast().strip().split(" +")[12]);
    assertEquals(
        ranks, jvm.outLines().stream().filter(line -> line.startsWith("#  Rank ")).count());
    assertTrue(jvm.outLines().contains("# Out of bounds values : 0 OK"));
  }

  @Test
  void twoProcessesRunTogether() throws Exception {
    Path json = folder.resolve("run.json");
    try (Jvm parent = start(SHORT + " --procs 2 -J " + json)) {
      assertEquals(0, parent.await(), () -> read(parent.err()));
      checkTable(parent, 2);
      assertEquals(List.of(), parent.errLines());
      assertFalse(Files.exists(folder.resolve("run.json.0")));
      assertTrue(Files.readString(json).contains("\"end_time\""));
      assertFalse(Files.readString(json).contains("NCCL4J_UNIQUE_ID="));
    }
  }

  @Test
  void selfTestsRunInProcesses() throws Exception {
    try (Jvm parent = start("selftest fifo-leak -n 50 --procs 2")) {
      assertEquals(0, parent.await(), parent::said);
      assertEquals(3, parent.rows().size(), parent.outLines().toString());
      assertEquals("# OK: nothing is lost", parent.outLines().getLast());
    }
  }

  @Test
  void processesThreadsAndGroupsMultiply() throws Exception {
    try (Jvm parent = start(SHORT + " --procs 2 -t 2 -g 2")) {
      assertEquals(0, parent.await(), () -> read(parent.err()));
      checkTable(parent, 8);
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      return e.toString();
    }
  }

  @Test
  void aKilledChildEndsTheRun() throws Exception {
    try (Jvm parent = start(LONG)) {
      List<ProcessHandle> children = parent.awaitChildren(2);
      parent.awaitLine("           8");
      long pid = rankOne(parent);
      ProcessHandle.of(pid).orElseThrow().destroyForcibly();
      int code = parent.await();
      assertEquals(128 + 9, code, read(parent.err()));
      assertTrue(
          parent
              .errLines()
              .contains("nccl4j: rank 1 (process " + pid + ") ended with signal 9 (KILL)"),
          read(parent.err()));
      Jvm.awaitEnd(children, 10_000);
    }
  }

  private static long rankOne(Jvm parent) throws IOException {
    String line =
        parent.outLines().stream()
            .filter(text -> text.startsWith("#  Rank  1"))
            .findFirst()
            .orElseThrow();
    return Long.parseLong(line.split(" +")[6]);
  }

  @Test
  void noChildOutlivesAKilledParent() throws Exception {
    try (Jvm parent = start(LONG)) {
      List<ProcessHandle> children = parent.awaitChildren(2);
      parent.awaitLine("           8");
      parent.process().destroyForcibly();
      Jvm.awaitEnd(children, 10_000);
    }
  }

  @Tag("long")
  @Test
  void noChildOutlivesAParentKilledEarly() throws Exception {
    try (Jvm parent = start(LONG)) {
      List<ProcessHandle> children = parent.awaitChildren(2);
      parent.process().destroyForcibly();
      Jvm.awaitEnd(children, 10_000);
    }
  }

  @Test
  void aSignalEndsAll() throws Exception {
    assertEndsAll("INT", 2);
  }

  @Tag("long")
  @Test
  void anotherSignalEndsAll() throws Exception {
    assertEndsAll("TERM", 15);
  }

  private void assertEndsAll(String signal, int number) throws Exception {
    assumeFalse(
        Jvm.isIgnored(number), "this process ignores SIG" + signal + ", and so do its children");
    try (Jvm parent = start(LONG)) {
      List<ProcessHandle> children = parent.awaitChildren(2);
      parent.awaitLine("           8");
      String pid = Long.toString(parent.process().pid());
      assertEquals(0, new ProcessBuilder("kill", "-" + signal, pid).start().waitFor());
      assertEquals(128 + number, parent.await());
      Jvm.awaitEnd(children, 10_000);
    }
  }

  @Tag("long")
  @Test
  void ranksMayBeStartedByAnybody() throws Exception {
    String id = UniqueId.create(Backend.HOST).toString();
    together(Map.of("NCCL4J_UNIQUE_ID", id));
  }

  @Test
  void ranksMayMeetByTheNameOfTheirJob() throws Exception {
    together(Map.of("NCCL4J_JOB", folder.toString()));
  }

  @Tag("long")
  @Test
  void ranksMayMeetThroughAFile() throws Exception {
    Path file = folder.resolve("id");
    together(Map.of("NCCL4J_UNIQUE_ID_FILE", file.toString()));
    assertFalse(Files.exists(file));
  }

  /** As on two machines: they meet over TCP, and exchange data over it. */
  @Test
  void processesOfTwoHostsRunTogether() throws Exception {
    Path secret = Files.writeString(folder.resolve("secret"), "as long as it has to be");
    Path json = folder.resolve("run.json");
    List<String> said =
        together(
            Map.of("NCCL4J_RENDEZVOUS", "tcp://localhost:" + freePort(), SECRET_FILE, "" + secret),
            " -J " + json);
    assertTrue(said.contains("# Hosts 2: ranks 0 | 1"), said::toString);
    assertTrue(said.contains("# Network: netty (TCP by epoll) on lo, 127.0.0.1"), said::toString);
    JsonNode root = new ObjectMapper().readTree(json.toFile());
    assertEquals(2, root.get("hosts").asInt());
    assertEquals("lo", root.at("/network/interface").asText());

    Path alone = folder.resolve("alone.json");
    assertEquals(0, Run.ofLine(Map.of(), SHORT + " -t 2 -J " + alone).code());
    Run compared = Run.of("compare", alone.toString(), json.toString());
    assertEquals(3, compared.code(), compared::toString);
    assertTrue(compared.err().contains("[ranks 0-1, ranks 0 | 1]"), compared::toString);
  }

  @Test
  void anAddressWithoutASecretIsRefused() throws Exception {
    Map<String, String> environment =
        Map.of(
            "NCCL4J_RENDEZVOUS", "tcp://localhost:29400", "NCCL4J_RANK", "0", "NCCL4J_NRANKS", "2");
    try (Jvm one = Jvm.start(folder, "one", environment, SHORT)) {
      assertEquals(3, one.await(), () -> read(one.err()));
      String said = String.join("\n", one.errLines());
      assertTrue(said.contains("no secret") && said.contains("NCCL4J_SECRET"), said);
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  private void together(Map<String, String> meeting) throws Exception {
    together(meeting, "");
  }

  private List<String> together(Map<String, String> meeting, String options) throws Exception {
    Map<String, String> first = new HashMap<>(meeting);
    first.putAll(Map.of("NCCL4J_RANK", "0", "NCCL4J_NRANKS", "2", "NCCL4J_HOSTID", "a"));
    Map<String, String> second = new HashMap<>(meeting);
    second.putAll(Map.of("NCCL4J_RANK", "1", "NCCL4J_NRANKS", "2", "NCCL4J_HOSTID", "b"));
    try (Jvm one = Jvm.start(folder, "one", first, SHORT + options);
        Jvm two = Jvm.start(folder, "two", second, SHORT)) {
      assertEquals(0, one.await(), () -> read(one.err()));
      assertEquals(0, two.await(), () -> read(two.err()));
      checkTable(one, 2);
      assertEquals(List.of(), two.outLines());
      return one.outLines();
    }
  }
}
