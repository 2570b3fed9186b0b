package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The real driver has what the bindings ask for; skipped where it isn't installed. */
class RealCudaTest {
  @BeforeEach
  void requireDriver() {
    if (GpuLibrary.CUDA.load() instanceof LibraryNotFound notFound) {
      GpuHeaders.skipIf(true, notFound.message());
    }
  }

  @Test
  void aDriverOfTheFloorHasEveryFunction() throws Exception {
    int version = GpuLibrary.CUDA.version();
    GpuHeaders.skipIf(version < 12010, "the driver is of " + version);
    assertEquals(
        List.of(),
        ManifestTest.chosen("function", "cuda.options").stream()
            .filter(name -> !GpuLibrary.CUDA.has(name))
            .toList());
  }
}
