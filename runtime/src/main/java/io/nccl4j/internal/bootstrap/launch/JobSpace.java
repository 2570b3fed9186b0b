package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.internal.bootstrap.Deadline;
import java.util.Map;
import java.util.Optional;

/**
 * What the processes of a job can tell each other through their launcher. Used by one thread at a
 * time.
 */
interface JobSpace extends AutoCloseable {
  /** The one that an environment names; empty if there is none, or it cannot be used here. */
  static Optional<JobSpace> of(Map<String, String> environment) {
    return PmixSpace.of(environment).or(() -> PmiSpace.of(environment));
  }

  /**
   * Gives all processes what the first one has; all of them call it.
   *
   * @param process number of the calling one
   * @param value of the first one; what others pass is not looked at
   */
  String share(String key, int process, String value, Deadline deadline);

  /** Tells the launcher that this process may end; without that it ends all others. */
  @Override
  void close();
}
