package io.nccl4j.internal.span;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.internal.net.NetworkConfig;
import java.util.List;

/**
 * Two ranks that use a communicator: on one host, on two hosts ({@code apart}), on two hosts over
 * TCP ({@code connected}), or shown to JMX ({@code shown}).
 */
final class OneHostMain {
  private OneHostMain() {}

  public static void main(String[] arguments) throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder().jmx(arguments[0].equals("shown")).build();
    try (Communicators all = communicators(arguments[0], config)) {
      all.run(OneHostMain::use);
    }
    System.out.println("used");
  }

  private static Communicators communicators(String ranks, CommunicatorConfig config) {
    int[] hosts = {0, 1};
    return switch (ranks) {
      case "apart" -> SpanRanks.join(hosts, config, SpanRanks.inMemory(1));
      case "connected" ->
          SpanRanks.join(hosts, config, SpanRanks.network("netty", NetworkConfig.Security.AUTH));
      default ->
          Communicator.initAll(
              List.of(Device.get(Backend.HOST, 0), Device.get(Backend.HOST, 1)), config);
    };
  }

  private static void use(Communicator communicator) {
    try (Communicator part = communicator.split(0, communicator.rank());
        Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(1 << 20)) {
      for (Communicator one : List.of(communicator, part)) {
        one.barrier(stream);
        one.allReduce(buffer, buffer, 1 << 18, DataType.FLOAT32, ReduceOp.SUM, stream);
        if (one.rank() == 0) {
          one.send(buffer, 4, DataType.INT8, 1, stream);
        } else {
          one.recv(buffer, 4, DataType.INT8, 0, stream);
        }
        stream.synchronize();
      }
    }
  }
}
