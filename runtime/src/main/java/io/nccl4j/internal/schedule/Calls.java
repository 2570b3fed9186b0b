package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp.Operation;

/** The API's calls as a program makes them, for warming them up. */
interface Calls {
  /**
   * Calls a collective.
   *
   * @param whole elements of the operations that move as much from every rank as to it
   * @param block elements of one rank's block in the others
   * @param counts for the v-forms, one block per rank
   * @param places where these blocks start
   */
  void collective(
      Communicator communicator,
      Operation operation,
      DataType type,
      ReduceOp op,
      long whole,
      long block,
      long[] counts,
      long[] places,
      DeviceBuffer send,
      DeviceBuffer recv,
      Stream stream);

  /**
   * Sends and receives in a group.
   *
   * @param to the peer to send to; negative for none
   * @param from the peer to receive from; negative for none
   */
  void exchange(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int to,
      int from,
      Stream stream);

  /** Launches a graph. */
  void launch(ExecutableGraph graph, Stream stream);

  /** Waits. */
  void synchronize(Stream stream);
}
