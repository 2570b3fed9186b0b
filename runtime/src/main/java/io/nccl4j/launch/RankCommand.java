package io.nccl4j.launch;

import io.nccl4j.InvalidArgumentException;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * The program of the ranks, in a shell that waits for a line on its standard input before it
 * becomes the program. So the program never runs without the {@link Guard} knowing it: if this
 * process is killed before, the shell reads an end and exits.
 */
final class RankCommand {
  /** What the shell waits for. */
  static final byte[] GO = {'\n'};

  private static final String GATE = "read -r go && exec \"$@\" </dev/null";

  /** Shells pass on only variables that they could have themselves. */
  private static final Pattern SHELL_NAME = Pattern.compile("[A-Za-z_][A-Za-z0-9_]*");

  private RankCommand() {}

  /** A builder of the process; its environment is complete. */
  static ProcessBuilder of(List<String> program, Path directory, Map<String, String> environment) {
    checkProgram(program.getFirst(), directory, environment.getOrDefault("PATH", ""));
    List<String> command = new ArrayList<>(List.of("setsid", "sh", "-c", GATE, "nccl4j-rank"));
    List<String> odd =
        environment.entrySet().stream()
            .filter(variable -> !SHELL_NAME.matcher(variable.getKey()).matches())
            .map(variable -> variable.getKey() + "=" + variable.getValue())
            .toList();
    if (!odd.isEmpty()) {
      command.add("env");
      command.addAll(odd);
    }
    command.addAll(program);
    ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
    builder.environment().clear();
    builder.environment().putAll(environment);
    return builder;
  }

  private static void checkProgram(String program, Path directory, String path) {
    if (program.contains("/")) {
      Path file = directory.resolve(program);
      if (!Files.isRegularFile(file) || !Files.isExecutable(file)) {
        throw new InvalidArgumentException(
            program + " is no program: " + (Files.exists(file) ? "not executable" : "not found"),
            "name a file that can be executed");
      }
      return;
    }
    for (String folder : path.split(File.pathSeparator, -1)) {
      Path file = directory.resolve(folder).resolve(program);
      if (Files.isRegularFile(file) && Files.isExecutable(file)) {
        return;
      }
    }
    throw new InvalidArgumentException(
        "there is no program '" + program + "' in a folder of PATH",
        "check the name, or name its file");
  }
}
