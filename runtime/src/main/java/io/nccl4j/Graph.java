package io.nccl4j;

/**
 * Work captured from a stream instead of being run: a template from which {@link #instantiate()}
 * creates a graph that can be launched. See {@link Stream#beginCapture()}.
 */
public interface Graph extends AutoCloseable {
  /** Number of nodes: plans of operations, copies and fills. */
  int nodeCount();

  /**
   * Creates an executable graph. It is independent of this graph, which may be closed.
   *
   * @throws InvalidUsageException if this graph is closed
   */
  ExecutableGraph instantiate();

  /** Releases the graph. Closing twice does nothing. */
  @Override
  void close();
}
