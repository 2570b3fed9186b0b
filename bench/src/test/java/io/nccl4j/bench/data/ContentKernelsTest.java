package io.nccl4j.bench.data;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.internal.cuda.StandIn;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Over the stand-in for CUDA, whose kernels are compiled from the same source as the PTX; or on a
 * GPU, with {@code -Dnccl4j.test.standin=false}.
 */
class ContentKernelsTest {
  private static final Path SOURCES = Path.of("src", "main", "kernels");

  private static Device gpu() {
    if (Boolean.parseBoolean(System.getProperty("nccl4j.test.standin", "true"))) {
      StandIn standIn = StandIn.require();
      System.setProperty("nccl4j.cuda.library", standIn.cuda().toString());
      System.setProperty("nccl4j.nccl.library", standIn.nccl().toString());
    }
    return Device.get(Backend.CUDA, 0);
  }

  @ParameterizedTest
  @EnumSource
  void doesWhatTheHostDoes(DataType type) {
    Device device = gpu();
    try (ContentKernels kernels = new ContentKernels()) {
      ContentKernelsTrial trial = new ContentKernelsTrial(device, kernels);
      assertEquals(List.of(), trial.differences(type, ContentKernelsTrial.COUNT));
    }
  }

  @Test
  void hostDevicesHaveNone() {
    try (ContentKernels kernels = new ContentKernels()) {
      assertNull(kernels.on(Device.get(Backend.HOST, 0)));
    }
  }

  /** As the script left them. */
  @ParameterizedTest
  @CsvSource({"contents, 2", "device, 9"})
  void nobodyEditedThePtx(String manifest, int count) throws Exception {
    List<String> files =
        Files.readAllLines(SOURCES.resolve(manifest + ".manifest")).stream()
            .filter(line -> line.startsWith("file "))
            .toList();
    assertEquals(count, files.size(), files::toString);
    for (String line : files) {
      String[] words = line.split(" ");
      byte[] digest =
          MessageDigest.getInstance("SHA-256")
              .digest(Files.readAllBytes(SOURCES.resolve(words[2])));
      assertEquals(
          words[1],
          HexFormat.of().formatHex(digest),
          words[2] + " is not as in the manifest: run " + SOURCES + "/regenerate " + manifest);
    }
  }

  /** Old enough for the oldest driver and GPU. */
  @Test
  void theOldestDriversTakeIt() throws Exception {
    String ptx = Files.readString(SOURCES.resolve("contents.ptx"));
    assertTrue(ptx.contains("\n.version 6.0\n") && ptx.contains("\n.target sm_70\n"));
  }
}
