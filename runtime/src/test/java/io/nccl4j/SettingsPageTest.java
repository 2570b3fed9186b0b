package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** docs/settings.md lists what the sources read: no variable and no property more or less. */
@Tag("parallel")
final class SettingsPageTest {
  private static final Pattern VARIABLE = Pattern.compile("\\b(NCCL4J_[A-Z0-9_]+)\\b");
  private static final Pattern PROPERTY = Pattern.compile("[\"`](nccl4j\\.[a-z][a-z.-]+)[\"`]");

  /** What one part of nccl4j tells another one. */
  private static final Set<String> INTERNAL = Set.of("NCCL4J_TERMINAL", "NCCL4J_PROCS_CHILD");

  private static final List<String> SOURCES =
      List.of(
          "bindings/src/main",
          "runtime/src/main",
          "bench/src/main",
          "cli/src/main",
          "cli/src/dist");

  private static Set<String> found(Pattern pattern, String text) {
    Set<String> names = new TreeSet<>();
    pattern.matcher(text).results().map(match -> match.group(1)).forEach(names::add);
    return names;
  }

  private static String sources() throws IOException {
    StringBuilder all = new StringBuilder(Files.readString(Pages.ROOT.resolve("nccl4j")));
    for (String folder : SOURCES) {
      try (Stream<Path> files = Files.walk(Pages.ROOT.resolve(folder))) {
        for (Path file : files.filter(Files::isRegularFile).toList()) {
          if (!file.toString().endsWith(".ptx")) {
            all.append(Files.readString(file));
          }
        }
      }
    }
    return all.toString();
  }

  @Test
  void allThatIsReadIsListed() throws IOException {
    String sources = sources();
    String page = Files.readString(Pages.ROOT.resolve("docs/settings.md"));
    Set<String> read = found(VARIABLE, sources);
    read.removeAll(INTERNAL);
    Set<String> listed = found(VARIABLE, page);
    listed.remove("NCCL4J_");
    assertEquals(read, listed);
    assertEquals(found(PROPERTY, sources), found(PROPERTY, page));
  }
}
