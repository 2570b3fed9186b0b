package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.bootstrap.ChildJvm;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which libraries are taken, and what those who have others are told; a process for each. */
@Tag("process")
class CudaVersionTest {
  private static String run(int version, Map<String, String> environment, String... options)
      throws Exception {
    StandIn standIn = StandIn.require(version);
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.add("--enable-native-access=ALL-UNNAMED");
    command.add("-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider");
    command.add("-Dnccl4j.cuda.library=" + standIn.cuda());
    command.add("-Dnccl4j.nccl.library=" + standIn.nccl());
    command.addAll(List.of(options));
    command.addAll(ChildJvm.classPath());
    command.addAll(List.of(CudaVersionMain.class.getName(), Integer.toString(version)));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(30, TimeUnit.SECONDS), output);
    assertEquals(0, process.exitValue(), output);
    return output;
  }

  private static void requireText(String output, String... words) {
    for (String word : words) {
      assertTrue(output.contains(word), () -> "'" + word + "' is not in:\n" + output);
    }
  }

  @Test
  void oldNcclIsRefused() throws Exception {
    requireText(
        run(StandIn.NCCL_2_18, Map.of()),
        "unavailable NCCL is 2.18.5, nccl4j needs 2.19.0 or newer",
        "| install a newer NCCL, or name one with NCCL4J_NCCL_LIBRARY",
        "again NCCL is 2.18.5");
  }

  @ParameterizedTest(name = "{0}={1}")
  @CsvSource(
      delimiter = '|',
      value = {
        "STANDIN_CUDA_DRIVER | 12000 | the driver supports CUDA 12.0, nccl4j needs 12.1 or newer"
            + " | update NVIDIA's driver to 530 or newer",
        "STANDIN_CUDA_DEVICES | 0 | there is no GPU that CUDA can use | CUDA_VISIBLE_DEVICES",
        "STANDIN_FAULT | cuInit:1:error:100 | there is no GPU that CUDA can use"
            + " | CUDA_VISIBLE_DEVICES",
        "STANDIN_FAULT | cuInit:1:error:999 | cuInit failed with CUDA_ERROR_UNKNOWN | nvidia-smi",
        "STANDIN_FAULT | cuDeviceGetCount:0:error:999 | cuDeviceGetCount failed with"
            + " CUDA_ERROR_UNKNOWN | nvidia-smi",
        "STANDIN_FAULT | cuDriverGetVersion:0:error:34 | cuDriverGetVersion of"
            + " | install NVIDIA's driver",
        "STANDIN_FAULT | ncclGetVersion:0:error:3 | ncclGetVersion of"
            + " | name another file with NCCL4J_NCCL_LIBRARY",
      })
  void unusableIsRefused(String variable, String value, String problem, String remedy)
      throws Exception {
    requireText(
        run(StandIn.NCCL_2_30, Map.of(variable, value)), "unavailable ", problem, remedy, "again ");
  }

  @Test
  void libraryIsMissing() throws Exception {
    requireText(
        run(StandIn.NCCL_2_30, Map.of(), "-Dnccl4j.nccl.library=/nowhere/libnccl.so.2"),
        "unavailable ",
        "/nowhere/libnccl.so.2",
        "install NCCL",
        "NCCL4J_NCCL_LIBRARY or -Dnccl4j.nccl.library");
    requireText(
        run(StandIn.NCCL_2_30, Map.of(), "-Dnccl4j.cuda.library=/nowhere/libcuda.so.1"),
        "unavailable ",
        "/nowhere/libcuda.so.1",
        "install NVIDIA's driver");
  }

  /** The oldest release: what it lacks is done with sends and receives. */
  @Test
  void oldestNcclWorks() throws Exception {
    String output = run(StandIn.NCCL_2_19, Map.of());
    requireResults(output);
    requireText(
        output,
        "calls ncclAlltoAll 0",
        "calls ncclGather 0",
        "calls ncclScatter 0",
        "float8 allReduce: NCCL 21903 has no",
        "NCCL 2.24.3 or newer");
    assertTrue(!output.contains("calls ncclSend 0"), output);
  }

  @Test
  void newestNcclWorks() throws Exception {
    String output = run(StandIn.NCCL_2_30, Map.of());
    requireResults(output);
    requireText(
        output,
        "calls ncclAlltoAll 2",
        "calls ncclGather 2",
        "calls ncclScatter 2",
        "calls ncclSend 0");
  }

  /** The stand-in takes a configuration only as NCCL does: with its magic, size and markers. */
  private static void requireResults(String output) {
    requireText(
        output,
        "allToAll 0 [0, 10]",
        "allToAll 1 [1, 11]",
        "gather 1 [0, 10]",
        "scatter 0 [0]",
        "scatter 1 [1]");
    assertEquals(3, output.split("nothing was thrown", -1).length, output);
    // The old stand-in loses elements as the old NCCL does.
    assertEquals(1 + 8 * 4, output.split(": 0 wrong", -1).length, output);
  }
}
