package io.nccl4j.bench.data;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** The kernels of the measuring engine as PTX; their sources lie in {@code src/main/kernels}. */
public final class Ptx {
  private Ptx() {}

  /**
   * The text of a module.
   *
   * @param name of the file, without a folder
   */
  public static String read(String name) {
    try (InputStream in = Ptx.class.getResourceAsStream(name)) {
      if (in == null) {
        throw new IllegalStateException(name + " is not on the class path");
      }
      return new String(in.readAllBytes(), StandardCharsets.US_ASCII);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
