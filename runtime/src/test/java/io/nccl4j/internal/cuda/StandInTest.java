package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.abort;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The stand-ins pass their own test, and a release has only the functions it had. */
@SuppressWarnings("restricted")
@Tag("parallel")
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
    assertThrows(IllegalArgumentException.class, () -> standIn.live("nothing"));
    standIn.reset();
    assertEquals(0, standIn.calls("ncclGetVersion"));
  }

  /** A stream's thread, which Java does not know, calls Java, and the libraries share one state. */
  @Test
  void streamsCallJava() throws Throwable {
    StandIn standIn = StandIn.require();
    Map<String, Long> before = standIn.live();
    AtomicInteger calls = new AtomicInteger();
    MethodHandle increment =
        MethodHandles.publicLookup()
            .findVirtual(AtomicInteger.class, "incrementAndGet", MethodType.methodType(int.class))
            .bindTo(calls)
            .asType(MethodType.methodType(void.class));
    MethodHandle count = MethodHandles.dropArguments(increment, 0, MemorySegment.class);
    try (Arena arena = Arena.ofShared()) {
      MemorySegment function =
          Linker.nativeLinker()
              .upcallStub(count, FunctionDescriptor.ofVoid(ValueLayout.ADDRESS), arena);
      MemorySegment context = arena.allocate(ValueLayout.ADDRESS);
      MemorySegment stream = arena.allocate(ValueLayout.ADDRESS);
      assertEquals(0, (int) cuda(standIn, "cuInit", ValueLayout.JAVA_INT).invokeExact(0));
      assertEquals(
          0,
          (int)
              cuda(standIn, "cuDevicePrimaryCtxRetain", ValueLayout.ADDRESS, ValueLayout.JAVA_INT)
                  .invokeExact(context, 7));
      MemorySegment ctx = context.get(ValueLayout.ADDRESS, 0);
      assertEquals(0, (int) cuda(standIn, "cuCtxSetCurrent", ValueLayout.ADDRESS).invokeExact(ctx));
      assertEquals(
          0,
          (int)
              cuda(standIn, "cuStreamCreate", ValueLayout.ADDRESS, ValueLayout.JAVA_INT)
                  .invokeExact(stream, 1));
      assertEquals(before.getOrDefault("stream", 0L) + 1, standIn.live("stream"));
      MemorySegment handle = stream.get(ValueLayout.ADDRESS, 0);
      MethodHandle launch =
          cuda(
              standIn,
              "cuLaunchHostFunc",
              ValueLayout.ADDRESS,
              ValueLayout.ADDRESS,
              ValueLayout.ADDRESS);
      for (int i = 0; i < 100; i++) {
        assertEquals(0, (int) launch.invokeExact(handle, function, MemorySegment.NULL));
      }
      MethodHandle synchronize = cuda(standIn, "cuStreamSynchronize", ValueLayout.ADDRESS);
      assertEquals(0, (int) synchronize.invokeExact(handle));
      assertEquals(100, calls.get());
      assertEquals(
          0, (int) cuda(standIn, "cuStreamDestroy_v2", ValueLayout.ADDRESS).invokeExact(handle));
      assertEquals(
          0,
          (int) cuda(standIn, "cuDevicePrimaryCtxRelease_v2", ValueLayout.JAVA_INT).invokeExact(7));
    }
    assertEquals(before, standIn.live());
  }

  private static MethodHandle cuda(StandIn standIn, String name, MemoryLayout... parameters) {
    return Linker.nativeLinker()
        .downcallHandle(
            standIn.cudaSymbols().find(name).orElseThrow(),
            FunctionDescriptor.of(ValueLayout.JAVA_INT, parameters));
  }

  private static void assertAbsent(int version, List<String> names) {
    SymbolLookup symbols = StandIn.require(version).ncclSymbols();
    assertTrue(symbols.find("ncclAllReduce").isPresent());
    for (String name : names) {
      assertFalse(symbols.find(name).isPresent(), version + " has " + name);
    }
  }
}
