package io.nccl4j.jmh;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;

/**
 * What the benchmarks measure of a communicator, with floats and root 0. The count is that of the
 * call: what a rank contributes, or for the operations that divide, each of its blocks.
 */
public enum BenchmarkOperation {
  /** Sum, to all. */
  ALL_REDUCE {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.allReduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM, stream);
    }
  },
  /** Sum, to the root. */
  REDUCE {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.reduce(in, c.rank() == 0 ? out : null, count, DataType.FLOAT32, ReduceOp.SUM, 0, stream);
    }
  },
  /** Sum, a block to each. */
  REDUCE_SCATTER {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.reduceScatter(in, out, count, DataType.FLOAT32, ReduceOp.SUM, stream);
    }
  },
  /** The root's, to all. */
  BROADCAST {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.broadcast(c.rank() == 0 ? in : null, out, count, DataType.FLOAT32, 0, stream);
    }
  },
  /** All blocks, to all. */
  ALL_GATHER {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.allGather(in, out, count, DataType.FLOAT32, stream);
    }
  },
  /** A block from each to each. */
  ALL_TO_ALL {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.allToAll(in, out, count, DataType.FLOAT32, stream);
    }
  },
  /** All blocks, to the root. */
  GATHER {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.gather(in, c.rank() == 0 ? out : null, count, DataType.FLOAT32, 0, stream);
    }
  },
  /** The root's blocks, one to each. */
  SCATTER {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      c.scatter(c.rank() == 0 ? in : null, out, count, DataType.FLOAT32, 0, stream);
    }
  },
  /** To the next rank and from the one before, in a group. */
  SEND_RECV {
    @Override
    void submit(Communicator c, DeviceBuffer in, DeviceBuffer out, long count, Stream stream) {
      int n = c.nranks();
      try (Group group = Group.start()) {
        c.send(in, count, DataType.FLOAT32, (c.rank() + 1) % n, stream);
        c.recv(out, count, DataType.FLOAT32, (c.rank() + n - 1) % n, stream);
        group.launch();
      }
    }
  };

  /** Queues one operation of one rank; the buffers have nranks blocks of {@code count} floats. */
  abstract void submit(
      Communicator communicator, DeviceBuffer in, DeviceBuffer out, long count, Stream stream);
}
