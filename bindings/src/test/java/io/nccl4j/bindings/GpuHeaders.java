package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assumptions.abort;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Finds the real headers of NCCL and CUDA, which the project does not hold. */
final class GpuHeaders {
  private static final List<String> KNOWN =
      List.of("/usr/include", "/usr/local/include", "/usr/local/cuda/include");

  private GpuHeaders() {}

  /** The folder of this header in this version; without it the test is skipped. */
  static Path find(String property, String header, String macro, int version) throws IOException {
    List<String> folders = new ArrayList<>(KNOWN);
    String setting = System.getProperty(property);
    if (setting != null) {
      folders = List.of(setting);
    }
    List<String> reasons = new ArrayList<>();
    for (String folder : folders) {
      Path file = Path.of(folder, header);
      if (!Files.exists(file)) {
        reasons.add("no " + file);
      } else if (Files.readString(file).contains("#define " + macro + " " + version + "\n")) {
        return file.getParent();
      } else {
        reasons.add(file + " is not of " + version);
      }
    }
    skipIf(true, String.join(", ", reasons) + "; -D" + property + "=FOLDER names another");
    throw new AssertionError();
  }

  /** As an assumption, and says on the console why. */
  static void skipIf(boolean missing, String reason) {
    if (missing) {
      System.out.println("skipped: " + reason);
      abort("skipped: " + reason);
    }
  }
}
