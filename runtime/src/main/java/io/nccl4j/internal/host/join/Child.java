package io.nccl4j.internal.host.join;

import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A communicator of a part of another's ranks, whose control block lies in the heap of one of them:
 * the others have mapped it already.
 */
final class Child {
  private Child() {}

  /**
   * The control block as seen from here; null if it was made in this process, and is gone.
   *
   * @param handle under which its maker has published it
   * @param maker its maker's rank in the parent
   * @param nranks of the child
   */
  static @Nullable ControlBlock find(LocalPart parent, long handle, int maker, int nranks) {
    HostHeap.Block block = block(parent, handle, maker);
    if (block != null) {
      return ControlBlock.find(block.segment(), block.offset(), nranks, maker);
    }
    if (parent.rank(maker) != null) {
      return null;
    }
    MemorySegment memory = parent.group().heap(parent.processOf(maker));
    return ControlBlock.find(memory, handle, nranks, maker);
  }

  private static HostHeap.@Nullable Block block(LocalPart parent, long handle, int maker) {
    return parent.rank(maker) == null ? null : ProcessMemory.self().controlBlocks().find(handle);
  }

  /**
   * The part of it here, made by its first local rank.
   *
   * @param processOf for each rank of the child the index of its process
   * @param rank that comes, in the child
   * @return null if those who came before have given the child up
   */
  static @Nullable LocalPart part(
      LocalPart parent, long handle, int maker, int[] processOf, int rank) {
    HostHeap.Block block = block(parent, handle, maker);
    ControlBlock control = find(parent, handle, maker, processOf.length);
    return control == null
        ? null
        : LocalPart.join(
            control,
            rank,
            block,
            () -> new LocalPart(control, processOf, parent.group(), handle, block));
  }
}
