package io.nccl4j.internal.spi;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;

/** A buffer of one of our backends: what all of them refuse, in the same words. */
public interface BackendBuffer extends DeviceBuffer, Resource {
  @Override
  boolean isClosed();

  /** Refuses a closed buffer. */
  default void requireOpen() {
    if (isClosed()) {
      throw new InvalidUsageException(
          "the buffer is closed", "keep buffers open until their last use");
    }
  }

  /** Refuses to write to a caller's read-only memory. */
  default void requireWritable(String call) {
    if (isReadOnly()) {
      throw new InvalidArgumentException(
          call + ": the buffer wraps a read-only segment", "wrap a writable one");
    }
  }

  /** Refuses a slice of a closed buffer, and one that does not lie inside. */
  default void requireSlice(long byteOffset, long byteSize) {
    requireOpen();
    long bytes = byteSize();
    if (byteOffset < 0 || byteSize < 0 || byteOffset > bytes - byteSize) {
      throw new InvalidArgumentException(
          "slice of "
              + byteSize
              + " bytes at "
              + byteOffset
              + " of a buffer of "
              + bytes
              + " bytes",
          "slices lie inside their buffer");
    }
  }
}
