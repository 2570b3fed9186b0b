package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What a warm-up makes of the first call, in times: a neighbour would count. */
@Tag("process")
@Timeout(240)
class FirstCallCommandTest {
  @TempDir Path folder;

  /**
   * Compares the faster of two processes with a warm-up and of two without. However busy the
   * machine is, a first allReduce takes long without one, because its code must be loaded and
   * compiled; after a warm-up nothing of that is left. The slower one may have waited for a peer
   * that had no processor at that moment.
   */
  @Test
  void theFirstCallAfterAWarmUpIsFast() throws Exception {
    Path json = folder.resolve("first.json");
    try (Jvm jvm =
        Jvm.start(folder, "first", Map.of(), "selftest first-call --pairs 2 -J " + json)) {
      jvm.await();
      List<String> operations = jvm.rows().stream().map(row -> row.strip().split(" +")[0]).toList();
      assertEquals(List.of("sendrecv", "allreduce"), operations, jvm::said);
      JsonNode report = new ObjectMapper().readTree(json.toFile());
      double cold = fastestAllReduce(report.get("cold"));
      double warm = fastestAllReduce(report.get("warm"));
      assertTrue(warm * 5 <= cold, "warm " + warm + " us, cold " + cold + " us");
      assertTrue(report.at("/results/1/goal_us").asDouble() > 0, report::toString);
    }
  }

  private static double fastestAllReduce(JsonNode pairs) {
    return StreamSupport.stream(pairs.spliterator(), false)
        .filter(times -> times.get("operation").asText().equals("allreduce"))
        .mapToDouble(times -> times.get("first_us").asDouble())
        .min()
        .orElseThrow();
  }

  /** The goal itself; it takes a machine that does nothing else. */
  @Tag("long")
  @Test
  @Timeout(1800)
  void theFirstCallAfterAWarmUpMeetsItsGoal() throws Exception {
    Path json = folder.resolve("first.json");
    try (Jvm jvm = Jvm.start(folder, "first", Map.of(), "selftest first-call -J " + json)) {
      assertEquals(0, jvm.process().waitFor());
      String report = Files.readString(json);
      assertFalse(report.contains("\"goal_met\" : false"), report);
    }
  }
}
