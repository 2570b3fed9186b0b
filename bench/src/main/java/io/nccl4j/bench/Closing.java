package io.nccl4j.bench;

import java.util.List;

/** Closes several things, all of them even if some fail. */
final class Closing {
  private Closing() {}

  /**
   * Closes the last first.
   *
   * @throws RuntimeException the first failure, with the others suppressed
   */
  static void all(List<? extends AutoCloseable> things) {
    RuntimeException failure = null;
    for (AutoCloseable thing : things.reversed()) {
      try {
        thing.close();
      } catch (RuntimeException e) {
        failure = add(failure, e);
      } catch (Exception e) {
        failure = add(failure, new IllegalStateException(e));
      }
    }
    if (failure != null) {
      throw failure;
    }
  }

  private static RuntimeException add(
      @org.jspecify.annotations.Nullable RuntimeException first, RuntimeException next) {
    if (first == null) {
      return next;
    }
    first.addSuppressed(next);
    return first;
  }
}
