package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * A process that is rank 1 of 2 whenever its input says so, and whose peer lies. Each line is
 * answered by one:
 *
 * <pre>
 * create             id ID
 * join ID            refused TYPE MESSAGE, or what came of a sum
 * receive ID         the same, or what came of a message
 * split ID           the same, or what came of a split
 * </pre>
 */
final class HonestRankMain {
  static final int COUNT = 1 << 14;

  private HonestRankMain() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ready");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      try {
        System.out.println(
            words[0].equals("create")
                ? "id " + UniqueId.create(Backend.HOST)
                : join(words[0], UniqueId.parse(words[1])));
      } catch (NcclException e) {
        System.out.println("refused " + e.getClass().getSimpleName() + " " + e.getMessage());
      }
    }
  }

  private static String join(String what, UniqueId id) {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .initTimeout(Duration.ofSeconds(20))
            .operationTimeout(Duration.ofSeconds(20))
            .closeTimeout(Duration.ofMillis(100))
            .build();
    Device device = Device.get(Backend.HOST, 1);
    try (Communicator communicator = Communicator.initRank(device, 2, id, 1, config);
        Stream stream = device.newStream();
        DeviceBuffer in = device.allocate(DataType.INT32, COUNT);
        DeviceBuffer out = device.allocate(DataType.INT32, COUNT)) {
      switch (what) {
        case "receive" -> communicator.recv(out, COUNT, DataType.INT32, 0, stream);
        case "split" -> communicator.split(0, 0);
        default -> communicator.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
      }
      stream.synchronize();
      return "believed";
    }
  }
}
