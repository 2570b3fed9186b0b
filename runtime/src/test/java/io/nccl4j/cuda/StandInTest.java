package io.nccl4j.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.SymbolLookup;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The stand-ins pass their own test, and a release has only the functions it had. */
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

  private static void assertAbsent(int version, List<String> names) {
    SymbolLookup symbols = StandIn.require(version).ncclSymbols();
    assertTrue(symbols.find("ncclAllReduce").isPresent());
    for (String name : names) {
      assertFalse(symbols.find(name).isPresent(), version + " has " + name);
    }
  }
}
