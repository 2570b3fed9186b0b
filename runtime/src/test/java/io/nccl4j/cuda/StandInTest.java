package io.nccl4j.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

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
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The stand-ins pass their own test, and a release has only the functions it had. */
@SuppressWarnings("restricted")
class StandInTest {
  /** {@code -Dnccl4j.test.headers} names directories, separated by colons. */
  private static final List<Path> HEADERS =
      Stream.of(
              System.getProperty("nccl4j.test.headers", "").split(":"),
              new String[] {"/usr/local/cuda/include", "/usr/include"})
          .flatMap(Stream::of)
          .filter(place -> !place.isEmpty())
          .map(Path::of)
          .toList();

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

  /** Where there are headers of CUDA and NCCL: the compiler compares each function. */
  @Test
  void declarationsAreTheRealOnes() {
    StandIn.require();
    List<Path> headers = new ArrayList<>();
    for (String file : List.of("cuda.h", "nccl.h")) {
      Optional<Path> directory =
          HEADERS.stream().filter(place -> Files.exists(place.resolve(file))).findFirst();
      assumeTrue(directory.isPresent(), "no " + file + " in " + HEADERS);
      headers.add(directory.get());
    }
    StandIn.Comparison comparison = StandIn.compare(headers);
    assertEquals("", comparison.complaints());
    assertTrue(comparison.functions() > 170, comparison.toString());
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
