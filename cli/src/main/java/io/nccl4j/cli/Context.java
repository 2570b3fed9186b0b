package io.nccl4j.cli;

import java.io.PrintStream;
import java.util.Map;

/**
 * What a command may use of the process it runs in.
 *
 * @param environment the variables
 * @param out gets results
 * @param err gets everything else
 * @param main the class that other processes start with
 */
record Context(Map<String, String> environment, PrintStream out, PrintStream err, Class<?> main) {
  /** Set by the launcher if the standard error is a terminal, which Java cannot find out. */
  static final String TERMINAL = "NCCL4J_TERMINAL";

  /** This one with other variables. */
  Context withEnvironment(Map<String, String> other) {
    return new Context(other, out, err, main);
  }

  /** Whether {@link #err} is a terminal. */
  boolean hasTerminal() {
    return environment.containsKey(TERMINAL);
  }
}
