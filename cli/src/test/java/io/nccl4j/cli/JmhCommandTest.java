package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What JMH is handed, and what shells complete. */
@Timeout(120)
class JmhCommandTest {
  @TempDir Path folder;

  /** JMH's options reach it, and its results have the form that the documentation describes. */
  @Test
  void runsABenchmarkAndWritesJson() throws Exception {
    Path file = folder.resolve("results.json");
    String line =
        "jmh LatencyBenchmark -p operation=ALL_REDUCE -p bytes=8 -f 0 -wi 0 -i 1 -r 50ms"
            + " -rf json -rff "
            + file;
    try (Jvm jvm = Jvm.start(folder, "jmh", Map.of(), line)) {
      assertEquals(0, jvm.await(), jvm::said);
      JsonNode results = new ObjectMapper().readTree(file.toFile());
      assertEquals(1, results.size(), jvm::said);
      JsonNode result = results.get(0);
      assertEquals("io.nccl4j.jmh.LatencyBenchmark.latency", result.get("benchmark").textValue());
      assertEquals("ALL_REDUCE", result.at("/params/operation").textValue());
      assertEquals("8", result.at("/params/bytes").textValue());
      assertEquals("ns/op", result.at("/primaryMetric/scoreUnit").textValue());
      assertTrue(result.at("/primaryMetric/score").doubleValue() > 0);
    }
  }

  @Test
  void bashCompletesCommandsAndOptions() throws Exception {
    Run run = Run.of("completion", "bash");
    assertEquals(0, run.code(), run.err());
    Path script = Files.writeString(folder.resolve("nccl4j.bash"), run.out());
    String ask =
        "source "
            + script
            + "; COMP_WORDS=(nccl4j %s); COMP_CWORD=%d; _complete_nccl4j; echo \"${COMPREPLY[@]}\"";
    assertEquals("allreduce", bash(ask.formatted("allr", 1)));
    assertTrue(List.of(bash(ask.formatted("allreduce --n", 2)).split(" ")).contains("--nthreads"));
  }

  private String bash(String script) throws Exception {
    Process bash = new ProcessBuilder("bash", "-c", script).redirectErrorStream(true).start();
    String out = new String(bash.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    assertTrue(bash.waitFor(20, TimeUnit.SECONDS));
    return out;
  }

  @Test
  void zshLearnsBashsWay() {
    Run run = Run.of("completion", "zsh");
    assertEquals(0, run.code(), run.err());
    assertTrue(run.out().startsWith("autoload -U +X compinit && compinit\n"), run.out());
    assertTrue(run.out().contains("bashcompinit"));
  }

  @Test
  void anUnknownShellIsABadOption() {
    Run run = Run.of("completion", "fish");
    assertEquals(ExitCode.BAD_OPTION.number(), run.code());
    assertTrue(run.err().contains("fish"), run.err());
  }
}
