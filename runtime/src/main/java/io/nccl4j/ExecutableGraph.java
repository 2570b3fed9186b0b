package io.nccl4j;

/**
 * Captured work, ready to run as one entry of a stream, again and again.
 *
 * <p>A launch takes one entry of the stream and none of a communicator's work FIFO, however many
 * operations the graph holds. Launches may be mixed freely with plain operations and other graphs;
 * for other ranks there is no difference between a captured and a plain operation. Launches of one
 * executable graph run one after the other, also on different streams.
 *
 * <p>Used by one thread at a time. The communicators in it must stay open until it is closed, and
 * its buffers until its last launch was called.
 */
public interface ExecutableGraph extends AutoCloseable {
  /**
   * Queues the graph's work on a stream of the device where the capture began.
   *
   * @throws InvalidArgumentException if the stream is on another device; nothing was started
   * @throws InvalidUsageException if this graph, a buffer or a communicator in it is closed, or a
   *     communicator has failed, or the stream is being captured, or a group is open on this
   *     thread; nothing was started
   */
  void launch(Stream stream);

  /**
   * Replaces buffers and counts, scalars and fill values by those of another capture of the same
   * operations. It waits for launches under way.
   *
   * @throws InvalidArgumentException if {@code graph} differs in more than that; the message says
   *     where, and nothing is changed
   */
  void update(Graph graph);

  /**
   * Waits for launches under way, then releases the graph. What is unfinished after the {@code
   * close-timeout} of its communicators is given up, as by {@link Stream#close()}. Closing twice
   * does nothing.
   */
  @Override
  void close();
}
