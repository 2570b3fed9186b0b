package io.nccl4j;

/**
 * Captured work, ready to run as one entry of a stream, again and again.
 *
 * <p>A launch takes one entry of the stream and none of a communicator's work FIFO, however many
 * operations the graph holds. Launches may be mixed freely with plain operations and other graphs;
 * other ranks cannot tell a captured operation from a plain one. Launches of one executable graph
 * run one after the other, even on different streams.
 *
 * <p>Used by one thread at a time. Its communicators must stay open until it is closed, its buffers
 * until its last launch was called.
 */
public interface ExecutableGraph extends AutoCloseable {
  /**
   * Queues the graph's work on a stream of the device where the capture began, and returns before
   * it is complete.
   *
   * @throws InvalidArgumentException if the stream is on another device; nothing was started
   * @throws InvalidUsageException if this graph, a buffer or a communicator in it is closed, or a
   *     communicator has failed, or the stream is being captured, or a group is open on this
   *     thread; nothing was started
   */
  void launch(Stream stream);

  /**
   * Replaces buffers, counts, scalars and fill values with those of another capture of the same
   * operations. Waits for launches in progress.
   *
   * @throws InvalidArgumentException if {@code graph} differs in more than that; the message says
   *     where, and nothing is changed
   */
  void update(Graph graph);

  /**
   * Waits for launches in progress, then releases the graph. Work that is unfinished after the
   * {@code close-timeout} of its communicators is given up, as in {@link Stream#close()}. Closing
   * twice does nothing.
   */
  @Override
  void close();
}
