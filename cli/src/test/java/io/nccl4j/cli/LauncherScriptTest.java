package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The two scripts that start Java, with a Java that only prints its arguments. */
@Timeout(60)
@Tag("parallel")
final class LauncherScriptTest {
  private static final String VECTORS = "--add-modules jdk.incubator.vector ";

  @TempDir Path folder;

  @ParameterizedTest
  @ValueSource(strings = {"", "--help", "--version", "allreduce -h", "compare a b"})
  void whatNeedsNoVectorsIsNotWarnedOfThem(String line) throws Exception {
    for (String started : startedByBoth(line)) {
      assertTrue(started.endsWith(("io.nccl4j.cli.Main " + line).strip()), started);
      assertTrue(!started.contains("incubator"), started);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"allreduce -J compare", "selftest", "info", "doctor", "turns a b"})
  void whatReducesHasThem(String line) throws Exception {
    for (String started : startedByBoth(line)) {
      assertTrue(started.contains(VECTORS), started);
      // Vectors are used only with the optimizing compiler.
      assertFalse(started.contains("TieredStopAtLevel"), started);
    }
  }

  @Test
  void theUsersOptionsComeLast() throws Exception {
    for (String started : startedByBoth("allreduce")) {
      assertTrue(started.contains(VECTORS + "-Xmx1g -Da=b -cp "), started);
    }
  }

  private List<String> startedByBoth(String line) throws Exception {
    return List.of(started(checkout(), line), started(bundle(), line));
  }

  /** What a built checkout consists of, as far as its script looks. */
  private Path checkout() throws IOException {
    Path root = folder.resolve("checkout");
    for (String module : List.of("bindings", "runtime", "bench", "cli")) {
      Files.createDirectories(root.resolve(module + "/src/main"));
      Files.writeString(root.resolve(module + "/pom.xml"), "");
    }
    Files.createDirectories(root.resolve("bindings/src/generated"));
    Files.createDirectories(root.resolve("cli/target/lib"));
    Files.writeString(root.resolve("pom.xml"), "");
    for (String made : List.of("nccl4j-cli-1.jar", "built.stamp", "nccl4j-25.jsa.tried")) {
      Files.writeString(root.resolve("cli/target").resolve(made), "");
    }
    return copy(sources().resolve("nccl4j"), root.resolve("nccl4j"));
  }

  private Path bundle() throws IOException {
    java(folder.resolve("bundle/jre"));
    return copy(sources().resolve("cli/src/dist/bin/nccl4j"), folder.resolve("bundle/bin/nccl4j"));
  }

  private static Path copy(Path script, Path to) throws IOException {
    Files.createDirectories(to.getParent());
    return Files.copy(
        script, to, StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
  }

  private static Path java(Path home) throws IOException {
    Path java = home.resolve("bin/java");
    Files.createDirectories(java.getParent());
    Files.writeString(java, "#!/bin/sh\necho \"$*\"\n");
    Files.writeString(home.resolve("release"), "JAVA_VERSION=\"25.0.1\"\n");
    assertTrue(java.toFile().setExecutable(true));
    return home;
  }

  private String started(Path script, String line) throws Exception {
    List<String> command = new ArrayList<>(List.of(script.toString()));
    if (!line.isEmpty()) {
      command.addAll(List.of(line.split(" ")));
    }
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().put("NCCL4J_JAVA_HOME", java(folder.resolve("jdk")).toString());
    builder.environment().put("NCCL4J_JAVA_OPTS", "-Xmx1g -Da=b");
    Process process = builder.start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    return said.strip();
  }

  private static Path sources() {
    Path root = Path.of("").toAbsolutePath();
    while (!Files.exists(root.resolve("docs/cli.md"))) {
      root = root.getParent();
    }
    return root;
  }
}
