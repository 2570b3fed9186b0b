package io.nccl4j.internal.schedule;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import org.jspecify.annotations.Nullable;

/**
 * What a backend does for a stream. Called by the submitting thread, except where any thread is
 * named; {@link ScheduledStream} has checked the call.
 *
 * @param <W> the backend's work
 */
public interface StreamEngine<W extends Work> {
  /** The device it belongs to. */
  Device device();

  // ---- submitting

  /**
   * Waits until there is room for one more entry. A capture always has room.
   *
   * @throws NcclException if the stream has failed
   */
  void awaitRoom();

  /**
   * Puts a plan of linked works into the stream, or into the capture under way.
   *
   * @throws NcclException if the backend starts it at once and could not; the works are given back
   *     and their communicators have failed
   */
  void put(W plan);

  /**
   * Whether a group with several plans holds them back until all have been put in, see {@link
   * #hold()}.
   */
  default boolean startsTogether() {
    return false;
  }

  /** Plans of a group follow, which may be held back until {@link #start()}; once or more. */
  default void hold() {}

  /**
   * Ends {@link #hold()} for all streams of this thread's group. Called for each of them.
   *
   * @throws NcclException if the group could not be started; its communicators have failed
   */
  default void start() {}

  /** See {@link io.nccl4j.Stream#copy(DeviceBuffer, DeviceBuffer)}. */
  void copy(DeviceBuffer target, DeviceBuffer source);

  /** See {@link io.nccl4j.Stream#copy(DeviceBuffer, PinnedBuffer)}. */
  void copy(DeviceBuffer target, PinnedBuffer source);

  /** See {@link io.nccl4j.Stream#copy(PinnedBuffer, DeviceBuffer)}. */
  void copy(PinnedBuffer target, DeviceBuffer source);

  /** See {@link io.nccl4j.Stream#fill}. */
  void fill(DeviceBuffer target, byte value);

  /** Records an event of this backend behind everything in the stream, or in the capture. */
  void record(EventEngine event);

  /** Lets what follows wait for the last record of an event of this backend; there is room. */
  void waitFor(EventEngine event);

  // ---- captures

  /**
   * Whether a capture is under way. Operations ask this, not {@link #capture()}, which the compiler
   * does not inline until its result's class is loaded: by the first capture, if there is one.
   */
  boolean isCapturing();

  /** The capture under way; null if there is none. */
  @Nullable Capture<W> capture();

  /** Begins a capture on this stream. */
  void beginCapture();

  /** Joins a capture by waiting for an event that was recorded in it. */
  void joinCapture(Capture<W> capture, EventEngine event);

  /** Ends the capture for all its streams and returns what was captured. */
  CapturedGraph<W> endCapture();

  /** The capture is over, or goes on without this stream. */
  void leaveCapture();

  // ---- waiting

  /**
   * Whether everything in the stream is done; moves it on if the backend must.
   *
   * @throws NcclException if the stream has failed
   */
  boolean poll();

  /**
   * Waits until everything in the stream is done.
   *
   * @return false if it is not after that time
   * @throws NcclException if the stream has failed
   */
  boolean await(long timeoutNanos);

  /** Throws why the stream has failed, if it has. */
  void throwIfFailed();

  /** What it waits for, for messages. */
  String describeFirst();

  /** How many entries were put in so far. Any thread. */
  long position();

  /** Up to which {@link #position} all is known to be done; it only grows. Any thread. */
  long passed();

  /** Finds out how far it has come, without waiting, as far as that can be. Any thread. */
  void learnPassed();

  /** Waits for the end of what is in the stream, gives up what takes too long, and closes it. */
  void close();

  /** Whether it was closed; everything in it has been passed then. Any thread. */
  boolean isClosed();
}
