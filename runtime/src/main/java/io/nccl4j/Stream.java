package io.nccl4j;

import java.time.Duration;

/**
 * An ordered queue of work on one device: what is put in runs in that order, asynchronously to the
 * caller.
 *
 * <p>Streams are independent of each other; {@link Event}s order them. A call returns once the work
 * is queued; if the queue is full it drives the queued work until there is room. A stream is used
 * by one thread at a time.
 *
 * <p><b>Errors.</b> A failed work fails everything queued behind it in the stream; {@link
 * #synchronize()} throws that failure, and so does every later call of this stream except {@link
 * #close()}. Buffers and other streams stay usable.
 */
public interface Stream extends AutoCloseable {
  /** The device this stream runs on. */
  Device device();

  /**
   * Queues a copy between device buffers, the whole of {@code source} to the start of {@code
   * target}.
   *
   * @throws InvalidArgumentException if {@code target} is smaller than {@code source} or they
   *     overlap
   */
  void copy(DeviceBuffer target, DeviceBuffer source);

  /**
   * Queues a copy from pinned host memory, the whole of {@code source} to the start of {@code
   * target}.
   */
  void copy(DeviceBuffer target, PinnedBuffer source);

  /**
   * Queues a copy to pinned host memory, the whole of {@code source} to the start of {@code
   * target}.
   */
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
   * Begins to capture: what is put into this stream from now on is not run but becomes a {@link
   * Graph}. A stream that waits for an event recorded in a captured stream joins the capture, and
   * must be joined back by an event before its end. Waiting for a captured stream, and events from
   * outside the capture, are refused at the call.
   *
   * @throws InvalidUsageException if this stream is being captured
   */
  void beginCapture();

  /**
   * Ends the capture that {@link #beginCapture()} began on this stream.
   *
   * @throws InvalidUsageException if none began here, or a stream that joined was not joined back;
   *     the capture is given up then
   */
  Graph endCapture();

  /** Whether this stream is being captured. */
  boolean isCapturing();

  /** Whether everything queued so far is complete; it never waits, but moves work that can move. */
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
   * Waits until everything queued so far is complete, or the time is over; then the work stays
   * queued and goes on.
   *
   * @throws DeadlineException if the time is over; the message says what is waited for
   * @throws InterruptedWaitException if the calling thread was interrupted; the same holds then
   * @throws NcclException if a queued work failed
   */
  void synchronize(Duration timeout);

  /**
   * Completes what is queued, and releases the stream. What is unfinished after the {@code
   * close-timeout} is given up: that of the communicators with operations in it, the longest, or of
   * the environment where there are none. Those communicators have failed then, with an {@link
   * AbortedException}, and the other ranks hear of it; nothing is thrown. On an interrupted thread
   * what has to be waited for is given up at once. On a stream that is being captured it gives the
   * capture up, which began there; a stream that joined leaves the capture. Closing twice does
   * nothing.
   */
  @Override
  void close();
}
