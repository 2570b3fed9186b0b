package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Small blocks are divided where each part then leaves in one TCP segment. */
@Tag("parallel")
class RailsTest {
  @ParameterizedTest(name = "{1} transfers of {2} B on {0} ranks of each host")
  @CsvSource({
    "2, 2, 640, 1",
    "2, 2, 641, 2",
    "2, 2, 1280, 2",
    "2, 2, 1281, 1",
    "2, 1, 1352, 1",
    "2, 1, 1353, 2",
    "2, 2, 32767, 1",
    "2, 2, 32768, 2",
    "4, 4, 284, 1",
    "4, 4, 285, 2",
    "4, 4, 513, 3",
    "4, 4, 1024, 4",
    "4, 4, 1025, 1",
    "1, 1, 4096, 1",
  })
  void eachHasAProcessor(int ranksOfHost, int transfers, long bytes, int rails) {
    assertEquals(rails, WindowPlan.rails(hosts(ranksOfHost, 2 * ranksOfHost), bytes, transfers));
  }

  @ParameterizedTest(name = "{0} B")
  @CsvSource({"641, 1", "1280, 1", "32767, 1", "32768, 2"})
  void ranksShareProcessors(long bytes, int rails) {
    assertEquals(rails, WindowPlan.rails(hosts(2, 3), bytes, 2));
  }

  private static Hosts hosts(int ranksOfHost, int processorsOfMachine) {
    int nranks = 2 * ranksOfHost;
    int[] hostOf = new int[nranks];
    Arrays.fill(hostOf, ranksOfHost, nranks, 1);
    int[] processors = new int[nranks];
    Arrays.fill(processors, processorsOfMachine);
    return new Hosts(hostOf, new int[nranks], processors);
  }
}
