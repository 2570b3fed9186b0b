package io.nccl4j.internal.memory;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * What still used a buffer when it was closed; nothing new comes, since a closed buffer is refused.
 * Asking is cheap: what is done is forgotten, and the newest use, which mostly ends last, is asked
 * first. Used by one thread at a time.
 */
public final class Uses {
  private final List<BooleanSupplier> ends = new ArrayList<>();

  /** Adds a use, by whether it is over. */
  public void add(BooleanSupplier isOver) {
    ends.add(isOver);
  }

  /** Whether all are over. */
  public boolean areOver() {
    while (!ends.isEmpty() && ends.getLast().getAsBoolean()) {
      ends.removeLast();
    }
    return ends.isEmpty();
  }
}
