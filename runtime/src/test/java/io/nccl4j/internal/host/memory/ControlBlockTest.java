package io.nccl4j.internal.host.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.internal.host.layout.ControlBlock;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

/** What a control block takes. */
class ControlBlockTest {
  private static final int NRANKS = 256;

  @Test
  void pairsThatNeverTalkTakeNoMemory() throws Exception {
    long before = heapFileBytes();
    HostHeap heap = ProcessMemory.self().heap();
    for (int round = 0; round < 2; round++) {
      HostHeap.Block block = newBlock();
      ControlBlock control = ControlBlock.find(block.segment(), block.offset(), NRANKS, 0);
      long taken = heapFileBytes() - before;
      System.out.printf(
          "%d ranks: %d of %d KiB%n", NRANKS, taken >> 10, ControlBlock.bytes(NRANKS) >> 10);
      assertTrue(taken <= ControlBlock.reservedBytes(NRANKS) + (4 << 20), () -> taken + " B");
      heap.populate(control, 3, 7, 1);
      long withOnePair = heapFileBytes() - before - taken;
      assertTrue(withOnePair > 0 && withOnePair <= 6 * 4096, () -> withOnePair + " B");
      // Nothing is left there from the round before.
      assertEquals(0, control.getAcquire(control.lane(3, 7)));
      control.setRelease(control.lane(3, 7), -1);
      heap.free(block);
      assertEquals(before, heapFileBytes());
    }
  }

  private static HostHeap.Block newBlock() {
    ControlBlocks blocks = ProcessMemory.self().controlBlocks();
    DeviceMemory memory = new DeviceMemory(Device.get(Backend.HOST, 0));
    long handle = blocks.create(memory.account(), NRANKS);
    HostHeap.Block block = blocks.get(handle);
    blocks.remove(handle);
    return block;
  }

  /** Of all that the heap's file has, not only of what this process has touched. */
  private static long heapFileBytes() throws IOException, InterruptedException {
    String file =
        "/proc/" + ProcessHandle.current().pid() + "/fd/" + ProcessMemory.self().heap().fd();
    Process stat = new ProcessBuilder("stat", "-L", "-c", "%b", file).start();
    String blocks =
        new String(stat.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    assertEquals(0, stat.waitFor());
    return Long.parseLong(blocks) * 512;
  }
}
