package io.nccl4j.launch;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Launch;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;

/** A program as users write it: adds up 1, 2, 3 and so on over the ranks, once or for ever. */
public final class LaunchedMain {
  private LaunchedMain() {}

  /**
   * Runs a rank.
   *
   * @param arguments {@code once}, or {@code forever} and what rank 1 does in between: {@code
   *     nothing}, {@code throw} or {@code leave}
   */
  public static void main(String[] arguments) {
    try (Launch launch = Launch.detect().orElseThrow();
        Communicator comm =
            launch.initRank(Device.get(Backend.HOST, 0), CommunicatorConfig.defaults());
        Stream stream = comm.device().newStream();
        DeviceBuffer buffer = comm.device().allocate(DataType.FLOAT32, 1)) {
      float sum = sum(comm, stream, buffer);
      System.out.printf(
          "sum %.0f, rank %d of %d, local %d%n",
          sum, comm.rank(), comm.nranks(), launch.localProcess().orElse(-1));
      for (int i = 0; arguments[0].equals("forever"); i++) {
        if (i == 3 && comm.rank() == 1) {
          act(arguments[1]);
        }
        sum(comm, stream, buffer);
      }
    }
  }

  private static float sum(Communicator comm, Stream stream, DeviceBuffer buffer) {
    buffer.copyFrom(new float[] {comm.rank() + 1});
    comm.allReduce(buffer, buffer, 1, DataType.FLOAT32, ReduceOp.SUM, stream);
    stream.synchronize();
    return buffer.toFloats()[0];
  }

  private static void act(String what) {
    switch (what) {
      case "throw" -> throw new IllegalStateException("rank 1 has had enough");
      case "leave" -> Runtime.getRuntime().halt(0);
      default -> {}
    }
  }
}
