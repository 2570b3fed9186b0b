package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.conformance.ProcessRanks.Selection;
import java.util.Arrays;
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
@Tag("parallel")
@Tag("optimized")
class ConformanceTest {
  /** Every number of ranks on threads of their own, two and four of the others. */
  static Stream<Arguments> someInProcess() {
    return inProcess()
        .filter(
            arguments ->
                arguments.get()[0] == RankLayout.THREADS
                    || (int) arguments.get()[1] == 2
                    || (int) arguments.get()[1] == 4);
  }

  static Stream<Arguments> inProcess() {
    return Stream.of(RankLayout.THREADS, RankLayout.VIRTUAL_THREADS, RankLayout.ONE_THREAD)
        .flatMap(layout -> Stream.of(1, 2, 3, 4, 8).map(nranks -> Arguments.of(layout, nranks)));
  }

  @ParameterizedTest(name = "{0}, {1} ranks")
  @MethodSource("someInProcess")
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleInOneProcess(RankLayout layout, int nranks) throws Exception {
    assertNone(layout.run(nranks, Selection.cases(layout, nranks, false)));
  }

  /** Hosts of one rank and of several, of unequal size, and whose ranks alternate. */
  @ParameterizedTest(name = "{0}, hosts {1}, {2}")
  @CsvSource({
    "THREADS, 0 1, memory",
    "ONE_THREAD, 0 1 1 2 2 2, memory",
    "THREADS, 1 0 2 0 1, memory",
    "THREADS, 0 0 1 1, netty",
    "THREADS, 0 0 1 1, tls",
    "ONE_THREAD, 1 0 2 0 1, ucx"
  })
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleOverHosts(RankLayout layout, String hosts, String network) throws Exception {
    sampleOver(layout, hosts, network);
  }

  @Tag("long")
  @ParameterizedTest(name = "{0}, hosts {1}, {2}")
  @CsvSource({
    "THREADS, 0 0 1 1, memory",
    "VIRTUAL_THREADS, 0 1 0 2, memory",
    "ONE_THREAD, 0 1 2 3 4 5 6 7, memory",
    "ONE_THREAD, 1 0 2 0 1, netty",
    "THREADS, 0 0 1 1, ucx"
  })
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleOverOtherHosts(RankLayout layout, String hosts, String network) throws Exception {
    sampleOver(layout, hosts, network);
  }

  private static void sampleOver(RankLayout layout, String hosts, String network) throws Exception {
    TestBackend.requireHost("cuda leaves the way between hosts to NCCL");
    TestBackend.requireNetwork(network);
    int[] hostOf = Arrays.stream(hosts.split(" ")).mapToInt(Integer::parseInt).toArray();
    assertNone(
        layout.run(
            Selection.cases(layout, hostOf.length, false),
            () -> TestBackend.overHosts(hostOf, TestBackend.CONFIG, network)));
  }

  @ParameterizedTest(name = "{0}, hosts {1}, {2}")
  @CsvSource({
    "ONE_THREAD, 0 0 1 1, memory",
    "THREADS, 1 0 2 0 1, memory",
    "THREADS, 0 0 0 1 1, netty"
  })
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void largeOverHosts(RankLayout layout, String hosts, String network) throws Exception {
    largeOver(layout, hosts, network);
  }

  @Tag("long")
  @ParameterizedTest(name = "{0}, hosts {1}, {2}")
  @CsvSource({"THREADS, 0 1, memory", "THREADS, 0 1 1 2 2 2, memory", "THREADS, 0 0 0 1 1, ucx"})
  @Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
  void largeOverOtherHosts(RankLayout layout, String hosts, String network) throws Exception {
    largeOver(layout, hosts, network);
  }

  private static void largeOver(RankLayout layout, String hosts, String network) throws Exception {
    TestBackend.requireHost("cuda leaves the way between hosts to NCCL");
    TestBackend.requireNetwork(network);
    int[] hostOf = Arrays.stream(hosts.split(" ")).mapToInt(Integer::parseInt).toArray();
    assertNone(
        layout.run(
            CaseGenerator.large(layout, hostOf.length),
            () -> TestBackend.overHosts(hostOf, TestBackend.CONFIG, network)));
  }

  @Tag("process")
  @ParameterizedTest(name = "{0}, {1} ranks")
  @CsvSource({"PROCESSES,3", "HOSTS,4"})
  @Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleInProcesses(RankLayout layout, int nranks) throws Exception {
    sampleIn(layout, nranks);
  }

  @Tag("long")
  @Tag("process")
  @ParameterizedTest(name = "{0}, {1} ranks")
  @CsvSource({
    "PROCESSES,2",
    "PROCESSES,4",
    "MIXED,4",
    "HOSTS,2",
    "TLS,2",
    "TLS,4",
    "UCX,2",
    "UCX,4"
  })
  @Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
  void sampleInOtherProcesses(RankLayout layout, int nranks) throws Exception {
    sampleIn(layout, nranks);
  }

  private static void sampleIn(RankLayout layout, int nranks) throws Exception {
    if (layout.isOverHosts()) {
      TestBackend.requireHost("cuda leaves the way between hosts to NCCL");
      TestBackend.requireNetwork(layout == RankLayout.UCX ? "ucx" : "netty");
    }
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
