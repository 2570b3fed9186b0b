package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the two libraries are looked for, with stand-ins that know nothing but their version. */
class GpuLibraryTest {
  private static final Map<String, Integer> VERSIONS =
      Map.of("ncclGetVersion", 21900, "cuDriverGetVersion", 12010);

  @TempDir Path directory;

  /** Loads both in a process of its own. */
  static final class Loading {
    private Loading() {}

    public static void main(String[] arguments) {
      for (GpuLibrary library : GpuLibrary.values()) {
        LibraryResult result = library.load();
        assertTrue(result == library.load());
        switch (result) {
          case LoadedLibrary loaded -> printVersion(library, loaded);
          case LibraryNotFound notFound -> System.out.println(library + " " + notFound.message());
        }
        System.out.println(library.has("ncclGetVersion") + " " + library.has("cuDriverGetVersion"));
      }
    }
  }

  private static void printVersion(GpuLibrary library, LoadedLibrary loaded) {
    try {
      System.out.println(
          library + " " + loaded.source() + " " + loaded.path() + " " + library.version());
    } catch (IllegalStateException e) {
      System.out.println(e.getMessage());
    }
  }

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private Path standIn(String name, String function, int error) throws Exception {
    GpuHeaders.skipIf(!LibcHeaderTest.hasCompiler(), "no C compiler named cc");
    Path source = directory.resolve(function + ".c");
    Files.writeString(
        source,
        "int %s(int *version) { *version = %d; return %d; }%n"
            .formatted(function, VERSIONS.get(function), error));
    Path library = directory.resolve(name);
    Files.createDirectories(library.getParent());
    Process compiler =
        new ProcessBuilder("cc", "-shared", "-fPIC", "-o", library.toString(), source.toString())
            .inheritIO()
            .start();
    assertEquals(0, compiler.waitFor());
    return library;
  }

  private static List<String> load(Map<String, String> environment, String... options)
      throws IOException, InterruptedException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:+UseSerialGC", "-Xmx64m", "--enable-native-access=ALL-UNNAMED"));
    command.addAll(List.of(options));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Loading.class.getName()));
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
    builder.environment().keySet().removeIf(name -> name.startsWith("NCCL4J_"));
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), output);
    return output.lines().toList();
  }

  @Test
  void thePropertyGoesBeforeTheVariable() throws Exception {
    Path nccl = standIn("my-nccl.so", "ncclGetVersion", 0);
    Path cuda = standIn("libcuda.so.1", "cuDriverGetVersion", 0);
    assertEquals(
        List.of(
            "NCCL SETTING " + nccl + " 21900",
            "true false",
            "CUDA SETTING " + cuda + " 12010",
            "false true"),
        load(
            Map.of("NCCL4J_NCCL_LIBRARY", "/none", "NCCL4J_CUDA_LIBRARY", directory.toString()),
            "-Dnccl4j.nccl.library=" + nccl));
  }

  @Test
  void aRefusedVersionIsAnError() throws Exception {
    Path cuda = standIn("libcuda.so.1", "cuDriverGetVersion", 34);
    List<String> output = load(Map.of("LD_LIBRARY_PATH", directory.toString()));
    String expected = "cuDriverGetVersion of " + cuda + " fails with error 34";
    assertTrue(output.contains(expected), output.toString());
  }

  @Test
  void theLibraryPathServes() throws Exception {
    Path nccl = standIn("libnccl.so.2", "ncclGetVersion", 0);
    Path cuda = standIn("libcuda.so.1", "cuDriverGetVersion", 0);
    List<String> output = load(Map.of("LD_LIBRARY_PATH", "/none:" + directory));
    assertEquals("NCCL LD_LIBRARY_PATH " + nccl + " 21900", output.get(0));
    assertEquals("CUDA LD_LIBRARY_PATH " + cuda + " 12010", output.get(2));
  }

  @Test
  void aVirtualEnvironmentServes() throws Exception {
    String below = "/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
    Path nccl = standIn("my[1]env" + below, "ncclGetVersion", 0);
    String environment = directory + "/my[1]env";
    List<String> patterns = GpuLibrary.NCCL.wellKnown(Map.of("VIRTUAL_ENV", environment));
    assertTrue(
        patterns.stream()
            .flatMap(pattern -> NativeLibraries.expand(pattern).stream())
            .toList()
            .contains(nccl),
        patterns.toString());
    assertFalse(
        GpuLibrary.CUDA.wellKnown(Map.of("VIRTUAL_ENV", environment)).toString().contains("env"));
  }

  @Test
  void thePythonInThePathServes() throws Exception {
    Path python = directory.resolve("py/bin/python3");
    Files.createDirectories(python.getParent());
    Files.createFile(python);
    assertTrue(python.toFile().setExecutable(true));
    String path = "/none/bin:relative::" + python.getParent();
    List<String> patterns = GpuLibrary.NCCL.wellKnown(Map.of("PATH", path, "HOME", "/h"));
    assertTrue(
        patterns.contains(
            directory + "/py/local/lib/python3*/{site,dist}-packages/nvidia/nccl/lib/libnccl.so.2"),
        patterns.toString());
    assertTrue(patterns.contains("/h/.local/lib/libnccl.so.2"), patterns.toString());
  }

  @Test
  void anAbsentLibraryIsAnAnswer() throws Exception {
    List<String> output =
        load(Map.of(), "-Dnccl4j.nccl.library=/none/nccl", "-Dnccl4j.cuda.library=/none/cuda");
    assertEquals(
        List.of(
            "NCCL cannot load libnccl.so.2; searched:",
            "  setting: /none/nccl: no such file",
            "false false",
            "CUDA cannot load libcuda.so.1; searched:",
            "  setting: /none/cuda: no such file",
            "false false"),
        output);
  }
}
