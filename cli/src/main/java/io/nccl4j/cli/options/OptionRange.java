package io.nccl4j.cli.options;

import io.nccl4j.Backend;
import io.nccl4j.InvalidArgumentException;
import java.util.function.Supplier;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;

/** Checks the values of options. */
public final class OptionRange {
  private OptionRange() {}

  /** Whether an option that is 0 or 1 is 1. */
  public static boolean yes(String name, int value) {
    return upTo(name, value, 1) == 1;
  }

  /** An option that is 0 to {@code most}. */
  public static int upTo(String name, int value, int most) {
    if (value < 0 || value > most) {
      throw new InvalidArgumentException(
          name + " is " + value, most == 1 ? "use 0 or 1" : "use 0 to " + most);
    }
    return value;
  }

  /** An option that is at least 1. */
  public static long positive(String name, long value) {
    if (value < 1) {
      throw new InvalidArgumentException(name + " is " + value, "use 1 or more");
    }
    return value;
  }

  /** A backend by its name, which is not a choice between them. */
  public static Backend oneBackend(String label) {
    Backend backend = Backend.ofLabel(label);
    if (backend == Backend.AUTO) {
      throw new InvalidArgumentException("backend is auto", "use host or cuda");
    }
    return backend;
  }

  /** What {@code task} makes of the options; if it refuses one, the command was called wrongly. */
  public static <T> T checked(CommandSpec command, Supplier<T> task) {
    try {
      return task.get();
    } catch (InvalidArgumentException e) {
      throw new ParameterException(command.commandLine(), e.getMessage(), e);
    }
  }
}
