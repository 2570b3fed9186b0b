package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.w3c.dom.Document;
import org.w3c.dom.NodeList;

/** Whole commands in this process, on the host backend. */
@Timeout(120)
@Tag("parallel")
class MainTest {
  @TempDir Path folder;

  @Test
  void versionNamesBothVersions() {
    Run run = Run.of("--version");
    assertEquals(0, run.code());
    assertTrue(run.out().startsWith("nccl4j "), run.out());
    assertTrue(run.out().contains("Java " + Runtime.version()), run.out());
  }

  @Test
  void measuresAllReduce() throws IOException {
    Path file = folder.resolve("run.json");
    Run run =
        Run.ofLine(
            Map.of("NCCL_DEBUG", "WARN", "SECRET", "x"),
            "all_reduce_perf --backend host -t 2 -b 8 -e 128 -f 4 -n 5 -w 0 -d double -J " + file);
    assertEquals(0, run.code(), run.err());
    assertEquals("", run.err());
    assertTrue(run.out().startsWith("# Writing JSON output to " + file + "\n"), run.out());
    List<String> rows = run.out().lines().filter(line -> !line.startsWith("#")).toList();
    assertEquals(3, rows.size(), run.out());
    assertEquals("0", rows.getLast().strip().split(" +")[12]);
    JsonNode json = new ObjectMapper().readTree(Files.newInputStream(file));
    assertEquals(3, json.get("results").size());
    assertEquals("NCCL_DEBUG=WARN", json.at("/env/0").textValue());
    assertEquals("all_reduce_perf", json.at("/args/0").textValue());
  }

  @Test
  void comparesAndReports() throws Exception {
    String lines = "a,allreduce,%d,2,%s,1.0,1.0,1.0,near%n";
    StringBuilder base = new StringBuilder();
    StringBuilder slow = new StringBuilder();
    for (int i = 0; i < 6; i++) {
      for (int size : new int[] {8, 1024}) {
        base.append(String.format(Locale.ROOT, lines, size, 1 + i / 100.0));
        slow.append(String.format(Locale.ROOT, lines, size, 1.1 + i / 100.0));
      }
    }
    Path one = Files.writeString(folder.resolve("one.csv"), base);
    Path two = Files.writeString(folder.resolve("two.csv"), slow);
    Run same = Run.of("compare", one.toString(), one.toString());
    assertEquals(0, same.code(), same.toString());
    assertTrue(same.out().endsWith("# same: 2 same\n"), same.out());
    Run worse = Run.of("compare", one.toString(), two.toString());
    assertEquals(8, worse.code(), worse.toString());
    assertTrue(worse.out().endsWith("# worse: 2 worse\n"), worse.out());
    Run json = Run.of("compare", "--json", two.toString(), one.toString());
    assertEquals(0, json.code(), json.toString());
    assertEquals(
        "better", new ObjectMapper().readTree(json.out()).at("/lines/0/verdict").textValue());
    Path far = Files.writeString(folder.resolve("f.csv"), slow.toString().replace("near", "far"));
    assertEquals(9, Run.of("compare", one.toString(), far.toString()).code());

    Path page = folder.resolve("page.html");
    Run report = Run.of("report", one.toString(), two.toString(), "-o", page.toString());
    assertEquals(0, report.code(), report.toString());
    assertTrue(Files.readString(page).startsWith("<!DOCTYPE html>"));
    assertEquals(3, Run.of("report", "/nonexistent", "-o", page.toString()).code());
    Path picture = folder.resolve("picture.svg");
    Run drawn =
        Run.of("report", "a<b=" + one, "-o", page.toString(), "--picture", picture.toString());
    assertEquals(0, drawn.code(), drawn.toString());
    Document svg =
        DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(picture.toFile());
    assertEquals("svg", svg.getDocumentElement().getTagName());
    NodeList texts = svg.getElementsByTagName("text");
    assertTrue(texts.item(texts.getLength() - 1).getTextContent().startsWith("a<b"));
  }

  @Test
  void infoOfHostIsUsable() throws IOException {
    Run run = Run.of("info", "--backend", "host", "--json");
    assertEquals(0, run.code(), run.err());
    JsonNode json = new ObjectMapper().readTree(run.out());
    assertTrue(json.get("usable").booleanValue(), run.out());
    assertEquals(1, json.get("backends").size());
    assertEquals("host", json.at("/backends/0/backend").textValue());
    assertEquals(0, json.at("/backends/0/libraries").size());
    int processors = Runtime.getRuntime().availableProcessors();
    assertTrue(
        json.at("/backends/0/facts/processors").textValue().startsWith(processors + ""), run.out());
  }

