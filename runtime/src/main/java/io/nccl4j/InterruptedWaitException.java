package io.nccl4j;

/**
 * The calling thread was interrupted while it waited. Its interrupt flag stays set: what it calls
 * next and waits ends likewise, until {@link Thread#interrupted()} clears the flag.
 *
 * <p>What is left depends on the call:
 *
 * <ul>
 *   <li>A wait for what is queued, as {@link Stream#synchronize()} and {@link Event#synchronize()}:
 *       it stays queued and goes on, and can be waited for again.
 *   <li>A call that waits for room, as any operation, {@link Stream#copy} or {@link
 *       Group#launch()}: it queued nothing and changed nothing, but for a group, which is
 *       discarded.
 *   <li>Joining: it is given up, for all ranks at once; they need a new {@link UniqueId}.
 *   <li>A call that ranks make together, as {@link Communicator#split} and {@link
 *       Communicator#warmUp}: its communicator has failed, or the one it was making, on all ranks.
 * </ul>
 *
 * <p>{@code close()} of whatever does not throw this. On an interrupted thread it gives up at once
 * what it would wait for otherwise.
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
