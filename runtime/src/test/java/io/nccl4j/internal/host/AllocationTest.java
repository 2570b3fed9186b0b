package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CyclicBarrier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** Operations allocate nothing in the Java heap, once the code is compiled. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class AllocationTest {
  private static final int BLOCK = 500;
  private static final int WARM_UP_BLOCKS = 5;
  private static final int MOST_BLOCKS = 100;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private interface Operation {
    void run(HostRanks ranks, int rank);
  }

  /**
   * Runs blocks of operations on both ranks until each rank has had a block without any allocation.
   *
   * <p>That holds for long waits, too, as on a busy machine where a rank loses its processor. A
   * block may still contain what happens once, such as a slow path's first use; what operations
   * allocate themselves is in every block.
   */
  private static void assertAllocatesNothing(String name, Operation operation) throws Exception {
    assertAllocatesNothing(name, HostRanks.patient().build(), operation);
  }

  private static void assertAllocatesNothing(
      String name, CommunicatorConfig config, Operation operation) throws Exception {
    long[] least = {Long.MAX_VALUE, Long.MAX_VALUE};
    int[] blocks = new int[2];
    CyclicBarrier both = new CyclicBarrier(2);
    try (HostRanks ranks = new HostRanks(2, 65536, config)) {
      ranks.run(
          rank -> {
            boolean clean = false;
            while (!clean && blocks[rank] < MOST_BLOCKS) {
              long before = THREADS.getCurrentThreadAllocatedBytes();
              for (int k = 0; k < BLOCK; k++) {
                operation.run(ranks, rank);
              }
              long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
              if (++blocks[rank] > WARM_UP_BLOCKS) {
                least[rank] = Math.min(least[rank], allocated);
              }
              ranks.streams.get(rank).synchronize();
              both.await();
              clean = least[0] == 0 && least[1] == 0;
              both.await();
            }
          });
    }
    System.out.printf(
        "%s: %d and %d B in %d operations, %d blocks%n",
        name, least[0], least[1], BLOCK, blocks[0]);
    assertTrue(least[0] == 0 && least[1] == 0, name);
  }

  private static Operation sum(int bytes) {
    return (ranks, rank) -> {
      ranks.sum(rank, bytes / Integer.BYTES);
      ranks.streams.get(rank).synchronize();
    };
  }

  @Test
  void smallSums() throws Exception {
    assertAllocatesNothing("allReduce 8 B", sum(8));
    assertAllocatesNothing("allReduce 1536 B", sum(1536));
  }

  /** One thread drives all ranks, so that none waits for a processor. */
  @Test
  void smallSumsByShares() throws Exception {
    CommunicatorConfig shares = HostRanks.patient().algorithm("share").protocol("ll").build();
    int nranks = 3;
    long least = Long.MAX_VALUE;
    int blocks = 0;
    try (HostRanks ranks = new HostRanks(nranks, 65536, shares)) {
      while (least > 0 && blocks < MOST_BLOCKS) {
        long before = THREADS.getCurrentThreadAllocatedBytes();
        for (int k = 0; k < BLOCK; k++) {
          for (int rank = 0; rank < nranks; rank++) {
            ranks.sum(rank, 1024 / Integer.BYTES);
          }
          for (int rank = 0; rank < nranks; rank++) {
            ranks.streams.get(rank).synchronize();
          }
        }
        long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
        if (++blocks > WARM_UP_BLOCKS) {
          least = Math.min(least, allocated);
        }
      }
    }
    System.out.printf(
        "allReduce 1 KiB of 3 ranks, by shares: %d B in %d operations, %d blocks%n",
        least, BLOCK, blocks);
    assertTrue(least == 0, "by shares");
  }

  @Test
  void directSums() throws Exception {
    assertAllocatesNothing("allReduce 4 KiB", sum(4096));
    assertAllocatesNothing("allReduce 64 KiB", sum(65536));
  }

  @Test
  void asynchronousSums() throws Exception {
    assertAllocatesNothing("allReduce 8 B, asynchronous", (ranks, rank) -> ranks.sum(rank, 2));
  }

  /** Each place of the FIFO, here 32 of them, gets a clock when it is used for the first time. */
  @Test
  void timedSums() throws Exception {
    CommunicatorConfig timed = HostRanks.patient().timesOperations(true).fifoBytes(4096).build();
    assertAllocatesNothing("allReduce 8 B, timed", timed, sum(8));
  }

  @Test
  void exchangesInGroups() throws Exception {
    for (int bytes : new int[] {8, 4096, 65536}) {
      assertAllocatesNothing(
          "send and receive " + bytes + " B",
          (ranks, rank) -> {
            Stream stream = ranks.streams.get(rank);
            int count = bytes / Integer.BYTES;
            try (Group group = Group.start()) {
              ranks.get(rank).send(ranks.in.get(rank), count, DataType.INT32, 1 - rank, stream);
              ranks.get(rank).recv(ranks.out.get(rank), count, DataType.INT32, 1 - rank, stream);
              group.launch();
            }
            stream.synchronize();
          });
    }
  }

  @Test
  void launches() throws Exception {
    ExecutableGraph[] graphs = new ExecutableGraph[2];
    for (int bytes : new int[] {8, 4096}) {
      assertAllocatesNothing(
          "launch of a sum, a copy and an exchange, " + bytes + " B",
          (ranks, rank) -> {
            Stream stream = ranks.streams.get(rank);
            if (graphs[rank] == null) {
              graphs[rank] = capture(ranks, rank, bytes / Integer.BYTES);
            }
            graphs[rank].launch(stream);
            stream.synchronize();
          });
      for (int rank = 0; rank < 2; rank++) {
        graphs[rank].close();
        graphs[rank] = null;
      }
    }
  }

  private static ExecutableGraph capture(HostRanks ranks, int rank, int count) {
    Stream stream = ranks.streams.get(rank);
    stream.beginCapture();
    ranks.sum(rank, count);
    stream.copy(ranks.in.get(rank).slice(0, count * 4L), ranks.out.get(rank).slice(0, count * 4L));
    Group.run(
        () -> {
          ranks.get(rank).send(ranks.in.get(rank), count, DataType.INT32, 1 - rank, stream);
          ranks.get(rank).recv(ranks.out.get(rank), count, DataType.INT32, 1 - rank, stream);
        });
    try (Graph graph = stream.endCapture()) {
      return graph.instantiate();
    }
  }

  /** The other operations, so that a forgotten array shows. */
  @Test
  void otherOperations() throws Exception {
    long[] counts = {700, 300};
    long[] places = {0, 700};
    assertAllocatesNothing(
        "allGather, broadcast, reduceScatter, allToAll, allGatherV and barrier",
        (ranks, rank) -> {
          HostCommunicator c = ranks.get(rank);
          Stream s = ranks.streams.get(rank);
          var in = ranks.in.get(rank);
          var out = ranks.out.get(rank);
          c.allGather(in, out, 500, DataType.INT32, s);
          c.broadcast(in, out, 3, DataType.INT32, 1, s);
          c.reduceScatter(in, out, 400, DataType.INT32, ReduceOp.MAX, s);
          c.allToAll(in, out, 20, DataType.INT32, s);
          c.allGatherV(in, out, counts, places, DataType.INT32, s);
          c.barrier(s);
          s.synchronize();
        });
  }
}
