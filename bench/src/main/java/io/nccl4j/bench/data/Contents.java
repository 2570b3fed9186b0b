package io.nccl4j.bench.data;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Writes and checks what device buffers hold: by kernels where there are some for the device,
 * otherwise in chunks through one small array. Used by one thread; every stream that uses a buffer
 * must be synchronised before.
 */
public final class Contents {
  private static final int CHUNK_BYTES = 256 << 10;

  private final DataType type;
  private final Object chunk;
  private final @Nullable ContentKernels kernels;

  /** For elements of {@code type}, through an array. */
  public Contents(DataType type) {
    this(type, null);
  }

  /** For elements of {@code type}, by kernels on GPUs. */
  public Contents(DataType type, @Nullable ContentKernels kernels) {
    this.type = type;
    this.chunk = Elements.newArray(type, CHUNK_BYTES / type.byteSize());
    this.kernels = kernels;
  }

  /** Writes the blocks one behind the other from the start of {@code buffer}. */
  public void write(DeviceBuffer buffer, List<Block> blocks) {
    write(buffer, blocks, false);
  }

  /**
   * Writes what no check of the same blocks accepts: each bit's opposite; but untouched ones as
   * they must stay.
   */
  public void poison(DeviceBuffer buffer, List<Block> blocks) {
    write(buffer, blocks, true);
  }

  private void write(DeviceBuffer buffer, List<Block> blocks, boolean poison) {
    forEach(
        buffer,
        blocks,
        (part, block) -> {
          boolean invert = poison && !block.untouched();
          ContentKernels.Gpu gpu = gpu(part);
          if (gpu != null) {
            gpu.write(part, block, invert);
            return Wrong.NOTHING;
          }
          return forEachChunk(
              part,
              block,
              (piece, array, first) -> {
                block.pattern().write(array, first, invert);
                piece.copyFrom(array);
                return Wrong.NOTHING;
              });
        });
  }

  /** How many elements differ from the blocks that should lie at the start of {@code buffer}. */
  public long countWrong(DeviceBuffer buffer, List<Block> blocks) {
    return check(buffer, blocks).count();
  }

  /** What differs from the blocks that should lie at the start of {@code buffer}. */
  public Wrong check(DeviceBuffer buffer, List<Block> blocks) {
    return forEach(
        buffer,
        blocks,
        (part, block) -> {
          ContentKernels.Gpu gpu = gpu(part);
          return gpu != null
              ? gpu.check(part, block)
              : forEachChunk(
                  part,
                  block,
                  (piece, array, first) -> {
                    piece.copyTo(array);
                    return block.pattern().check(array, first);
                  });
        });
  }

  private ContentKernels.@Nullable Gpu gpu(DeviceBuffer part) {
    return kernels == null ? null : kernels.on(part.device());
  }

  private interface BlockTask {
    Wrong run(DeviceBuffer part, Block block);
  }

  private Wrong forEach(DeviceBuffer buffer, List<Block> blocks, BlockTask task) {
    Wrong wrong = Wrong.NOTHING;
    long element = 0;
    for (Block block : blocks) {
      if (block.count() > 0) {
        try (DeviceBuffer part = slice(buffer, element, block.count())) {
          wrong = wrong.plus(task.run(part, block).shiftedBy(element));
        }
      }
      element += block.count();
    }
    return wrong;
  }

  private interface ChunkTask {
    Wrong run(DeviceBuffer piece, Object array, long first);
  }

  private Wrong forEachChunk(DeviceBuffer part, Block block, ChunkTask task) {
    Wrong wrong = Wrong.NOTHING;
    int chunkLength = CHUNK_BYTES / type.byteSize();
    for (long done = 0; done < block.count(); done += chunkLength) {
      int length = (int) Math.min(chunkLength, block.count() - done);
      Object array = length == chunkLength ? chunk : Elements.newArray(type, length);
      try (DeviceBuffer piece = slice(part, done, length)) {
        wrong = wrong.plus(task.run(piece, array, block.first() + done).shiftedBy(done));
      }
    }
    return wrong;
  }

  private DeviceBuffer slice(DeviceBuffer buffer, long element, long count) {
    return buffer.slice(element * type.byteSize(), count * type.byteSize());
  }
}
