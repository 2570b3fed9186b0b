package io.nccl4j.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.abort;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The stand-ins pass their own test, and a release has only the functions it had. */
@SuppressWarnings("restricted")
class StandInTest {
  @ParameterizedTest
  @ValueSource(ints = {StandIn.NCCL_2_18, StandIn.NCCL_2_19, StandIn.NCCL_2_30})
  void selfTestPasses(int version) throws Exception {
    StandIn standIn = StandIn.require(version);
    Process process =
        new ProcessBuilder(standIn.selfTest().toString()).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(60, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue(), output);
  }

  @Test
  void oldReleasesLackNewFunctions() {
    assertAbsent(
        StandIn.NCCL_2_18,
        List.of("ncclMemAlloc", "ncclCommRegister", "ncclCommInitRankScalable", "ncclAlltoAll"));
    assertAbsent(
        StandIn.NCCL_2_19,
        List.of(
            "ncclGroupSimulateEnd",
            "ncclCommInitRankScalable",
            "ncclCommWindowRegister",
            "ncclAlltoAll",
            "ncclCommRevoke",
            "ncclPutSignal",
            "ncclCommMemStats",
            "ncclParamBind"));
    SymbolLookup newest = StandIn.require(StandIn.NCCL_2_30).ncclSymbols();
    for (String name : List.of("ncclAlltoAll", "pncclAlltoAll", "ncclCommMemStats")) {
      assertTrue(newest.find(name).isPresent(), name);
    }
  }

  @Test
  void declarationsHaveTheRealSizes() {
    StandIn.require();
    assertEquals("", StandIn.compare(List.of()).complaints());
  }

  /** Where there are headers of CUDA 13.0 and NCCL 2.30.7 the compiler compares each function. */
  @Test
  void declarationsAreTheRealOnes() throws Exception {
    StandIn.require();
    Path cuda = header("nccl4j.test.cuda.include", "cuda.h", "CUDA_VERSION 13000");
    Path nccl = header("nccl4j.test.nccl.include", "nccl.h", "NCCL_VERSION_CODE 23007");
    StandIn.Comparison comparison = StandIn.compare(List.of(cuda, nccl));
    assertEquals("", comparison.complaints());
    assertTrue(comparison.functions() > 170, comparison.toString());
  }

  private static Path header(String property, String name, String version) throws IOException {
    String places = System.getProperty(property, "/usr/local/cuda/include:/usr/include");
    for (String place : places.split(":")) {
      Path file = Path.of(place, name);
      if (Files.exists(file) && Files.readString(file).contains("#define " + version)) {
        return Path.of(place);
      }
    }
    String reason = "no " + name + " of " + version + " in " + places + ", see -D" + property;
    System.out.println("skipped: " + reason);
    return abort(reason);
  }

  @Test
  void controlWorks() throws Throwable {
    StandIn standIn = StandIn.require();
    standIn.reset();
    MethodHandle getVersion =
        Linker.nativeLinker()
            .downcallHandle(
                standIn.ncclSymbols().find("ncclGetVersion").orElseThrow(),
                FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS));
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
      standIn.inject("ncclGetVersion", 2, StandIn.Fault.ERROR, 5);
      assertEquals(0, (int) getVersion.invokeExact(version));
      assertEquals(5, (int) getVersion.invokeExact(version));
      assertEquals(0, (int) getVersion.invokeExact(version));
      assertEquals(StandIn.NCCL_2_30, version.get(ValueLayout.JAVA_INT, 0));
      assertEquals(3, standIn.calls("ncclGetVersion"));
      assertEquals(0, standIn.calls("ncclGetUniqueId"));
    }
    assertEquals(0, standIn.live("comm"));
    assertThrows(IllegalArgumentException.class, () -> standIn.live("nothing"));
    standIn.reset();
    assertEquals(0, standIn.calls("ncclGetVersion"));
  }

  private static void assertAbsent(int version, List<String> names) {
    SymbolLookup symbols = StandIn.require(version).ncclSymbols();
    assertTrue(symbols.find("ncclAllReduce").isPresent());
    for (String name : names) {
      assertFalse(symbols.find(name).isPresent(), version + " has " + name);
    }
  }
}
