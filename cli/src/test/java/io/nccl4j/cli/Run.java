package io.nccl4j.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** A command line that was run in this process, and what came of it. */
record Run(int code, String out, String err) {
  static Run of(String... arguments) {
    return of(Map.of(), arguments);
  }

  static Run of(Map<String, String> environment, String... arguments) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    int code = new Main(environment, print(out), print(err)).run(arguments);
    return new Run(
        code, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
  }

  static Run ofLine(Map<String, String> environment, String line) {
    return of(environment, line.isBlank() ? new String[0] : line.split(" "));
  }

  private static PrintStream print(ByteArrayOutputStream to) {
    return new PrintStream(to, true, StandardCharsets.UTF_8);
  }

  List<String> errLines() {
    return err.lines().toList();
  }
}
