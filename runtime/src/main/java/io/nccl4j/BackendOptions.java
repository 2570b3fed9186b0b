package io.nccl4j;

import java.util.List;

/**
 * Options of a communicator that only one backend has; the others ignore them. Immutable. See
 * {@link CommunicatorConfig.Builder#with}.
 */
public interface BackendOptions {
  /** All of them with their effective values and sources. */
  List<Setting> settings();
}