  @Test
  void showsHowOperationsAreCarriedOut() throws IOException {
    Run text = Run.of("info", "--tuning", "--nranks", "4");
    assertEquals(0, text.code(), text.err());
    List<String> lines = text.out().lines().filter(line -> line.startsWith("allReduce ")).toList();
    assertTrue(
        lines.getFirst().matches("allReduce +0 +1536 +any +flat +ll +1536 +one exchange.*"),
        text.out());
    assertTrue(lines.get(1).matches("allReduce +1537 .* share +direct +1M .*"), text.out());

    Run json = Run.of("info", "--tuning", "--json", "--proto", "direct");
    assertEquals(0, json.code(), json.err());
    JsonNode first = new ObjectMapper().readTree(json.out()).at("/tuning/0");
    assertEquals("allReduce", first.get("operation").textValue());
    assertEquals("direct", first.get("proto").textValue());
    assertEquals(0, first.get("least_bytes").intValue());
    assertTrue(first.get("most_bytes").isNull());

    Run cuda = Run.of("info", "--tuning", "--backend", "cuda");
    assertEquals(0, cuda.code(), cuda.err());
    assertTrue(cuda.out().contains("NCCL chooses"), cuda.out());
  }

  @Test
  void refusesWhatIsForcedAndCannotBe() {
    Run small =
        Run.ofLine(Map.of(), "allreduce --backend host -t 2 -b 8 -e 8 -n 2 -w 0 --proto ll");
    assertEquals(0, small.code(), small.err());
    Run large =
        Run.ofLine(Map.of(), "allreduce --backend host -t 2 -b 4K -e 4K -n 2 -w 0 --proto ll");
    assertEquals(3, large.code(), large.err());
    assertTrue(large.err().contains("allReduce of 4096 B cannot be done"), large.err());
  }

  @Test
  void measuresSendRecvOnOneRank() {
    Run run = Run.ofLine(Map.of(), "sendrecv --backend host -b 1K -e 1K -n 2 -w 0");
    assertEquals(0, run.code(), run.err());
    assertTrue(run.out().contains("N/A"), run.out());
  }

  /** In a JVM of its own: it collects garbage 60 times, which takes long where there is much. */
  @Test
  @Tag("process")
  void showsThatNoRoomIsLost() throws Exception {
    try (Jvm jvm = Jvm.start(folder, "leak", Map.of(), "selftest fifo-leak -n 100")) {
      int code = jvm.await();
      String out = Files.readString(jvm.out());
      String err = Files.readString(jvm.err());
      assertEquals(0, code, out + err);
      List<String> rows = out.lines().filter(line -> !line.startsWith("#")).toList();
      assertEquals(6, rows.size(), out);
      assertTrue(rows.getFirst().startsWith(" published           2 threads"), out);
      assertTrue(rows.get(4).startsWith(" smallest FIFO       8 threads"), out);
      assertTrue(out.endsWith("# OK: nothing is lost\n"), out);
      assertTrue(
          err.contains("nccl4j: fifo-leak, 2 ranks, published: 100 of 100 iterations, "), err);
    }
  }

  @Test
  void failuresHaveTheirExitCodes() {
    assertEquals(4, ExitCode.of(new DeadlineException("late", "")).number());
    assertEquals(3, ExitCode.of(new BackendUnavailableException("none", "")).number());
    assertEquals(3, ExitCode.of(new InvalidArgumentException("bad", "")).number());
    assertEquals(1, ExitCode.of(new IllegalStateException("bug")).number());
  }

  /** What was searched is a list, and the remedy is not a part of it. */
  @Test
  void aMissingLibrarysRemedyHasALineOfItsOwn() throws Exception {
    Map<String, String> nowhere = Map.of("NCCL4J_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
    try (Jvm jvm = Jvm.start(folder, "cuda", nowhere, "allreduce --backend cuda")) {
      assertEquals(3, jvm.await());
      assertEquals(
          List.of(
              "nccl4j: cannot load libcuda.so.1; searched:",
              "  setting: /nowhere/libcuda.so.1: no such file",
              "install NVIDIA's driver (in a container, start it with --gpus all), or name the file"
                  + " in NCCL4J_CUDA_LIBRARY or -Dnccl4j.cuda.library"),
          Files.readAllLines(jvm.err()));
    }
  }

  @Test
  void aFailureIsOneLineUnlessVerbose() {
    Map<String, String> environment =
        Map.of("NCCL4J_RANK", "0", "NCCL4J_NRANKS", "2", "NCCL4J_UNIQUE_ID", "not an id");
    Run run = Run.ofLine(environment, "allreduce");
    assertEquals(3, run.code());
    assertEquals(1, run.errLines().size(), run.err());
    assertTrue(run.err().startsWith("nccl4j: not a unique id"), run.err());
    assertFalse(run.err().contains("\tat "));
    Run verbose = Run.ofLine(environment, "allreduce --verbose");
    assertEquals(3, verbose.code());
    assertTrue(verbose.err().contains("\tat "), verbose.err());
  }
}
