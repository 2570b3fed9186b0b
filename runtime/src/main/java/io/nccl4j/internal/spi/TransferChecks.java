package io.nccl4j.internal.spi;

import io.nccl4j.Backend;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.PinnedBuffer;
import org.jspecify.annotations.Nullable;

/** What a stream of any backend refuses to copy or fill, in the same words. */
public final class TransferChecks {
  private TransferChecks() {}

  /** The buffer as one of the backend's own kind; whether it is open the backend knows. */
  public static <B extends DeviceBuffer> B device(
      @Nullable DeviceBuffer buffer, String name, Class<B> kind, Backend backend) {
    return own(buffer, name + " buffer", kind, " on a " + backend.label() + " device");
  }

  /** The pinned buffer as one of the backend's own kind. */
  public static <B extends PinnedBuffer> B pinned(
      @Nullable PinnedBuffer buffer, String name, Class<B> kind, Backend backend) {
    return own(buffer, "pinned " + name + " buffer", kind, " of a " + backend.label() + " device");
  }

  /** Refuses a pinned buffer that is closed. */
  public static void requireOpen(boolean closed, String name) {
    if (closed) {
      throw new InvalidUsageException(
          "the pinned " + name + " buffer is closed", "keep it open until its last use");
    }
  }

  private static <B> B own(@Nullable Object buffer, String title, Class<B> kind, String owner) {
    if (!kind.isInstance(buffer)) {
      throw new InvalidArgumentException(
          "the " + title + " is " + (buffer == null ? "null" : "not" + owner),
          "pass a buffer of this stream's backend");
    }
    return kind.cast(buffer);
  }

  /** Refuses ranges of bytes that share some. */
  public static void requireApart(long target, long source, long bytes) {
    if (source < target + bytes && target < source + bytes) {
      throw new InvalidArgumentException(
          "copy: source and target overlap", "copy between separate ranges");
    }
  }

  /** Refuses a source of {@code bytes} bytes where there is room for fewer. */
  public static void requireRoom(long room, long bytes) {
    if (room < bytes) {
      throw new InvalidArgumentException(
          "copy: the target has " + room + " bytes, the source " + bytes,
          "copy a slice of the source");
    }
  }
}
