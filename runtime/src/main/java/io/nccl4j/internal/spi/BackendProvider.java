package io.nccl4j.internal.spi;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import java.util.List;

/**
 * A backend before it is used, found by {@link java.util.ServiceLoader}: the one class that must be
 * named to add a backend. Making one loads no library.
 */
public interface BackendProvider {
  /** Which backend it is, never {@link Backend#AUTO}. */
  Backend backend();

  /** {@link Backend#AUTO} stands for the backend with the largest number that can be used. */
  int preference();

  /** What it found on this machine; never throws because something is missing. */
  BackendInfo info();

  /** How it carries out operations; empty if a library chooses. */
  List<BackendInfo.TuningInfo> tuning(int nranks, CommunicatorConfig config);

  /** What rank 0 of a communicator will take. */
  MemoryPrediction predictMemory(MemoryQuery query);

  /**
   * Makes the backend ready for use. Called once; after a failure, nobody asks again.
   *
   * @throws io.nccl4j.BackendUnavailableException if something is missing or too old; the message
   *     says what and what to do
   */
  BackendRuntime open();
}
