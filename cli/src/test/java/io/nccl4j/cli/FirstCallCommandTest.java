package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
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
   * Compares medians of three pairs of processes with a warm-up and three without. However busy the
   * machine is, a first allReduce takes long without one, because its code must be loaded and
   * compiled; after a warm-up nothing of that is left.
   */
  @Test
  void theFirstCallAfterAWarmUpIsFast() throws Exception {
    Path json = folder.resolve("first.json");
    try (Jvm jvm =
        Jvm.start(folder, "first", Map.of(), "selftest first-call --pairs 3 -J " + json)) {
      jvm.await();
      List<String> rows = jvm.rows();
      assertEquals(2, rows.size(), jvm::said);
      assertTrue(rows.getFirst().startsWith(" sendrecv "), rows::toString);
      String[] allReduce = rows.getLast().strip().split(" +");
      assertEquals("allreduce", allReduce[0]);
      double cold = Double.parseDouble(allReduce[3]);
      double warm = Double.parseDouble(allReduce[5]);
      assertTrue(warm * 5 <= cold, "warm " + warm + " us, cold " + cold + " us");
      String report = Files.readString(json);
      assertTrue(report.contains("\"goal_us\""), report);
    }
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
