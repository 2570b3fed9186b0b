package io.nccl4j.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * In bench and cli one package knows the machine: no other one names files of {@code /proc} and
 * {@code /sys}.
 */
class MachineRoomTest {
  private static final Path BENCH = Path.of("src/main/java");
  private static final Path CLI = Path.of("../cli/src/main/java");
  private static final Path ROOM = BENCH.resolve("io/nccl4j/bench/machine");
  private static final Pattern NAME = Pattern.compile("\"/?(proc|sys)[/\"]");

  @Test
  void onlyTheRoomOfTheMachineNamesThem() throws IOException {
    List<String> elsewhere = new ArrayList<>();
    boolean found = false;
    List<Path> files = new ArrayList<>();
    for (Path sources : List.of(BENCH, CLI)) {
      try (Stream<Path> all = Files.walk(sources)) {
        all.filter(file -> file.toString().endsWith(".java")).forEach(files::add);
      }
    }
    for (Path file : files) {
      for (String line : Files.readAllLines(file)) {
        if (NAME.matcher(line).find()) {
          found |= file.startsWith(ROOM);
          if (!file.startsWith(ROOM)) {
            elsewhere.add(file + ": " + line.strip());
          }
        }
      }
    }
    assertEquals(List.of(), elsewhere);
    assertTrue(found, "the pattern finds nothing");
  }
}
