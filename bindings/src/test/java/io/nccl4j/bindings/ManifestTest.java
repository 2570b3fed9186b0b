package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The generated sources, and what they are generated from, are those of the manifest. */
class ManifestTest {
  static final Path ROOT = Path.of("src", "generated");

  @Test
  void nobodyEditedTheGeneratedFiles() throws Exception {
    Map<String, String> recorded =
        Files.readAllLines(ROOT.resolve("manifest")).stream()
            .map(line -> line.split(" "))
            .filter(words -> words[0].equals("file"))
            .collect(Collectors.toMap(words -> words[2], words -> words[1]));
    Map<String, String> found = new TreeMap<>();
    try (Stream<Path> files = Files.walk(ROOT)) {
      files
          .filter(file -> Files.isRegularFile(file) && !isOurs(file.getFileName().toString()))
          .forEach(file -> found.put(ROOT.relativize(file).toString(), hash(file)));
    }
    assertTrue(found.size() > 30, found.size() + " files");
    TreeSet<String> different = new TreeSet<>(recorded.keySet());
    different.addAll(found.keySet());
    different.removeIf(file -> Objects.equals(recorded.get(file), found.get(file)));
    assertEquals(Set.of(), different, "not as in the manifest: run src/generated/regenerate");
  }

  /** The names of this kind that an option file takes. */
  static List<String> chosen(String kind, String options) throws IOException {
    String option = "--include-" + kind + " ";
    return Files.readAllLines(ROOT.resolve(options)).stream()
        .filter(line -> line.startsWith(option))
        .map(line -> line.substring(option.length()))
        .toList();
  }

  private static boolean isOurs(String name) {
    return name.equals("README.md") || name.equals("manifest") || name.equals("regenerate");
  }

  private static String hash(Path file) {
    try {
      return HexFormat.of()
          .formatHex(MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file)));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }
}
