package io.nccl4j.internal.host.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/** Runs src/jcstress, with jcstress from Maven Central. Skipped where Maven cannot get it. */
@Tag("long")
@Timeout(value = 1800, threadMode = ThreadMode.SEPARATE_THREAD)
final class MemoryOrderTest {
  private static final Path SOURCES = Path.of("src/jcstress").toAbsolutePath();
  private static final Path SOURCE =
      SOURCES.resolve("io/nccl4j/internal/host/layout/MemoryOrder.java");
  private static final String JAVA =
      Path.of(System.getProperty("java.home"), "bin", "java").toString();
  private static final String NATIVE_ACCESS = "--enable-native-access=ALL-UNNAMED";

  @TempDir static Path jars;
  @TempDir Path folder;

  @BeforeAll
  static void getJcstress() throws Exception {
    Path log = Files.createTempFile(jars, "maven", ".log");
    int exit =
        run(
            log,
            jars,
            List.of(
                "mvn",
                "-B",
                "-q",
                "-f",
                SOURCES.toString(),
                "dependency:copy-dependencies",
                "-DoutputDirectory=" + jars));
    String said = Files.readString(log);
    assumeTrue(exit == 0, () -> "jcstress cannot be had: " + said);
  }

  private static int run(Path log, Path where, List<String> command) throws Exception {
    Process process =
        new ProcessBuilder(command)
            .directory(where.toFile())
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    try {
      assertTrue(process.waitFor(1500, TimeUnit.SECONDS), () -> command + " does not end");
      return process.exitValue();
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  /** Compiles a source and runs its tests; the exit code says whether one has failed. */
  private int stress(Path source, String tests, Path log) throws Exception {
    Path classes = Files.createDirectory(folder.resolve("classes"));
    String classPath = System.getProperty("java.class.path");
    String all = classes + File.pathSeparator + jars + "/*" + File.pathSeparator + classPath;
    List<String> compile = new ArrayList<>();
    compile.add(Path.of(JAVA).resolveSibling("javac").toString());
    compile.addAll(List.of("-proc:full", "-cp", all, "-d", classes.toString(), source.toString()));
    assertEquals(0, run(log, folder, compile), () -> read(log));
    return run(
        log,
        folder,
        List.of(
            JAVA,
            NATIVE_ACCESS,
            "-cp",
            all,
            "org.openjdk.jcstress.Main",
            "-m",
            "quick",
            "-t",
            tests,
            "--jvmArgsPrepend",
            NATIVE_ACCESS));
  }

  private static String read(Path log) {
    try {
      return Files.readString(log);
    } catch (IOException e) {
      return e.toString();
    }
  }

  @Test
  void everyRuleHolds() throws Exception {
    Path log = folder.resolve("log");
    assertEquals(0, stress(SOURCE, "MemoryOrder", log), () -> read(log));
    String said = read(log);
    assertTrue(said.contains(" 0 failed, 0 soft errs, 0 hard errs"), said);
    int rules = Files.readString(SOURCE).split("@JCStressTest", -1).length - 1;
    assertTrue(said.contains("All remaining tests: " + rules + " matching"), said);
  }

  /** Any processor reorders a store and the load behind it. */
  @Test
  void aMissingFenceIsNoticed() throws Exception {
    Path log = folder.resolve("log");
    Path without = folder.resolve("MemoryOrder.java");
    String source = Files.readString(SOURCE);
    String fence = "VarHandle.fullFence();";
    assertTrue(source.contains(fence));
    Files.writeString(without, source.replace(fence, ""));
    assertNotEquals(0, stress(without, "OneOfTwoLeaving", log), () -> read(log));
    assertTrue(read(log).contains("[FAILED]"), () -> read(log));
  }
}
