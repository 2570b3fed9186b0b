package io.nccl4j.bench;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import java.util.List;

/**
 * Writes and checks what device buffers hold, in chunks through one small array. Used by one
 * thread; every stream that uses a buffer must be synchronised before.
 */
final class Contents {
  private static final int CHUNK_BYTES = 256 << 10;

  private interface ChunkTask {
    long run(DeviceBuffer part, Object array, Block block, long first);
  }

  private final DataType type;
  private final Object chunk;

  /** Room for chunks of elements of {@code type}. */
  Contents(DataType type) {
    this.type = type;
    this.chunk = Elements.newArray(type, CHUNK_BYTES / type.byteSize());
  }

  /** Writes the blocks one behind the other from the start of {@code buffer}. */
  void write(DeviceBuffer buffer, List<Block> blocks) {
    write(buffer, blocks, false);
  }

  /**
   * Writes what no check of the same blocks accepts: each bit's opposite; but untouched ones as
   * they must stay.
   */
  void poison(DeviceBuffer buffer, List<Block> blocks) {
    write(buffer, blocks, true);
  }

  private void write(DeviceBuffer buffer, List<Block> blocks, boolean invert) {
    forEachChunk(
        buffer,
        blocks,
        (part, array, block, first) -> {
          block.pattern().write(array, first, invert && !block.untouched());
          part.copyFrom(array);
          return 0;
        });
  }

  /** How many elements differ from the blocks that should lie at the start of {@code buffer}. */
  long countWrong(DeviceBuffer buffer, List<Block> blocks) {
    return forEachChunk(
        buffer,
        blocks,
        (part, array, block, first) -> {
          part.copyTo(array);
          return block.pattern().countWrong(array, first);
        });
  }

  private long forEachChunk(DeviceBuffer buffer, List<Block> blocks, ChunkTask task) {
    long sum = 0;
    long element = 0;
    int chunkLength = CHUNK_BYTES / type.byteSize();
    for (Block block : blocks) {
      for (long done = 0; done < block.count(); done += chunkLength) {
        int length = (int) Math.min(chunkLength, block.count() - done);
        Object array = length == chunkLength ? chunk : Elements.newArray(type, length);
        long offset = (element + done) * type.byteSize();
        try (DeviceBuffer part = buffer.slice(offset, (long) length * type.byteSize())) {
          sum += task.run(part, array, block, block.first() + done);
        }
      }
      element += block.count();
    }
    return sum;
  }
}
