package io.nccl4j.arch;

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

/** One package knows the machine: no other one names files of {@code /proc} and {@code /sys}. */
class MachineFilesTest {
  private static final Path SOURCES = Path.of("src/main/java");
  private static final Path ROOM = SOURCES.resolve("io/nccl4j/internal/machine");
  private static final Pattern NAME = Pattern.compile("\"/?(proc|sys)[/\"]");

  @Test
  void onlyTheRoomOfTheMachineNamesThem() throws IOException {
    List<String> elsewhere = new ArrayList<>();
    boolean found = false;
    List<Path> files;
    try (Stream<Path> all = Files.walk(SOURCES)) {
      files = all.filter(file -> file.toString().endsWith(".java")).toList();
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
