package io.nccl4j.internal.net;

/** An engine that carries bytes between machines, found as a service. */
public interface NetworkProvider {
  /** What settings and messages call it. */
  String name();

  /**
   * Opens a network.
   *
   * @throws io.nccl4j.BackendUnavailableException if something that it needs is missing; the
   *     message says what and what to do
   */
  Network open(NetworkConfig config);
}
