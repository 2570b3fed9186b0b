package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("parallel")
class WaitStepsTest {
  private static final long YIELD = 1_000_000_000;
  private static final long EVER = Long.MAX_VALUE;

  @ParameterizedTest(name = "{0} with {1} ranks on 4 processors")
  @CsvSource({
    "auto, 1, false, 100000, 1000000000",
    "auto, 4, false, 100000, 1000000000",
    "auto, 5, true, 0, 1000000",
    "spin, 5, false, 9223372036854775807, 9223372036854775807",
    "yield, 4, false, 100000, 9223372036854775807",
    "yield, 5, true, 0, 9223372036854775807",
    "sleep, 4, false, 100000, 0",
    "sleep, 5, true, 0, 0"
  })
  void stepsFollowFromSettingAndRanks(
      String setting, int ranks, boolean crowded, long spin, long yield) {
    assertEquals(
        new WaitSteps(crowded, spin, yield), WaitSteps.of(setting, ranks, 4, YIELD), setting);
  }

  @ParameterizedTest(name = "{0} ranks here, {1} on a machine with 16 processors")
  @CsvSource({"4, 4, 4", "8, 16, 8", "8, 17, 17", "17, 17, 17"})
  void hostsOfOneMachineShareProcessorsIfItHasTooFew(int here, int onMachine, int sharing) {
    assertEquals(sharing, WaitSteps.sharing(here, onMachine, 16));
  }

  @Test
  void ranksThatShareProcessorsSleepSooner() {
    WaitSteps alone = WaitSteps.of("auto", 4, 4, YIELD);
    WaitSteps crowded = WaitSteps.of("auto", 5, 4, YIELD);
    assertTrue(crowded.yieldNanos() < alone.yieldNanos());
    assertTrue(alone.yieldNanos() < EVER);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "AUTO", "park", "yield "})
  void otherSettingsAreRefused(String setting) {
    InvalidArgumentException e =
        assertThrows(InvalidArgumentException.class, () -> WaitSteps.of(setting, 1, 1, YIELD));
    assertTrue(e.problem().contains("NCCL4J_WAIT"), e.getMessage());
    assertTrue(e.remedy().contains("auto, spin, yield or sleep"), e.getMessage());
  }
}
