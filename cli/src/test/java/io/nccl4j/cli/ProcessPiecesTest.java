package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.cli.process.ChildCommand;
import io.nccl4j.cli.process.LineRelay;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;

class ProcessPiecesTest {
  @Test
  void childrenAreLikeTheirParent() {
    List<String> command = ChildCommand.of(Main.class, List.of("allreduce", "-b", "8"));
    assertTrue(command.getFirst().endsWith("java"), command.getFirst());
    int at = command.indexOf("-cp");
    assertEquals(
        List.of(
            "-cp",
            System.getProperty("java.class.path"),
            "io.nccl4j.cli.Main",
            "allreduce",
            "-b",
            "8"),
        command.subList(at, command.size()));
  }

  @Test
  void childrenDoNotTakeTheDebuggersPort() {
    assertEquals(
        List.of("-Xmx1g", "--enable-native-access=ALL-UNNAMED"),
        ChildCommand.options(
            List.of(
                "-agentlib:jdwp=transport=dt_socket,server=y,address=5005",
                "-Xmx1g",
                "--enable-native-access=ALL-UNNAMED")));
  }

  @Test
  void linesGetTheirRank() throws InterruptedException {
    String said = "WARNING: Using incubator modules: jdk.incubator.vector\none\ntwo";
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    LineRelay.start(
            new ByteArrayInputStream(said.getBytes(StandardCharsets.UTF_8)),
            "[rank 3] ",
            new PrintStream(err, true, StandardCharsets.UTF_8))
        .join();
    assertEquals(
        List.of("[rank 3] one", "[rank 3] two"),
        err.toString(StandardCharsets.UTF_8).lines().toList());
  }
}
