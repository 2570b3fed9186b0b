package io.nccl4j.internal.memory;

import io.nccl4j.DeviceBuffer;
import org.jspecify.annotations.Nullable;

/** A piece of a chunk: memory of one open buffer, or of none while it waits for the next. */
public class PoolBlock {
  private final StreamPool<?> pool;
  private final PoolChunk chunk;
  private final long offset;
  private final long size;

  /** Whose blocks it is among, open or not. */
  @Nullable PoolStream<?> stream;

  /** The next one of its size there. */
  @Nullable PoolBlock next;

  /** The stream's position behind its last use. */
  long closedAt;

  /** What the open buffer asked for. */
  long used;

  /** A block that was taken from its chunk's ranges. */
  public PoolBlock(StreamPool<?> pool, PoolChunk chunk, long offset, long size) {
    this.pool = pool;
    this.chunk = chunk;
    this.offset = offset;
    this.size = size;
  }

  /** The chunk it is a piece of. */
  public final PoolChunk chunk() {
    return chunk;
  }

  /** Its first byte, as the backend counts. */
  public final long offset() {
    return offset;
  }

  /** Its size in bytes. */
  public final long size() {
    return size;
  }

  /**
   * Gives it back: {@code buffer}, which had it, is closed.
   *
   * @param isReusable whether the object may stand for another buffer later
   */
  public final void close(DeviceBuffer buffer, boolean isReusable) {
    pool.close(this, buffer, isReusable);
  }

  final PoolStream<?> stream() {
    return java.util.Objects.requireNonNull(stream);
  }
}
