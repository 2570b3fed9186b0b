package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class SpanTest {
  @Test
  void sums() throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder().operationTimeout(Duration.ofSeconds(5)).build();
    try (Communicators all = SpanRanks.create(new int[] {0, 0, 1, 1}, config, 1)) {
      for (int n : new int[] {1, 100, 1000, 100_000}) {
        all.run(
            comm -> {
              try (Stream stream = comm.device().newStream();
                  DeviceBuffer a = comm.device().allocate(4L * n)) {
                int[] values = new int[n];
                java.util.Arrays.setAll(values, i -> i * (comm.rank() + 1));
                a.copyFrom(values);
                comm.allReduce(a, a, n, DataType.INT32, ReduceOp.SUM, stream);
                stream.synchronize();
                a.copyTo(values);
                int[] expected = new int[n];
                java.util.Arrays.setAll(expected, i -> i * 10);
                assertArrayEquals(expected, values);
              }
            });
      }
    }
  }
}
