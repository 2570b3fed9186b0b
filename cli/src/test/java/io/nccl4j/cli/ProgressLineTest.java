package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class ProgressLineTest {
  private static final String RUN = "allreduce --backend host -t 2 -b 8 -e 32 -f 2 -n 2 -c 0";
  private static final Map<String, String> TERMINAL = Map.of("NCCL4J_TERMINAL", "1");

  @Test
  void aTerminalShowsHowFarItIsAndIsLeftClean() {
    Run run = Run.ofLine(TERMINAL, RUN);
    assertEquals(0, run.code(), run.err());
    for (String part : new String[] {"allreduce", "0/3", "1/3", "2/3", "3/3"}) {
      assertTrue(run.err().contains(part), () -> part + " is not in " + run.err());
    }
    assertTrue(run.err().endsWith("\r\u001b[K"), run.err());
    assertFalse(run.out().contains("\u001b"), run.out());
  }

  @Test
  void nothingIsDrawnIfItIsNotWanted() {
    Run run = Run.ofLine(TERMINAL, RUN + " --no-progress");
    assertEquals(0, run.code(), run.err());
    assertEquals("", run.err());
  }
}
