package io.nccl4j.cli;

import io.nccl4j.BackendUnavailableException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.openjdk.jmh.Main;
import picocli.CommandLine.Command;
import picocli.CommandLine.Parameters;

/** Hands everything to JMH, which starts a JVM for each benchmark. */
@Command(
    name = "jmh",
    description = "Measures what single calls cost, with JMH.",
    footer = {
      "",
      "Options are those of JMH: -l lists the benchmarks, -p NAME=VALUE[,...] sets a parameter,",
      "-rf json -rff FILE writes the results, -prof gc shows allocations."
    })
final class JmhCommand implements Runnable {
  @Parameters(
      arity = "0..*",
      paramLabel = "PATTERN or OPTION",
      description = "Regular expressions of the names of benchmarks, and options of JMH.")
  private List<String> arguments = new ArrayList<>();

  @Override
  public void run() {
    try {
      Main.main(arguments.toArray(String[]::new));
    } catch (NoClassDefFoundError e) {
      throw new BackendUnavailableException(
              "JMH is not in this bundle", "run ./nccl4j jmh where nccl4j was built, or its jar")
          .causedBy(e);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
