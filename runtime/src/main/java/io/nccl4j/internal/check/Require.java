package io.nccl4j.internal.check;

import io.nccl4j.InvalidArgumentException;
import org.jspecify.annotations.Nullable;

/** Checks of arguments, for the API's subpackages and what lies below them. */
public final class Require {
  private Require() {}

  /** The argument, unless it is null: callers are not all compiled with null checks. */
  public static <T> T present(@Nullable T argument, String name) {
    if (argument == null) {
      boolean many = name.endsWith("s");
      throw new InvalidArgumentException(
          "the " + name + (many ? " are null" : " is null"), many ? "pass some" : "pass one");
    }
    return argument;
  }
}
