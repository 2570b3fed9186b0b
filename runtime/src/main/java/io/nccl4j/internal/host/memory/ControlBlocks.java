package io.nccl4j.internal.host.memory;

import io.nccl4j.InternalErrorException;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPurpose;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * The control blocks that this process made, by the number under which ranks find them: the offset
 * in its heap, or for threads only any unused number. Thread-safe.
 */
public final class ControlBlocks {
  private final HostHeap heap;
  private final Map<Long, HostHeap.Block> blocks = new ConcurrentHashMap<>();
  private final AtomicLong handles = new AtomicLong();

  ControlBlocks(HostHeap heap) {
    this.heap = heap;
  }

  /**
   * Allocates and formats a control block.
   *
   * @param account has it until there is a communicator
   * @return its number
   */
  public long create(MemoryBook.Account account, int nranks) {
    long bytes = ControlBlock.bytes(nranks);
    HostHeap.Block block =
        heap.allocate(account, MemoryPurpose.CONTROL, bytes, ControlBlock.reservedBytes(nranks));
    UUID id = UUID.randomUUID();
    new ControlBlock(block.segment(), block.offset(), nranks)
        .format(id.getMostSignificantBits(), id.getLeastSignificantBits(), HostHeap.isFresh(bytes));
    long handle = heap.isShareable() ? block.offset() : handles.incrementAndGet();
    blocks.put(handle, block);
    return handle;
  }

  /** A control block of this process; null if there is none, or none any more. */
  public HostHeap.@Nullable Block find(long handle) {
    return blocks.get(handle);
  }

  /** A control block of this process that must be there. */
  public HostHeap.Block get(long handle) {
    HostHeap.Block block = find(handle);
    if (block == null) {
      throw new InternalErrorException("a control block is gone", "please report this");
    }
    return block;
  }

  /** Whether a control block can be found here. */
  public boolean has(HostHeap.Block block) {
    return blocks.containsValue(block);
  }

  /** Lets nobody find it any more. */
  public void remove(long handle) {
    blocks.remove(handle);
  }

  /** Frees a control block that no rank has touched. */
  public void discard(long handle) {
    HostHeap.Block unused = get(handle);
    remove(handle);
    heap.free(unused);
  }
}
