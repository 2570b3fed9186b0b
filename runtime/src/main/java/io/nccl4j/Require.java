package io.nccl4j;

import org.jspecify.annotations.Nullable;

/** Checks of arguments in this package's own classes. */
final class Require {
  private Require() {}

  /** The argument, unless it is null: callers are not all compiled with null checks. */
  static <T> T present(@Nullable T argument, String name) {
    if (argument == null) {
      throw new InvalidArgumentException("the " + name + " is null", "pass a " + name);
    }
    return argument;
  }

  /** Size in bytes of {@code count} elements. */
  static long bytes(@Nullable DataType type, long count) {
    DataType of = present(type, "type");
    if (count < 0 || count > Long.MAX_VALUE / of.byteSize()) {
      throw new InvalidArgumentException(
          "cannot allocate " + count + " elements of " + of.label(), "pass a count of 0 or more");
    }
    return count * of.byteSize();
  }
}
