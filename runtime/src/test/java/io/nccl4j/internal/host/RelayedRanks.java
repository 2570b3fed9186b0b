package io.nccl4j.internal.host;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.Relay;
import io.nccl4j.internal.net.RelayedNetwork;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Ranks of this process on two hosts, between which all bytes go through a relay. */
final class RelayedRanks implements AutoCloseable {
  final Relay relay = new Relay();
  final RelayedNetwork network =
      new RelayedNetwork(SpanRanks.network("netty", Security.AUTH), relay);
  final Communicators communicators;
  final List<Stream> streams = new ArrayList<>();
  final List<DeviceBuffer> buffers = new ArrayList<>();

  /**
   * Joins.
   *
   * @param hostOf the host of each rank
   * @param count how many ints each rank's buffer has room for
   */
  RelayedRanks(CommunicatorConfig config, int count, int... hostOf) {
    communicators = SpanRanks.join(hostOf, config, network);
    for (Communicator communicator : communicators) {
      streams.add(communicator.device().newStream());
      buffers.add(communicator.device().allocate(DataType.INT32, count));
    }
  }

  int size() {
    return communicators.size();
  }

  Communicator get(int rank) {
    return communicators.get(rank);
  }

  /** Queues a sum of what the ranks' buffers hold; it takes its place. */
  void sum(int rank, int count) {
    DeviceBuffer buffer = buffers.get(rank);
    get(rank).allReduce(buffer, buffer, count, DataType.INT32, ReduceOp.SUM, streams.get(rank));
  }

  /** A graph of one sum. */
  ExecutableGraph graph(int rank, int count) {
    Stream stream = streams.get(rank);
    stream.beginCapture();
    sum(rank, count);
    try (Graph graph = stream.endCapture()) {
      return graph.instantiate();
    }
  }

  /** Closes the communicators that have failed first, since no rank waits for those. */
  @Override
  public void close() throws IOException {
    for (Communicator communicator : communicators) {
      if (communicator.state() != Communicator.State.READY) {
        communicator.close();
      }
    }
    streams.forEach(Stream::close);
    communicators.close();
    buffers.forEach(DeviceBuffer::close);
    network.close();
    relay.close();
  }
}
