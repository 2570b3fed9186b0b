package io.nccl4j;

/**
 * Several operations that start together: needed for point-to-point exchanges, and for one thread
 * that drives many ranks. Groups nest; the outermost one launches.
 *
 * <pre>{@code
 * try (Group group = Group.start()) {
 *   comm.send(out, count, FLOAT32, next, stream);
 *   comm.recv(in, count, FLOAT32, previous, stream);
 *   group.launch();
 * }
 * }</pre>
 *
 * <p>Operations called on the same thread between {@link #start()} and {@link #launch()} are
 * collected and checked, not started. If the block is left without {@code launch()}, for example by
 * an exception, they are discarded: a group is launched whole or not at all. A group belongs to the
 * thread that started it. It holds at most half as many operations of a communicator as the
 * communicator's work FIFO; the call that would exceed this is refused.
 */
public interface Group extends AutoCloseable {
  /** Opens a group on the current thread. */
  static Group start() {
    return Provider.get().startGroup();
  }

  /** Runs {@code operations} as one group: launched when it returns, discarded when it throws. */
  static void run(Runnable operations) {
    try (Group group = start()) {
      operations.run();
      group.launch();
    }
  }

  /**
   * Queues all collected operations, or, inside another group, passes them to it.
   *
   * @throws InvalidUsageException if the group was launched or closed before, or the calling thread
   *     did not start it, or a communicator in it no longer accepts operations; nothing was started
   */
  void launch();

  /** Discards the collected operations unless {@link #launch()} was called. */
  @Override
  void close();
}
