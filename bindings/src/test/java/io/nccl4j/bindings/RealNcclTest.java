package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What the real NCCL answers without a GPU; skipped where it isn't installed. */
class RealNcclTest {
  private static final int HEADER_VERSION = 23007;

  @BeforeEach
  void requireNccl() {
    if (GpuLibrary.NCCL.load() instanceof LibraryNotFound notFound) {
      GpuHeaders.skipIf(true, notFound.message());
    }
  }

  @Test
  void versionAndTexts() {
    assertTrue(GpuLibrary.NCCL.version() >= 21900, "version " + GpuLibrary.NCCL.version());
    assertEquals("no error", text(Nccl.ncclGetErrorString(Nccl.ncclSuccess())));
    String invalid = text(Nccl.ncclGetErrorString(Nccl.ncclInvalidArgument()));
    assertTrue(invalid.startsWith("invalid argument"), invalid);
  }

  @Test
  void everyFunctionIsThere() throws Exception {
    GpuHeaders.skipIf(
        GpuLibrary.NCCL.version() < HEADER_VERSION, "NCCL is older than the bindings");
    List<String> functions = ManifestTest.chosen("function", "nccl.options");
    assertTrue(functions.size() > 60);
    assertEquals(List.of(), functions.stream().filter(name -> !GpuLibrary.NCCL.has(name)).toList());
  }

  /** The id goes by value; NCCL looks at it only after it has found a GPU. */
  @Test
  void uniqueIdAndTheFailureWithoutAGpu() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment first = ncclUniqueId.allocate(arena);
      MemorySegment second = ncclUniqueId.allocate(arena);
      assertEquals(Nccl.ncclSuccess(), Nccl.ncclGetUniqueId(first));
      assertEquals(Nccl.ncclSuccess(), Nccl.ncclGetUniqueId(second));
      assertNotEquals(-1, first.mismatch(second));
      GpuHeaders.skipIf(GpuLibrary.CUDA.load() instanceof LoadedLibrary, "there may be a GPU");
      MemorySegment communicator = arena.allocate(ADDRESS);
      MemorySegment config = ncclConfig_v23000.allocate(arena);
      NcclStructs.fillConfig(config);
      assertEquals(
          Nccl.ncclUnhandledCudaError(),
          Nccl.ncclCommInitRankConfig(communicator, 1, first, 0, config));
      assertNotEquals("", text(Nccl.ncclGetLastError(MemorySegment.NULL)));
      assertEquals(
          Nccl.ncclInvalidArgument(),
          Nccl.ncclCommCount(MemorySegment.NULL, arena.allocate(JAVA_INT)));
    }
  }

  private static String text(MemorySegment text) {
    return MemoryAccess.ofAddress(text.address(), 1024).getString(0);
  }
}
