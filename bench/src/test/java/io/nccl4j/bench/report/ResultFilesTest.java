package io.nccl4j.bench.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.SystemErrorException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ResultFilesTest {
  @TempDir Path folder;

  private Run read(String name, String text) throws IOException {
    Path file = Files.writeString(folder.resolve(name), text);
    return new ResultFiles().add(file.toString()).runs().getFirst();
  }

  /** As nccl-tests 2.19 writes it: strings for what is no number, all of the environment. */
  private static final String TESTS_JSON =
      """
      {"version": 3, "args": ["./build/all_gather_perf", "-I", "1"], "env": ["HOME=/root"],
       "nccl_version": 23007,
       "config": {"nthreads": 1, "ngpus": 2, "devices": [{"rank": 0, "hostname": "n1"}]},
       "results": [
         {"size": 1024, "count": 128, "type": "float", "redop": "none", "root": "-1",
          "out_of_place": {"time": 10.5, "alg_bw": 0.1, "bus_bw": 0.05, "nwrong": 0},
          "in_place": {"time": NaN, "alg_bw": 0, "bus_bw": 0, "nwrong": "N/A"},
          "out_of_place_per_iter": {"skipped_iterations": 1, "times_us": [99, 10, 11]}}]}
      """;

  @Test
  void readsJsonOfNcclTests() throws IOException {
    Run run = read("tests.json", TESTS_JSON);
    assertEquals(2, run.nranks());
    assertEquals("23007", run.facts().get("NCCL"));
    assertEquals(1, run.entries().size());
    Entry entry = run.entries().getFirst();
    assertEquals(new Entry.Key("allgather", "float", "none", "-1", false, 1024), entry.key());
    assertEquals(List.of(10.0, 11.0), entry.rounds());
    assertEquals(OptionalDouble.of(0.05), entry.busBw());
    assertTrue(entry.line().beforeNanos().isEmpty());
  }

  @Test
  void readsTables() throws IOException {
    String table;
    try (InputStream in =
        getClass().getResourceAsStream("/io/nccl4j/bench/output/timestamps.txt")) {
      table = new String(in.readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    }
    Run run = read("table.txt", table.replace("$", ""));
    assertEquals(2, run.nranks());
    assertEquals(6, run.entries().size());
    Entry first = run.entries().getFirst();
    assertEquals(new Entry.Key("allreduce", "float", "sum", "-1", false, 8), first.key());
    assertEquals(3.46, first.micros());
    assertEquals(OptionalDouble.of(238), first.line().afterNanos());
    Entry last = run.entries().getLast();
    assertTrue(last.key().inPlace());
    assertEquals(OptionalLong.of(3), last.wrong());
  }

  @Test
  void readsHostsAndNetworkOfJson() throws IOException {
    String form =
        """
        {"version": 3, "args": ["allreduce"], "network": %s,
         "config": {"devices": [%s]},
         "results": [{"size": 8, "out_of_place": {"time": 1}}]}
        """;
    String one = "{\"hostname\": \"n1\", \"host\": 0}";
    String two = "{\"hostname\": \"n1\", \"host\": 1}";
    String network =
        "{\"name\": \"netty (TCP)\", \"interface\": \"eth0\", \"address\": \"10.0.0.7\"}";
    Run run = read("hosts.json", form.formatted(network, String.join(",", one, two, one, one)));
    assertEquals("ranks 0,2-3 | 1", run.hosts());
    assertEquals("netty (TCP) on eth0", run.network());
    Run alone = read("alone.json", form.formatted("null", one + "," + one));
    assertEquals("ranks 0-1", alone.hosts());
    assertEquals("", alone.network());
    // As nccl-tests has it: names only, and not of all ranks.
    String name = "{\"hostname\": \"n1\"}";
    assertEquals("ranks 0", read("name.json", form.formatted("null", name)).hosts());
    assertEquals("", read("some.json", TESTS_JSON).hosts());
  }

  @Test
  void readsHostsAndNetworkOfTables() throws IOException {
    String table =
        """
        %s#
        # Using devices
        #  Rank  0 Group  0 Pid      1 on       n1 device  0 [host] x
        #  Rank  1 Group  0 Pid      2 on       %s device  0 [host] x
        #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
                   8             2     float     sum      -1     1.25    0.01    0.01       0      N/A     N/A     N/A    N/A
        """;
    String ours = "# Hosts 2: ranks 0 | 1\n# Network: netty (TCP) on eth0, 10.0.0.7\n";
    Run run = read("hosts.txt", table.formatted(ours, "n1"));
    assertEquals("ranks 0 | 1", run.hosts());
    assertEquals("netty (TCP) on eth0", run.network());
    assertEquals("ranks 0 | 1", read("names.txt", table.formatted("", "n2")).hosts());
    assertEquals("ranks 0-1", read("one.txt", table.formatted("", "n1")).hosts());
  }

  /** Older versions have fewer columns on the left. */
  @Test
  void readsTablesFromTheRight() throws IOException {
    Run run =
        read(
            "old.txt",
            """
            #       size         count    type     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
                 1048576        262144   float    81.2    12.91   22.60       0    80.1    13.09   22.91     N/A
            """);
    Entry out = run.entries().getFirst();
    assertEquals(new Entry.Key("", "", "", "", false, 1 << 20), out.key());
    assertEquals(81.2, out.micros());
    assertEquals(OptionalLong.empty(), run.entries().getLast().wrong());
  }

  @Test
  void readsPeers() throws IOException {
    Path file =
        Files.writeString(
            folder.resolve("peers.csv"),
            """
            peer,op,bytes,ranks,time_us,algbw,busbw,min_us,placement
            calib,line-one-way-ns,54.0,min,52.0
            openmpi,reduce_scatter,1024,2,0.500,2.048,1.024,0.450,near
            openmpi,reduce_scatter,1024,2,0.510,2.008,1.004,0.450,near
            mpich,reduce_scatter,1024,2,0.900,1.138,0.569,0.850,far
            """);
    List<Run> runs = new ResultFiles().add(file.toString()).runs();
    assertEquals(
        List.of("peers.csv#openmpi", "peers.csv#mpich"), runs.stream().map(Run::name).toList());
    assertEquals(2, runs.getFirst().entries().size());
    assertEquals("reducescatter", runs.getFirst().entries().getFirst().key().operation());
    List<Run> one = new ResultFiles().add(file + "#mpich").runs();
    assertEquals("peers.csv#mpich", one.getFirst().name());
    assertEquals(1, one.size());
    Entry far = one.getFirst().entries().getFirst();
    assertTrue(far.line().afterNanos().orElseThrow() > 200);
  }

  private static final String JMH =
      """
      [{"benchmark": "io.nccl4j.jmh.AllReduceBenchmark.allReduce", "mode": "avgt",
        "params": {"bytes": "8"},
        "primaryMetric": {"score": 210.5, "scoreError": "NaN", "scoreUnit": "ns/op"}}]
      """;

  @Test
  void readsJmhAndMakesAPage() throws IOException {
    Path jmh = Files.writeString(folder.resolve("jmh.json"), JMH);
    Path tests = Files.writeString(folder.resolve("te<s>ts.json"), TESTS_JSON);
    ResultFiles files = new ResultFiles().add(jmh.toString()).add(tests.toString());
    JmhScore score = files.scores().getFirst();
    assertEquals("AllReduceBenchmark.allReduce", score.benchmark());
    assertEquals("bytes=8", score.parameters());
    assertTrue(Double.isNaN(score.error()));
    String page = HtmlReport.of("A & B", files.runs(), files.scores());
    assertTrue(page.contains("<title>A &amp; B</title>"));
    assertTrue(page.contains("te&lt;s&gt;ts.json"));
    assertTrue(page.contains("data-tip=\"te&lt;s&gt;ts.json"));
    assertTrue(page.contains("prefers-color-scheme: dark"));
    assertTrue(page.contains("AllReduceBenchmark.allReduce"));
    // Nothing is loaded from elsewhere, and the environment stays where it is.
    assertFalse(page.matches("(?s).*(https?:|src=|@import|url\\().*"), page);
    assertFalse(page.contains("HOME="));
  }

  @Test
  void saysWhatItCannotRead() throws IOException {
    assertThrows(SystemErrorException.class, () -> new ResultFiles().add("/nonexistent.json"));
    for (String text : List.of("", "{}", "{", "[]", "hello", "{\"version\": 3}")) {
      Path file = Files.writeString(folder.resolve("bad"), text);
      InvalidArgumentException e =
          assertThrows(
              InvalidArgumentException.class, () -> new ResultFiles().add(file.toString()), text);
      assertTrue(e.getMessage().contains("bad"), e.getMessage());
    }
  }

  @Test
  void axesEndAtRoundNumbers() {
    assertEquals(1, LogChart.step(1.2, false), 1e-9);
    assertEquals(2, LogChart.step(1.2, true), 1e-9);
    assertEquals(500, LogChart.step(720, false), 1e-9);
    assertEquals(1000, LogChart.step(720, true), 1e-9);
    assertEquals("12.3", Units.number(12.34));
    assertEquals("0.00123", Units.number(0.001234));
    assertEquals("0.000123", Units.number(0.0001234));
    assertEquals("1.23e-05", Units.number(0.00001234));
    String chart =
        LogChart.svg(
            "t",
            "µs",
            List.of(new LogChart.Series("s", 0, false, List.of(new LogChart.Point(8, 3)))));
    assertFalse(chart.contains("NaN"), chart);
    assertTrue(LogChart.svg("t", "GB/s", List.of()).contains("no values above 0"));
  }
}
