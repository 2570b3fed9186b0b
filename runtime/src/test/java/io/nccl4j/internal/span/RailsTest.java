package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Small blocks are divided where each part then leaves in one TCP segment. */
@Tag("parallel")
class RailsTest {
  @ParameterizedTest(name = "{1} blocks, {2} inputs of {3} B on {0} ranks of each host")
  @CsvSource({
    "2, 1, 2, 676, 1",
    "2, 1, 2, 677, 2",
    "2, 1, 2, 1280, 2",
    "2, 1, 2, 1281, 1",
    "2, 2, 1, 640, 1",
    "2, 2, 1, 641, 2",
    "2, 1, 1, 1352, 1",
    "2, 1, 1, 1353, 2",
    "2, 1, 2, 32767, 1",
    "2, 1, 2, 32768, 2",
    "4, 1, 4, 338, 1",
    "4, 1, 4, 339, 2",
    "4, 1, 4, 513, 3",
    "4, 1, 4, 1024, 4",
    "4, 1, 4, 1025, 1",
    "4, 4, 4, 71, 1",
    "1, 1, 1, 4096, 1",
  })
  void eachHasAProcessor(int ranksOfHost, int blocks, int inputs, long bytes, int rails) {
    Hosts hosts = hosts(ranksOfHost, 2 * ranksOfHost);
    assertEquals(rails, WindowPlan.rails(hosts, bytes, blocks, inputs));
  }

  @ParameterizedTest(name = "{0} B")
  @CsvSource({"677, 1", "1280, 1", "32768, 1", "131071, 1", "131072, 2"})
  void ranksShareProcessors(long bytes, int rails) {
    assertEquals(rails, WindowPlan.rails(hosts(2, 3), bytes, 1, 2));
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
