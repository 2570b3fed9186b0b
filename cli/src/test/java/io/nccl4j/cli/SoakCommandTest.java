package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The soak with processes, one of which is killed and one stopped. */
@Tag("process")
@Timeout(240)
class SoakCommandTest {
  /**
   * Of its first five episodes one has a kill, one a rank that leaves, and one a stop, if in time.
   */
  private static final String FAULTS = "selftest soak --ranks 2 --processes 2 --seed 118655";

  private static final String LONG = "selftest soak --ranks 2 --processes 2 --minutes 5";

  @TempDir Path folder;

  @Test
  void survivorsGoOn() throws Exception {
    try (Jvm parent = Jvm.start(folder, "soak", Map.of(), FAULTS + " --episodes 5")) {
      int code = parent.process().waitFor();
      String said = parent.outLines() + "\n" + Files.readString(parent.err());
      assertEquals(0, code, said);
      assertEquals("# OK: nothing is wrong, and nothing grows", parent.outLines().getLast(), said);
      assertTrue(said.contains("# 2 processes, episodes with: kill 1, leave 1,"), said);
    }
  }

  @Test
  void threadsWriteJson() throws Exception {
    String line = "selftest soak --ranks 2 --processes 1 --seed 1 --episodes 3 --json";
    try (Jvm parent = Jvm.start(folder, "soak", Map.of(), line)) {
      int code = parent.process().waitFor();
      String out = String.join("\n", parent.outLines());
      assertEquals(0, code, out + "\n" + Files.readString(parent.err()));
      assertTrue(out.contains("\"seed\" : 1"), out);
      assertTrue(out.contains("\"episodes\" : 3"), out);
    }
  }

  @Test
  void noProcessOutlivesItsParent() throws Exception {
    try (Jvm parent = Jvm.start(folder, "soak", Map.of(), LONG)) {
      List<ProcessHandle> children = parent.awaitChildren(2);
      parent.process().destroyForcibly();
      Jvm.awaitEnd(children, 60_000);
    }
  }
}
