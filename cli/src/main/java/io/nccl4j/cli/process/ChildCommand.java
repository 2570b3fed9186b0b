package io.nccl4j.cli.process;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The command line of another JVM like this one: same Java, same options, same class path. */
public final class ChildCommand {
  private ChildCommand() {}

  /** The command that runs {@code main} with {@code arguments}. */
  public static List<String> of(Class<?> main, List<String> arguments) {
    List<String> command = new ArrayList<>();
    command.add(
        ProcessHandle.current()
            .info()
            .command()
            .orElse(Path.of(System.getProperty("java.home"), "bin", "java").toString()));
    command.addAll(options(ManagementFactory.getRuntimeMXBean().getInputArguments()));
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(main.getName());
    command.addAll(arguments);
    return command;
  }

  // A debugger's port can only be taken once.
  public static List<String> options(List<String> own) {
    return own.stream()
        .filter(o -> !o.startsWith("-agentlib:jdwp") && !o.startsWith("-Xrunjdwp"))
        .toList();
  }
}
