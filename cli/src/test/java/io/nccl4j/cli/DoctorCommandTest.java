package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.internal.cuda.StandIn;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The doctor's command: its table, its JSON, its exit code. */
@Timeout(120)
class DoctorCommandTest {
  @TempDir Path folder;

  @Test
  void tableHasALinePerCheckAndTheCounts() {
    Run run = Run.of("doctor", "--backend", "host");
    assertTrue(run.code() == 0 || run.code() == 10, run::toString);
    assertTrue(run.out().startsWith("# nccl4j "), run::out);
    for (String check : new String[] {"Java", "native access", "/dev/shm", "container"}) {
      assertTrue(
          run.out().lines().anyMatch(line -> line.matches("(ok|warn|fail) +" + check + " .*")),
          run::out);
    }
    assertTrue(run.out().matches("(?s).*# \\d+ ok, \\d+ warn, \\d+ fail\\n"), run::out);
    assertFalse(run.out().contains("libcuda"), run::out);
  }

  @Test
  void badOptionStartsNothing() {
    assertEquals(2, Run.of("doctor", "--backend", "tpu").code());
  }

  private JsonNode examine(Map<String, String> more, int code, String line)
      throws IOException, InterruptedException {
    Map<String, String> environment = new HashMap<>(more);
    try (Jvm jvm = Jvm.start(folder, "doctor", environment, line)) {
      assertEquals(code, jvm.await(), () -> text(jvm.out()) + text(jvm.err()));
      return new ObjectMapper().readTree(text(jvm.out()));
    }
  }

  private static String text(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static JsonNode check(JsonNode json, String name) {
    for (JsonNode check : json.get("checks")) {
      if (check.get("name").textValue().equals(name)) {
        return check;
      }
    }
    throw new AssertionError(name + " is not in " + json);
  }

  /** A GPU is wanted and absent, a variable is misspelt, another one deadlocks. */
  @Test
  void failuresMakeTheExitCode() throws Exception {
    Map<String, String> environment = new HashMap<>();
    environment.put("NCCL4J_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
    environment.put("NCCL_CUMEM_ENABEL", "1");
    JsonNode json = examine(environment, 10, "doctor --backend cuda --json");
    assertFalse(json.get("healthy").booleanValue());
    assertEquals("fail", check(json, "cuda").get("status").textValue());
    assertEquals(
        "did you mean NCCL_CUMEM_ENABLE? Or unset it",
        check(json, "NCCL_CUMEM_ENABEL").get("remedy").textValue());
    assertTrue(json.get("fail_count").intValue() >= 1, json::toString);
    assertTrue(json.get("segments").isArray());
  }

  @Test
  void librariesAndGpusAreExamined() throws Exception {
    Map<String, String> environment = new HashMap<>(StandIn.require().childEnvironment(2));
    environment.put("NCCL_WORK_FIFO_DEPTH", "1024");
    JsonNode json = examine(environment, 0, "doctor --backend cuda --json");
    assertEquals("ok", check(json, "cuda").get("status").textValue());
    assertTrue(check(json, "libnccl.so.2").get("found").textValue().startsWith("2.30.7, "));
    assertEquals("every pair of 2 devices", check(json, "P2P").get("found").textValue());
    assertEquals("ok", check(json, "cuMem virtual memory").get("status").textValue());
    JsonNode old = check(json, "NCCL_WORK_FIFO_DEPTH");
    assertEquals("warn", old.get("status").textValue());
    assertEquals("use NCCL_WORK_FIFO_BYTES", old.get("remedy").textValue());
  }

  @Test
  void whatSeveralMachinesNeedIsExamined() throws Exception {
    Map<String, String> environment = new HashMap<>();
    environment.put("NCCL4J_NETWORK_INTERFACE", "nowhere0");
    environment.put("NCCL4J_PMIX_LIBRARY", "/nonexistent/libpmix.so.2");
    environment.put("PMIX_NAMESPACE", "1");
    JsonNode json = examine(environment, 10, "doctor --backend host --json");
    assertEquals("ok", check(json, "network").get("status").textValue());
    assertEquals("fail", check(json, "network address").get("status").textValue());
    assertFalse(check(json, "congestion control").get("found").textValue().isEmpty());
    assertEquals("warn", check(json, "libpmix").get("status").textValue());
    String found = check(json, "libpmix").get("found").textValue();
    assertTrue(found.contains("/nonexistent/libpmix.so.2"), found);
  }

  /** What a killed job left is a file named by a process that there is not. */
  @Test
  void uniqueIdsOfKilledJobsAreNamedAndRemovedOnDemand() throws Exception {
    String pids = Files.readSymbolicLink(Path.of("/proc/self/ns/pid")).toString();
    Path ids = Files.createDirectory(folder.resolve("ids"));
    Files.setPosixFilePermissions(ids, PosixFilePermissions.fromString("rwx------"));
    Path stale =
        ids.resolve(
            "0123456789abcdef01234567."
                + Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).strip()
                + "."
                + pids.replaceAll("\\D", "")
                + ".999999999.1");
    Files.writeString(stale, "secret");
    Map<String, String> environment = Map.of("NCCL4J_RENDEZVOUS_DIR", ids.toString());
    JsonNode json = examine(environment, 0, "doctor --backend host --json");
    assertEquals("warn", check(json, "unique ids").get("status").textValue());
    assertTrue(check(json, "unique ids").get("found").textValue().contains(stale.toString()));
    assertEquals(0, json.get("removed_ids").size());
    assertTrue(Files.exists(stale));
    json = examine(environment, 0, "doctor --backend host --json --remove-stale-ids");
    assertFalse(Files.exists(stale));
    List<String> removed = new ArrayList<>();
    json.get("removed_ids").forEach(path -> removed.add(path.textValue()));
    assertTrue(removed.contains(stale.toString()), removed::toString);
  }
}
