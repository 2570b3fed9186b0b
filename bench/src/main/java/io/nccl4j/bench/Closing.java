package io.nccl4j.bench;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** Closes several things, all of them even if some fail. */
public final class Closing {
  private Closing() {}

  /**
   * Closes the last first.
   *
   * @throws RuntimeException the first failure, with the others suppressed
   */
  public static void all(List<? extends AutoCloseable> things) {
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

  private static RuntimeException add(@Nullable RuntimeException first, RuntimeException next) {
    if (first == null) {
      return next;
    }
    first.addSuppressed(next);
    return first;
  }
}
