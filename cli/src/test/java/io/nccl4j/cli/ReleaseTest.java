package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import picocli.CommandLine;

/**
 * A release that goes to a folder: complete, built twice with the same bytes, and used by a project
 * that knows nothing else. Copies of the tree are built, so that the tree itself stays as it is.
 */
@Tag("packaged")
@Tag("long")
@Timeout(3600)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
final class ReleaseTest {
  /** No real version: Maven keeps it apart in the local repository, until it is removed. */
  private static final String VERSION = "0.0.0-staged";

  private static final long MAVEN_SECONDS = 1500;
  private static final Set<String> MODULES = Set.of("bindings", "runtime", "bench", "cli");

  @TempDir static Path folder;

  private Path tree;
  private Path staging;

  @BeforeAll
  void stage() throws Exception {
    forget();
    tree = copy("first");
    staging = folder.resolve("staging");
    maven(tree, Map.of(), "-DaltDeploymentRepository=staging::" + staging.toUri(), "deploy");
  }

  @AfterAll
  void forget() throws IOException {
    for (Path artifact : list(localRepository().resolve("io/nccl4j"))) {
      delete(artifact.resolve(VERSION));
    }
  }

  @Test
  void everyArtifactHasWhatMavenCentralDemands() throws IOException {
    Set<String> expected = new TreeSet<>(Set.of("nccl4j-parent.pom", "nccl4j-bom.pom"));
    for (String module : MODULES) {
      for (String file : List.of(".pom", ".jar", "-sources.jar", "-javadoc.jar")) {
        expected.add("nccl4j-" + module + file);
      }
    }
    Set<String> found = new TreeSet<>();
    for (Path file : published()) {
      String name = file.getFileName().toString();
      assertTrue(Files.exists(file.resolveSibling(name + ".sha1")), name);
      assertTrue(Files.exists(file.resolveSibling(name + ".md5")), name);
      found.add(name.replace("-" + VERSION, ""));
      if (name.endsWith(".pom")) {
        String pom = Files.readString(file);
        Set<String> demanded = new TreeSet<>(Set.of("name", "description"));
        if (!pom.contains("<parent>")) {
          demanded.addAll(Set.of("url", "license", "developer", "scm", "connection"));
        }
        demanded.removeIf(
            element -> pom.contains("<" + element + ">") || pom.contains("<" + element + " "));
        assertEquals(Set.of(), demanded, name);
        assertFalse(pom.contains("SNAPSHOT") || pom.contains("<publish.url/>"), name);
      }
    }
    assertEquals(expected, found);
  }

  /** In another folder, time zone and language. */
  @Test
  void twoBuildsHaveTheSameBytes() throws Exception {
    Path second = copy("second");
    maven(second, Map.of("TZ", "Asia/Tokyo", "LC_ALL", "C"), "package");
    int jars = 0;
    for (String module : MODULES) {
      for (Path jar : list(tree.resolve(module).resolve("target"))) {
        if (jar.toString().endsWith(".jar")) {
          assertEquals(
              -1, Files.mismatch(jar, second.resolve(tree.relativize(jar))), jar::toString);
          jars++;
        }
      }
    }
    assertTrue(jars > 3 * MODULES.size(), "only " + jars);
  }

  @Test
  void aProjectDependsOnIt() throws Exception {
    Path project = folder.resolve("consumer");
    copy(Consumer.SOURCES, project);
    ProcessBuilder maven =
        new ProcessBuilder(
            "mvn",
            "-B",
            "-Dstaging=" + staging.toUri(),
            "-Dstaged.version=" + VERSION,
            "process-classes");
    maven.environment().put("JAVA_HOME", System.getProperty("java.home"));
    Consumer.output(maven.directory(project.toFile()), MAVEN_SECONDS);
    List<Path> jars = list(project.resolve("target/dependency"));
    assertEquals(
        Set.of("jspecify", "log4j-api", "nccl4j-bindings", "nccl4j-runtime"),
        jars.stream()
            .map(jar -> jar.getFileName().toString().replaceFirst("-\\d.*", ""))
            .collect(Collectors.toSet()));
    new Consumer(project.resolve("target/classes"), jars).runs(VERSION, folder.resolve("image"));
  }

