package io.nccl4j;

import java.lang.foreign.MemorySegment;

/**
 * Host memory that a device copies to and from at full speed, page-locked on {@code cuda}.
 *
 * <p>The program reads and writes {@link #segment()} directly; stream-ordered copies move it to and
 * from device memory.
 */
public interface PinnedBuffer extends AutoCloseable {
  /** The memory; valid until {@link #close()}, usable by any thread. */
  MemorySegment segment();

  /** Size in bytes. */
  long byteSize();

  /**
   * Closes the buffer: copies refuse it from then on. The memory is freed when no queued copy uses
   * it any more, like that of a {@link DeviceBuffer#close() device buffer}. Closing twice does
   * nothing.
   */
  @Override
  void close();
}
