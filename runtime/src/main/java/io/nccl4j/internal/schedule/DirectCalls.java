package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp.Operation;

/** The calls themselves, in nothing but this class, of which {@link FreshCalls} makes copies. */
final class DirectCalls implements Calls {
  DirectCalls() {}

  @Override
  public void collective(
      Communicator c,
      Operation operation,
      DataType type,
      ReduceOp op,
      long whole,
      long block,
      long[] counts,
      long[] places,
      DeviceBuffer send,
      DeviceBuffer recv,
      Stream stream) {
    switch (operation) {
      case ALL_REDUCE -> c.allReduce(send, recv, whole, type, op, stream);
      case BROADCAST -> c.broadcast(send, recv, whole, type, 0, stream);
      case REDUCE -> c.reduce(send, recv, whole, type, op, 0, stream);
      case ALL_GATHER -> c.allGather(send, recv, block, type, stream);
      case REDUCE_SCATTER -> c.reduceScatter(send, recv, block, type, op, stream);
      case ALL_TO_ALL -> c.allToAll(send, recv, block, type, stream);
      case GATHER -> c.gather(send, recv, block, type, 0, stream);
      case SCATTER -> c.scatter(send, recv, block, type, 0, stream);
      case ALL_GATHER_V -> c.allGatherV(send, recv, counts, places, type, stream);
      case REDUCE_SCATTER_V -> c.reduceScatterV(send, recv, counts, type, op, stream);
      case ALL_TO_ALL_V -> c.allToAllV(send, counts, places, recv, counts, places, type, stream);
      case GATHER_V -> c.gatherV(send, block, recv, counts, places, type, 0, stream);
      case SCATTER_V -> c.scatterV(send, counts, places, recv, block, type, 0, stream);
      case BARRIER -> c.barrier(stream);
      case SEND_RECV -> throw new IllegalArgumentException(operation.name());
    }
  }

  @Override
  public void exchange(
      Communicator c,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int to,
      int from,
      Stream stream) {
    try (Group group = Group.start()) {
      if (to >= 0) {
        c.send(send, count, type, to, stream);
      }
      if (from >= 0) {
        c.recv(recv, count, type, from, stream);
      }
      group.launch();
    }
  }

  @Override
  public void launch(ExecutableGraph graph, Stream stream) {
    graph.launch(stream);
  }

  @Override
  public void synchronize(Stream stream) {
    stream.synchronize();
  }
}