  @Test
  void aSnapshotIsNoRelease() throws Exception {
    Path snapshot = copy("snapshot");
    replace(snapshot, "<version>" + VERSION + "</version>", "<version>0.0.1-SNAPSHOT</version>");
    AssertionError refused =
        assertThrows(AssertionError.class, () -> maven(snapshot, Map.of(), "-N", "validate"));
    assertTrue(refused.getMessage().contains("a release is no snapshot"), refused.getMessage());
  }

  // ---------------------------------------------------------------- trees and Maven

  private List<Path> published() throws IOException {
    try (Stream<Path> files = Files.walk(staging)) {
      return files.filter(file -> file.toString().matches(".*\\.(jar|pom)")).toList();
    }
  }

  private static void maven(Path tree, Map<String, String> environment, String... arguments)
      throws Exception {
    List<String> command = new ArrayList<>(List.of("mvn", "-B", "-q", "-Prelease"));
    command.addAll(
        List.of("-Dgpg.skip", "-Dexec.skip", "-Dmaven.test.skip", "-Dmaven.install.skip"));
    command.addAll(List.of(arguments));
    ProcessBuilder maven = new ProcessBuilder(command).directory(tree.toFile());
    maven.environment().putAll(environment);
    Consumer.output(maven, MAVEN_SECONDS);
  }

  /** A copy of the sources, as they are after the step that sets version and address. */
  private Path copy(String name) throws IOException {
    Path copy = folder.resolve(name);
    copy(Consumer.root(), copy);
    String pom = Files.readString(copy.resolve("pom.xml"));
    String version =
        pom.substring(pom.indexOf("<version>"), pom.indexOf("</version>")) + "</version>";
    replace(copy, version, "<version>" + VERSION + "</version>");
    replace(copy, "<publish.url/>", "<publish.url>https://example.org/nccl4j</publish.url>");
    return copy;
  }

  private static void replace(Path tree, String old, String by) throws IOException {
    for (String module : List.of("", "bindings/", "runtime/", "runtime/bom/", "bench/", "cli/")) {
      Path pom = tree.resolve(module + "pom.xml");
      Files.writeString(pom, Files.readString(pom).replace(old, by));
    }
  }

  private static void copy(Path from, Path to) throws IOException {
    try (Stream<Path> files = Files.walk(from)) {
      for (Path file : files.toList()) {
        Path path = from.relativize(file);
        boolean isMade =
            Stream.iterate(path, part -> part != null, Path::getParent)
                .map(part -> part.getFileName().toString())
                .anyMatch(part -> part.equals("target") || part.equals(".git"));
        if (!isMade && Files.isDirectory(file)) {
          Files.createDirectories(to.resolve(path));
        } else if (!isMade) {
          Files.copy(file, to.resolve(path));
        }
      }
    }
  }

  /** Where Maven keeps what it has resolved: the class path comes from there. */
  private static Path localRepository() {
    try {
      Path jar =
          Path.of(CommandLine.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      // The repository's info/picocli/picocli/4.7.7/picocli-4.7.7.jar
      return jar.resolve("../../../../..").normalize();
    } catch (URISyntaxException e) {
      throw new AssertionError(e);
    }
  }

  private static List<Path> list(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return List.of();
    }
    try (Stream<Path> files = Files.list(folder)) {
      return files.toList();
    }
  }

  private static void delete(Path folder) throws IOException {
    if (!Files.exists(folder)) {
      return;
    }
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(ReleaseTest::deleteOne);
    }
  }

  private static void deleteOne(Path file) {
    try {
      Files.delete(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
