package io.nccl4j.memory;

import io.nccl4j.InvalidUsageException;
import java.util.Optional;

/**
 * A communicator or buffer would take more memory than it may. Nothing was started; every object
 * stays usable. On the host backend, other ranks that wait for this one fail at once, with its
 * reason; on cuda, those of other processes fail when their deadline passes.
 */
public final class MemoryBudgetException extends InvalidUsageException {
  private static final long serialVersionUID = 1L;

  private final transient Optional<MemoryPrediction> prediction;

  /**
   * A refusal.
   *
   * @param message what exceeds what, in bytes; the table of the prediction is appended
   * @param remedy what the caller can do
   * @param prediction what a communicator would have taken; empty for a buffer
   */
  public MemoryBudgetException(
      String message, String remedy, Optional<MemoryPrediction> prediction) {
    super(message, prediction.map(table -> remedy + "\n" + table).orElse(remedy));
    this.prediction = prediction;
  }

  /** What the communicator would have taken; empty if a buffer was refused. */
  public Optional<MemoryPrediction> prediction() {
    return prediction;
  }
}
