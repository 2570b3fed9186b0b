package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.Backend;
import io.nccl4j.internal.cuda.StandIn;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Commands on the cuda backend, over stand-ins for NVIDIA's libraries, in JVMs of their own. */
@Timeout(600)
@Tag("parallel")
class StandInTest {
  @TempDir Path folder;

  private StandIn libraries;

  @BeforeEach
  void compile() {
    libraries = StandIn.require();
  }

  private Jvm start(Map<String, String> more, String line) throws IOException {
    Map<String, String> environment = new HashMap<>(libraries.childEnvironment(2));
    environment.putAll(more);
    return Jvm.start(folder, "run", environment, line);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "allreduce --backend cuda -t 2",
        "sendrecv -g 2",
        "alltoall --backend cuda --procs 2 -R 2 -D 1 -V 4"
      })
  void measures(String command) throws Exception {
    measure(command);
  }

  @Tag("long")
  @ParameterizedTest
  @ValueSource(
      strings = {
        "allreduce -g 2",
        "sendrecv --backend cuda --procs 2",
        "allreduce --backend cuda --procs 2 -R 2 -D 2 -V 4"
      })
  void measuresInOtherWays(String command) throws Exception {
    measure(command);
  }

  private void measure(String command) throws Exception {
    try (Jvm jvm = start(Map.of(), command + " -b 8 -e 4K -f 512 -n 3 -w 0")) {
      assertEquals(0, jvm.await(), jvm::said);
      List<String> rows = jvm.rows();
      assertEquals(2, rows.size(), jvm::said);
      rows.forEach(row -> assertEquals("0", row.strip().split(" +")[8], row));
      assertEquals(
          2,
          jvm.outLines().stream()
              .filter(l -> l.matches(".*\\[0000:1[01]:00] NVIDIA Stand-in.*"))
              .count());
      assertTrue(jvm.outLines().contains("# Out of bounds values : 0 OK"), jvm::said);
    }
  }

  /** NCCL reads what is forced; the stand-in refuses names that there are not, as NCCL does. */
  @Test
  void forcesAlgorithmAndProtocol() throws Exception {
    try (Jvm jvm =
        start(Map.of(), "allreduce -g 2 -b 8 -e 8 -n 1 -w 0 --algo Ring --proto Simple")) {
      assertEquals(0, jvm.await(), jvm::said);
    }
    try (Jvm jvm = start(Map.of(), "allreduce -g 2 -b 8 -e 8 -n 1 -w 0 --algo Rign")) {
      assertEquals(3, jvm.await(), jvm::said);
      assertTrue(jvm.said().contains("NCCL_ALGO=Rign"), jvm::said);
    }
  }

  @Tag("long")
  @Test
  void processesRefuseAProtocolThatThereIsNot() throws Exception {
    try (Jvm jvm =
        start(
            Map.of("NCCL4J_PROTO", "Slow"),
            "sendrecv --procs 2 --backend cuda -b 8 -e 8 -n 1 -w 0")) {
      assertEquals(3, jvm.await(), jvm::said);
      assertTrue(jvm.said().contains("NCCL_PROTO=Slow"), jvm::said);
    }
  }

  /** As in nccl-tests, however long they take: a GPU would run empty between parts of them. */
  @Test
  void allIterationsAreTimedAtOnce() throws Exception {
    Path json = folder.resolve("run.json");
    String line = "allreduce --backend cuda -t 2 -b 4M -e 4M -n 40 -c 0 -J " + json;
    try (Jvm jvm = start(Map.of(), line)) {
      assertEquals(0, jvm.await(), jvm::said);
      JsonNode result = new ObjectMapper().readTree(json.toFile()).at("/results/0/out_of_place");
      // Forty operations take a good part of 0.2 s, after which there are no more rounds.
      int rounds = result.get("rounds_us").size();
      assertTrue(rounds < 6, () -> rounds + " rounds of " + result.get("time") + " us");
    }
  }

  @Test
  void capturedOperationsTakeNoRoom() throws Exception {
    captureOperations("");
  }

  @Tag("long")
  @Test
  void capturedOperationsOfProcessesTakeNoRoom() throws Exception {
    captureOperations(" --procs 2");
  }

  private void captureOperations(String more) throws Exception {
    try (Jvm jvm = start(Map.of(), "selftest fifo-leak --backend cuda -n 100" + more)) {
      jvm.await();
      assertTrue(jvm.outLines().getFirst().endsWith(" selftest fifo-leak, cuda"), jvm::said);
      List<String> rows = jvm.rows();
      assertEquals(3, rows.size(), jvm::said);
      // Case, ranks, as; of the rest what is taken at the end, and the elements that are wrong.
      for (String row : rows) {
        String[] fields = row.strip().split("  +");
        assertTrue(row.contains(more.isEmpty() ? " 2 threads" : " 2 processes"), row);
        assertEquals("0", fields[fields.length - 1], row);
      }
    }
  }

  /** How fast the stand-in is says nothing: that both operations were timed in both ways. */
  @Tag("long")
  @Test
  void firstCallsAreTimed() throws Exception {
    Path json = folder.resolve("first.json");
    try (Jvm jvm = start(Map.of(), "selftest first-call --backend cuda -n 1 -J " + json)) {
      int code = jvm.await();
      assertTrue(code == 0 || code == 7, jvm::said);
      assertEquals(2, jvm.rows().size(), jvm::said);
      JsonNode report = new ObjectMapper().readTree(json.toFile());
      assertEquals("cuda", report.get("backend").textValue());
      boolean met = true;
      for (JsonNode operation : report.get("results")) {
        met &= operation.get("goal_met").booleanValue();
        double goal = Math.max(5, 3 * operation.get("steady_p99_us").doubleValue());
        assertEquals(goal, operation.get("goal_us").doubleValue(), 1e-9);
      }
      assertEquals(met ? 0 : 7, code, jvm::said);
    }
  }

  /** What the stand-in takes is not what NCCL would: the difference is shown. */
  @Test
  void memoryIsMeasured() throws Exception {
    try (Jvm jvm = start(Map.of(), "memory --measure -t 2")) {
      assertEquals(0, jvm.await(), jvm::said);
      String out = String.join("\n", jvm.outLines());
      assertTrue(out.startsWith("predicted memory of one rank of 2 on cuda\n"), out);
      assertTrue(out.contains("after the first allReduces"), out);
      assertTrue(out.contains("ncclCommMemStats, persistent"), out);
      assertTrue(out.contains("B (predicted), 4194304 B (ncclCommMemStats), difference -"), out);
    }
  }

  /** The root of a gather receives, the other rank sends; and a sendrecv of two does both. */
  @ParameterizedTest
  @CsvSource({
    "gather --procs 2, RECEIVE_PEERS, SEND_PEERS",
    "sendrecv -t 2, PEERS, PEERS",
  })
  void memoryIsComparedWithThePrediction(String command, Lever first, Lever second)
      throws Exception {
    compareMemory(command, first, second);
  }

  @Tag("long")
  @ParameterizedTest
  @CsvSource({
    "scatter -t 2, SEND_PEERS, RECEIVE_PEERS",
    "gather -g 2 -r -1, PEERS, PEERS",
    "allreduce --procs 2, FIFO, FIFO",
  })
  void memoryOfOtherProgramsIsComparedWithThePrediction(String command, Lever first, Lever second)
      throws Exception {
    compareMemory(command, first, second);
  }

  private void compareMemory(String command, Lever first, Lever second) throws Exception {
    Path json = folder.resolve("run.json");
    String line = command + " --backend cuda -M 1 -b 8 -e 8 -n 1 -w 0 -J " + json;
    try (Jvm jvm = start(Map.of("NCCL_NVLS_ENABLE", "0"), line)) {
      assertEquals(0, jvm.await(), jvm::said);
      JsonNode nccl = new ObjectMapper().readTree(json.toFile()).get("nccl_memory");
      long taken = 4 << 20;
      long predicted = predicted(first);
      long other = predicted(second);
      assertEquals(predicted, nccl.get("predicted_bytes").longValue());
      assertEquals(taken, nccl.get("taken_bytes").longValue());
      long least = taken - Math.max(predicted, other);
      long most = taken - Math.min(predicted, other);
      assertEquals(least, nccl.get("least_difference_bytes").longValue());
      assertEquals(most, nccl.get("most_difference_bytes").longValue());
      String said =
          "# NCCL's memory        : Predicted %d B | Taken 4194304 B | Difference on all ranks %d to %d B"
              .formatted(predicted, least, most);
      assertTrue(jvm.outLines().contains(said), jvm::said);
    }
  }

  private static long predicted(Lever lever) {
    MemoryQuery query =
        MemoryQuery.of(Backend.CUDA).with(Lever.NRANKS, 2).with(Lever.NVLS, 0).with(lever, 1 << 12);
    MemoryPrediction prediction = MemoryPrediction.of(query);
    return prediction.bytes(MemoryPlace.DEVICE) - prediction.bytes(MemoryPurpose.BARRIER);
  }

  @Test
  void moreRanksThanGpusAreRefusedWithTheRemedy() throws Exception {
    Map<String, String> one = Map.of("STANDIN_CUDA_DEVICES", "1");
    try (Jvm jvm = start(one, "allreduce --backend cuda -t 2 -b 8 -e 8")) {
      assertEquals(3, jvm.await(), jvm::said);
      assertTrue(jvm.said().contains("NCCL_MULTI_RANK_GPU_ENABLE=1"), jvm::said);
    }
  }

  @Test
  void infoSaysWhatIsThere() throws Exception {
    try (Jvm jvm = start(Map.of("STANDIN_CUDA_MULTICAST", "0"), "info --json")) {
      assertEquals(0, jvm.await(), jvm::said);
      JsonNode cuda = new ObjectMapper().readTree(jvm.out().toFile()).at("/backends/1");
      assertTrue(cuda.get("usable").booleanValue(), jvm::said);
      assertEquals("2.30.7", cuda.at("/libraries/0/version").textValue());
      assertEquals("setting NCCL4J_NCCL_LIBRARY", cuda.at("/libraries/0/found_by").textValue());
      assertEquals(libraries.cuda().toString(), cuda.at("/libraries/1/path").textValue());
      assertEquals(2, cuda.get("devices").size());
      assertEquals("9.0", cuda.at("/devices/1/compute_capability").textValue());
      assertEquals("0000:11:00.0", cuda.at("/devices/1/pci_address").textValue());
      assertTrue(cuda.at("/devices/0/free_bytes").longValue() > 0);
      assertTrue(feature(cuda, "shrink").get("present").booleanValue());
      JsonNode multicast = feature(cuda, "multicast (NVLS)");
      assertFalse(multicast.get("present").booleanValue());
      assertEquals("no device has it", multicast.get("reason").textValue());
    }
  }

  @Test
  void infoSaysWhatAnOldLibraryLacks() throws Exception {
    String old = StandIn.require(StandIn.NCCL_2_19).nccl().toString();
    try (Jvm jvm = start(Map.of("NCCL4J_NCCL_LIBRARY", old), "info --json --backend cuda")) {
      assertEquals(0, jvm.await(), jvm::said);
      JsonNode cuda = new ObjectMapper().readTree(jvm.out().toFile()).at("/backends/0");
      assertTrue(feature(cuda, "split").get("present").booleanValue());
      JsonNode shrink = feature(cuda, "shrink");
      assertFalse(shrink.get("present").booleanValue());
      assertEquals("NCCL is 2.19.3", shrink.get("reason").textValue());
      assertEquals("NCCL 2.27.3 or newer", shrink.get("needs").textValue());
    }
  }

  private static JsonNode feature(JsonNode backend, String name) {
    for (JsonNode feature : backend.get("features")) {
      if (feature.get("name").textValue().equals(name)) {
        return feature;
      }
    }
    throw new AssertionError(name + " is not in " + backend);
  }

  @ParameterizedTest
  @ValueSource(ints = {StandIn.NCCL_2_18})
  void infoRefusesWhatIsTooOld(int version) throws Exception {
    String old = StandIn.require(version).nccl().toString();
    try (Jvm jvm = start(Map.of("NCCL4J_NCCL_LIBRARY", old), "info --backend cuda")) {
      assertEquals(3, jvm.await(), jvm::said);
      assertTrue(
          jvm.said().contains("cannot be used: NCCL is 2.18.5, nccl4j needs 2.19.0 or newer\n"),
          jvm::said);
      assertTrue(jvm.said().contains("  remedy         install a newer NCCL"), jvm::said);
    }
  }

  @Test
  void infoOfHostLoadsNothingOfCuda() throws Exception {
    Map<String, String> broken = Map.of("NCCL4J_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
    try (Jvm jvm = start(broken, "info --backend host")) {
      assertEquals(0, jvm.await(), jvm::said);
      assertFalse(jvm.said().contains("cuda"), jvm::said);
    }
    try (Jvm jvm = start(broken, "info --backend cuda")) {
      assertEquals(3, jvm.await(), jvm::said);
      assertTrue(
          jvm.said()
              .contains(
                  "cannot be used: cannot load libcuda.so.1: /nonexistent/libcuda.so.1: no such"
                      + " file\n"),
          jvm::said);
    }
  }

  @Tag("long")
  @Test
  void selftestFindsNothingWrongOnOneGpu() throws Exception {
    Map<String, String> one = Map.of("STANDIN_CUDA_DEVICES", "1");
    try (Jvm jvm = start(one, "selftest --backend cuda --quick --json")) {
      assertTrue(jvm.process().waitFor(500, java.util.concurrent.TimeUnit.SECONDS));
      assertEquals(0, jvm.process().exitValue(), jvm::said);
      JsonNode report = new ObjectMapper().readTree(jvm.out().toFile());
      assertTrue(report.get("passed").booleanValue(), jvm::said);
      assertEquals(4, report.get("layouts").size(), jvm::said);
      for (JsonNode layout : report.get("layouts")) {
        assertEquals(21, layout.get("operations").size(), jvm::said);
        for (JsonNode row : layout.get("operations")) {
          assertTrue(row.get("cases").longValue() > row.get("refused").longValue(), row::toString);
        }
      }
    }
  }

  /** The second allReduce of rank 0 is an error. */
  @Test
  void selftestFindsAnOperationThatFails() throws Exception {
    Map<String, String> faulty =
        Map.of("STANDIN_CUDA_DEVICES", "1", "STANDIN_FAULT", "ncclAllReduce@0:2:error:3");
    try (Jvm jvm = start(faulty, "selftest --backend cuda --quick")) {
      assertTrue(jvm.process().waitFor(500, java.util.concurrent.TimeUnit.SECONDS));
      assertTrue(jvm.process().exitValue() != 0, jvm::said);
      assertTrue(jvm.said().contains("# FAILED"), jvm::said);
      assertTrue(jvm.said().contains("failed with exit code"), jvm::said);
    }
  }
}
