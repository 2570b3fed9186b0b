package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.cli.process.ChildCommand;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The first sizes of a long sweep are measured when their code is compiled. */
@Tag("long")
@Tag("process")
@Timeout(120)
class WarmSizesTest {
  /** How much longer than in place, which is measured next. Code that is not compiled takes 20. */
  private static final double MOST = 5;

  @TempDir Path folder;

  @Test
  void manySizesLeaveTimeForTheSmallOnes() throws Exception {
    Path json = folder.resolve("run.json");
    String line = "allreduce --backend host -t 2 -b 16 -e 64M -f 4 --no-rotate -J " + json;
    Process run =
        new ProcessBuilder(ChildCommand.of(Main.class, List.of(line.split(" "))))
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("out").toFile())
            .start();
    assertEquals(0, run.waitFor(), () -> "" + folder.resolve("out"));
    JsonNode results = new ObjectMapper().readTree(Files.readString(json)).get("results");
    for (int i = 0; i < 4; i++) {
      JsonNode size = results.get(i);
      double outOfPlace = size.at("/out_of_place/time").doubleValue();
      double inPlace = size.at("/in_place/time").doubleValue();
      assertTrue(outOfPlace > 0 && outOfPlace < MOST * inPlace, size::toString);
      assertTrue(inPlace < MOST * results.get(4).at("/in_place/time").doubleValue(), "" + results);
    }
  }
}
