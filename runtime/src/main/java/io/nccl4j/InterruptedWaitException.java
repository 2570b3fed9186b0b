package io.nccl4j;

/**
 * The calling thread was interrupted while it waited. Its interrupt flag stays set, so its next
 * wait ends likewise, until {@link Thread#interrupted()} clears the flag.
 *
 * <p>The outcome depends on the call:
 *
 * <ul>
 *   <li>A wait for queued work, such as {@link Stream#synchronize()} or {@link
 *       Event#synchronize()}: the work stays queued and goes on, and can be waited for again.
 *   <li>A call that waits for room, such as any operation, {@link Stream#copy} or {@link
 *       Group#launch()}: it queued and changed nothing, except that a group is discarded.
 *   <li>Joining: it is abandoned for all ranks at once; they need a new {@link UniqueId}.
 *   <li>A call that ranks make together, such as {@link Communicator#split} or {@link
 *       Communicator#warmUp}: its communicator, or the one being created, has failed on all ranks.
 * </ul>
 *
 * <p>No {@code close()} method throws this. On an interrupted thread, it gives up at once what it
 * would otherwise wait for.
 */
public class InterruptedWaitException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was waited for
   * @param remedy what the caller can do, or an empty string
   */
  public InterruptedWaitException(String message, String remedy) {
    super(Result.IN_PROGRESS, message, remedy);
  }
}
