package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The program of {@code src/test/consumer}, compiled, and what it runs with. */
record Consumer(Path classes, List<Path> jars) {
  private static final String MODULE = "org.example.consumer";
  private static final String MAIN = MODULE + ".TwoRanks";
  private static final long SECONDS = 60;

  /** Its sources. */
  static final Path SOURCES = root().resolve("cli/src/test/consumer");

  /** The project's folder. */
  static Path root() {
    Path folder = Path.of("").toAbsolutePath();
    while (!Files.exists(folder.resolve("CHANGELOG.md"))) {
      folder = folder.getParent();
    }
    return folder;
  }

  /** Runs it on the class path, as a module, and as an image of its own: each says the version. */
  void runs(String version, Path image) throws Exception {
    assertEquals(
        version + ", class path: 3.0 4.0\n",
        output(java("--enable-native-access=ALL-UNNAMED", "-cp", path(), MAIN)));
    assertEquals(
        version + ", module: 3.0 4.0\n",
        output(
            java(
                "--enable-native-access=io.nccl4j.bindings",
                "-p",
                path(),
                "-m",
                MODULE + "/" + MAIN)));
    output(
        tool("jlink"),
        "--module-path",
        path(),
        "--add-modules",
        MODULE,
        "--output",
        image.toString());
    assertEquals(
        version + ", module: 3.0 4.0\n",
        output(
            image.resolve("bin/java").toString(),
            "--enable-native-access=io.nccl4j.bindings",
            "-m",
            MODULE + "/" + MAIN));
  }

  private String path() {
    return Stream.concat(Stream.of(classes), jars.stream())
        .map(Path::toString)
        .reduce((a, b) -> a + File.pathSeparator + b)
        .orElseThrow();
  }

  private static String[] java(String... arguments) {
    return Stream.concat(Stream.of(tool("java"), "-XX:TieredStopAtLevel=1"), Stream.of(arguments))
        .toArray(String[]::new);
  }

  /** A tool of this JDK. */
  static String tool(String name) {
    return Path.of(System.getProperty("java.home"), "bin", name).toString();
  }

  /** What it prints, errors included; it must end well. */
  static String output(String... command) throws IOException, InterruptedException {
    return output(new ProcessBuilder(command), SECONDS);
  }

  /** The same, with its environment and folder, within some seconds. */
  static String output(ProcessBuilder builder, long seconds)
      throws IOException, InterruptedException {
    Path log = Files.createTempFile("output", ".log");
    try {
      Process process = builder.redirectErrorStream(true).redirectOutput(log.toFile()).start();
      boolean ended = process.waitFor(seconds, TimeUnit.SECONDS);
      if (!ended) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
      }
      String printed = Files.readString(log);
      assertTrue(ended, () -> builder.command() + " runs after " + seconds + " s: " + printed);
      assertEquals(0, process.exitValue(), () -> builder.command() + ": " + printed);
      return printed;
    } finally {
      Files.delete(log);
    }
  }
}
