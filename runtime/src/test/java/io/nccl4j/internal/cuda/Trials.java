package io.nccl4j.internal.cuda;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.Map;

/** Trials in a process of their own; each prints a line with its name and, if so, its failure. */
final class Trials {
  static final String COUNT = "TRIALS";
  static final String RESULT = "TRIAL";

  /** What is tried. */
  interface Trial {
    void run() throws Exception;
  }

  private final StandIn standIn;
  private final Map<String, Trial> trials = new LinkedHashMap<>();

  /** Sets the libraries, before anything uses them. */
  Trials(String[] arguments) {
    System.setProperty("nccl4j.cuda.library", arguments[0]);
    System.setProperty("nccl4j.nccl.library", arguments[1]);
    standIn = StandIn.require(Integer.parseInt(arguments[2]));
  }

  StandIn standIn() {
    return standIn;
  }

  void add(String name, Trial trial) {
    trials.put(name, trial);
  }

  /** Runs all of them. */
  void run() {
    System.out.println(COUNT + " " + trials.size());
    trials.forEach(
        (name, trial) -> {
          StringWriter failure = new StringWriter();
          try {
            trial.run();
          } catch (Throwable e) {
            e.printStackTrace(new PrintWriter(failure, true));
          }
          standIn.reset();
          System.out.println(
              RESULT + " " + name + " " + failure.toString().strip().replace("\n", "\\n"));
        });
  }
}
