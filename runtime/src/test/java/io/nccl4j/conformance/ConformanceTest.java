package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.conformance.ProcessRanks.Selection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every operation with exact expected values, in every layout of ranks. One failing case can be run
 * alone with the properties nccl4j.test.seed and nccl4j.test.case (the number in its description).
 */
@Timeout(value = 4, unit = TimeUnit.HOURS, threadMode = ThreadMode.SEPARATE_THREAD)
class ConformanceTest {
  static Stream<Arguments> inProcess() {
    return Stream.of(RankLayout.THREADS, RankLayout.VIRTUAL_THREADS, RankLayout.ONE_THREAD)
        .flatMap(layout -> Stream.of(1, 2, 3, 4, 8).map(nranks -> Arguments.of(layout, nranks)));
  }

  @ParameterizedTest(name = "{0}, {1} ranks")
  @MethodSource("inProcess")
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleInOneProcess(RankLayout layout, int nranks) throws Exception {
    assertNone(layout.run(nranks, Selection.cases(layout, nranks, false)));
  }

  @Tag("process")
  @ParameterizedTest(name = "{0}, {1} ranks")
  @CsvSource({"PROCESSES,2", "PROCESSES,3", "PROCESSES,4", "MIXED,4"})
  @Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleInProcesses(RankLayout layout, int nranks) throws Exception {
    assertNone(ProcessRanks.run(layout, nranks, false, 60));
  }

  @Tag("long")
  @ParameterizedTest(name = "{0}, {1} ranks")
  @MethodSource("inProcess")
  void everythingInOneProcess(RankLayout layout, int nranks) throws Exception {
    assertNone(layout.run(nranks, Selection.cases(layout, nranks, true)));
  }

  @Tag("long")
  @Tag("process")
  @ParameterizedTest(name = "{0}, {1} ranks")
  @CsvSource({"PROCESSES,1", "PROCESSES,2", "PROCESSES,3", "PROCESSES,4", "PROCESSES,8", "MIXED,4"})
  void everythingInProcesses(RankLayout layout, int nranks) throws Exception {
    assertNone(ProcessRanks.run(layout, nranks, true, 3600));
  }

  private static void assertNone(List<String> failures) {
    assertTrue(
        failures.isEmpty(),
        () ->
            failures.size()
                + " failures with nccl4j.test.seed="
                + TestBackend.SEED
                + "\n  "
                + String.join("\n  ", failures));
  }
}
