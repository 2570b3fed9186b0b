package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Pages.Block;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/**
 * The program of docs/examples/pytorch, with PyTorch from Maven Central: it prints what the page
 * shows, whatever the number of ranks, threads or processes. Skipped where Maven cannot get it.
 */
@Tag("long")
@Timeout(value = 900, threadMode = ThreadMode.SEPARATE_THREAD)
final class TensorExampleTest {
  private static final Path SOURCES = Pages.ROOT.resolve("docs/examples/pytorch");

  @TempDir static Path classes;
  @TempDir Path folder;

  private static Path jars;
  private static List<String> shown;

  @BeforeAll
  static void getAndCompile() throws Exception {
    jars = Pages.ROOT.resolve("runtime/target/pytorch").toAbsolutePath();
    Path log = classes.resolve("log");
    Process maven =
        new ProcessBuilder(
                "mvn",
                "-B",
                "-q",
                "-f",
                SOURCES.toString(),
                "dependency:copy-dependencies",
                "-DoutputDirectory=" + jars)
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    boolean ended = maven.waitFor(600, TimeUnit.SECONDS);
    maven.destroyForcibly();
    String said = Files.readString(log);
    assumeTrue(ended && maven.exitValue() == 0, () -> "PyTorch cannot be had: " + said);
    String classPath =
        System.getProperty("java.class.path") + File.pathSeparator + String.join(":", jarFiles());
    Pages.compile(classes, List.of(SOURCES.resolve("TensorTraining.java")), "-cp", classPath);
    List<Block> blocks = Pages.blocks(ExamplesTest.PAGE);
    Block command = ExamplesTest.commands("TensorTraining").getFirst();
    shown = blocks.get(blocks.indexOf(command) + 1).text().lines().toList();
  }

  private static List<String> jarFiles() throws Exception {
    try (java.util.stream.Stream<Path> files = Files.list(jars)) {
      return files.map(Path::toString).sorted().toList();
    }
  }

  private List<String> run(String command) throws Exception {
    // What JavaCPP unpacks goes with the build.
    String cache = "-Dorg.bytedeco.javacpp.cachedir=" + jars.resolveSibling("javacpp");
    String programs = classes + File.pathSeparator + jars + "/*";
    return ExamplesTest.run(command, 300, folder, programs, List.of("-Xmx512m", cache));
  }

  @Test
  void anyNumberOfThreadsLearnsTheSame() throws Exception {
    assertEquals(3, shown.size());
    assertTrue(shown.getLast().endsWith("true"), shown::getLast);
    for (int threads = 1; threads <= 3; threads++) {
      assertEquals(shown, run("java --enable-native-access=ALL-UNNAMED TensorTraining " + threads));
    }
  }

  @Test
  void processesLearnTheSame() throws Exception {
    String command =
        """
        for rank in 0 1; do
          NCCL4J_JOB=tensor-$$ NCCL4J_RANK=$rank NCCL4J_NRANKS=2 \\
            java --enable-native-access=ALL-UNNAMED TensorTraining &
        done
        wait
        """;
    assertEquals(shown, run(command));
  }
}
