package io.nccl4j.internal.schedule;

/**
 * What a backend does for an executable graph.
 *
 * @param <W> the backend's work
 */
public interface GraphEngine<W extends Work> {
  /** Throws if it can be neither launched nor changed, because a communicator in it has ended. */
  default void requireUsable() {}

  /**
   * Puts a launch into a stream, which has room. The graph's communicators keep other threads out.
   *
   * @throws io.nccl4j.NcclException if that cannot be; nothing was launched
   */
  void launch(StreamEngine<W> stream);

  /** Waits until no launch is under way, and takes the steps of another captured graph. */
  void replace(CapturedGraph<W> captured);

  /** Waits for launches under way, gives up what takes too long, and releases what it holds. */
  void close();
}
