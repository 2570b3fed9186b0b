package io.nccl4j;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * An ordered queue of work on one device: queued work runs in order, asynchronously to the caller.
 *
 * <p>Streams are independent of each other; {@link Event}s order them. A call returns once the work
 * is queued; if the queue is full, it drives the queued work until there is room. A stream is used
 * by one thread at a time.
 *
 * <p><b>Errors.</b> A failed work fails everything queued behind it in the stream; {@link
 * #synchronize()} throws that failure, as does every later call on this stream except {@link
 * #close()}. Buffers and other streams stay usable.
 */
public interface Stream extends AutoCloseable {
  /** The device this stream runs on. */
  Device device();

  /**
   * Queues a copy of all of {@code source} to the start of {@code target}, both device buffers, and
   * returns before it is complete.
   *
   * @throws InvalidArgumentException if {@code target} is smaller than {@code source} or they
   *     overlap
   */
  void copy(DeviceBuffer target, DeviceBuffer source);

  /** Queues a copy of all of {@code source}, pinned host memory, to the start of {@code target}. */
  void copy(DeviceBuffer target, PinnedBuffer source);

  /** Queues a copy of all of {@code source} to the start of {@code target}, pinned host memory. */
  void copy(PinnedBuffer target, DeviceBuffer source);

  /** Queues filling the whole buffer with one byte value. */
  void fill(DeviceBuffer target, byte value);

  /** Queues recording {@code event}: it is complete when everything queued before it is. */
  void record(Event event);

  /**
   * Makes everything queued from now on wait until {@code event}'s last record is complete. If what
   * was recorded failed, this stream fails, too.
   */
  void waitFor(Event event);

  /**
   * Begins a capture: work queued on this stream from now on does not run but becomes a {@link
   * Graph}. A stream that waits for an event recorded in a captured stream joins the capture, and
   * must be joined back by an event before the capture ends. Calls that wait for a captured stream,
   * or use events from outside the capture, are refused.
   *
   * @throws InvalidUsageException if this stream is being captured
   */
  void beginCapture();

  /**
   * Ends the capture that {@link #beginCapture()} began on this stream.
   *
   * @throws InvalidUsageException if none began here, or a stream that joined was not joined back;
   *     the capture is abandoned
   */
  Graph endCapture();

  /** Whether this stream is being captured. */
  boolean isCapturing();

  /**
   * Whether everything queued so far is complete. Never waits, but moves any work that can move.
   */
  boolean query();

  /**
   * Waits until everything queued so far is complete. Each operation has its communicator's
   * deadline.
   *
   * @throws InterruptedWaitException if the calling thread was interrupted; the work stays queued
   *     and goes on
   * @throws NcclException if a queued work failed
   */
  void synchronize();

  /**
   * Waits until everything queued so far is complete, or the time is up; the work then stays queued
   * and goes on.
   *
   * @throws DeadlineException if the time is up; the message says what is being waited for
   * @throws InterruptedWaitException if the calling thread was interrupted; the work stays queued
   *     and goes on
   * @throws NcclException if a queued work failed
   */
  void synchronize(Duration timeout);

  /**
   * Returns a future that completes when everything queued so far does, or fails with its failure;
   * no thread needs to wait for it. What depends on it runs on a thread of the common pool, or of
   * the caller's executor. Cancelling it changes nothing in the stream.
   *
   * @throws InvalidUsageException if this stream is being captured, or closed
   * @throws NcclException if a queued work has failed already
   */
  CompletableFuture<Void> completion();

  /**
   * Completes the queued work, and releases the stream. Work that is unfinished after the {@code
   * close-timeout} is given up: the longest one of the communicators with operations in it, or that
   * of the environment if there are none. Those communicators then fail with an {@link
   * AbortedException}, and the other ranks are told; nothing is thrown. On an interrupted thread,
   * unfinished work is given up at once. Closing a stream on which a capture began abandons the
   * capture; a stream that joined leaves it. Closing twice does nothing.
   */
  @Override
  void close();
}
