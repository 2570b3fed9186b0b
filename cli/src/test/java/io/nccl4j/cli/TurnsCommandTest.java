package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Commands in shells that take turns. */
@Tag("process")
@Timeout(240)
class TurnsCommandTest {
  private static final String SHORT = "allreduce --backend host -b 64K -e 64K -n 5 -w 0 -t 2";

  @TempDir Path folder;

  private static String command(String line) {
    return Jvm.command(line).stream()
        .map(word -> "'" + word + "'")
        .collect(Collectors.joining(" "));
  }

  private Run turns(String base, String changed, String... more) {
    List<String> words =
        List.of("turns", base, changed, "-o", folder.resolve("results").toString());
    return Run.of(Map.of(), Stream.concat(words.stream(), Stream.of(more)).toArray(String[]::new));
  }

  private JsonNode json(String name) throws IOException {
    return new ObjectMapper().readTree(folder.resolve("results").resolve(name).toFile());
  }

  private List<String> files() throws IOException {
    try (Stream<Path> files = Files.list(folder.resolve("results"))) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  @Test
  void measuresInTurnsAndCompares() throws IOException {
    String one = command(SHORT);
    String other = command(SHORT.replace("-t 2", "--procs 2"));
    Run run = turns(one, other, "-n", "2", "--json");
    assertEquals(0, run.code(), run::toString);
    assertEquals(
        List.of("nccl4j: turns, 1 of 2 pairs", "nccl4j: turns, 2 of 2 pairs"), run.errLines());
    assertEquals(
        List.of(
            "base-1.json",
            "base-1.txt",
            "base-2.json",
            "base-2.txt",
            "changed-1.json",
            "changed-1.txt",
            "changed-2.json",
            "changed-2.txt"),
        files());
    for (int pair = 1; pair <= 2; pair++) {
      JsonNode base = json("base-" + pair + ".json");
      JsonNode changed = json("changed-" + pair + ".json");
      assertFalse(base.path("turns").asText().isEmpty());
      assertEquals(base.get("turns"), changed.get("turns"));
      for (JsonNode side : List.of(base, changed)) {
        assertEquals(30, side.at("/results/0/in_place/rounds_us").size(), side::toString);
      }
    }
    assertFalse(json("base-1.json").get("turns").equals(json("base-2.json").get("turns")));
    JsonNode found = new ObjectMapper().readTree(run.out().substring(run.out().indexOf('{')));
    assertEquals(2, found.get("lines").size(), run::toString);
    assertEquals(2, found.at("/lines/0/base_runs").asInt(), run::toString);
  }

  @Test
  void runsWholeCommandsInTurns() throws IOException {
    String one = command(SHORT);
    Run run = turns(one, one, "-n", "1", "--whole");
    assertTrue(List.of(0, 8, 9).contains(run.code()), run::toString);
    assertTrue(json("base-1.json").path("turns").isMissingNode());
    String base = json("base-1.json").get("end_time").asText();
    assertTrue(base.compareTo(json("changed-1.json").get("start_time").asText()) <= 0);
  }

  @Test
  void endsBothWhenOneFails() throws Exception {
    long before = ProcessHandle.current().descendants().count();
    Run run = turns(command(SHORT), "echo no such thing >&2; exit 5; ", "-n", "1");
    assertEquals(3, run.code(), run::toString);
    assertTrue(run.err().contains("ended with exit code 5"), run::toString);
    assertTrue(run.err().contains("its last line: no such thing"), run::toString);
    assertEquals(before, ProcessHandle.current().descendants().count());
    assertFalse(files().stream().anyMatch(name -> name.startsWith("turns-")), "its file is left");
  }

  /** After the first pair, not after all. */
  @Test
  void refusesRunsThatCannotBeCompared() throws IOException {
    String two = command(SHORT);
    Run run = turns(two, two.replaceFirst("'-t' '2'", "-t 3"), "-n", "2");
    assertError("different numbers of ranks: [2, 3]", run);
    assertFalse(files().contains("base-2.json"), files()::toString);
  }

  @Test
  void refusesCommandsThatDoNotMeasure() {
    assertError("wrote no results; name a command", turns("true", "true", "-n", "1"));
  }

  @Test
  void refusesCommandsThatTakeNoTurns() {
    assertError("took no turns", turns("f() { : >\"$2\"; }; f", "true", "-n", "1"));
  }

  @Test
  void refusesAFolderWithResults() throws IOException {
    Files.createDirectories(folder.resolve("results/old"));
    assertError("is not empty; name a new folder", turns("true", "true"));
    Files.delete(folder.resolve("results/old"));
    Files.delete(folder.resolve("results"));
    Files.createFile(folder.resolve("results"));
    assertError("cannot use the folder", turns("true", "true"));
  }

  private static void assertError(String part, Run run) {
    assertEquals(3, run.code(), run::toString);
    assertTrue(run.err().contains(part), run::toString);
  }
}
