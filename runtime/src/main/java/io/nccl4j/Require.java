package io.nccl4j;

import org.jspecify.annotations.Nullable;

/** Checks of arguments in this package's own classes. */
final class Require {
  private Require() {}

  /** The argument, unless it is null: callers are not all compiled with null checks. */
  static <T> T present(@Nullable T argument, String name) {
    if (argument == null) {
      boolean many = name.endsWith("s");
      throw new InvalidArgumentException(
          "the " + name + (many ? " are null" : " is null"), many ? "pass some" : "pass one");
    }
    return argument;
  }
}
