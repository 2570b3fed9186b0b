package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A process without free Java heap lives, and does its part. */
@Tag("process")
@Timeout(120)
@Tag("parallel")
class FullHeapTest {
  private static final List<String> SMALL_HEAP =
      List.of("--enable-native-access=ALL-UNNAMED", "-Xmx24m");

  /**
   * While the other process has no memory it is not taken for dead, and its ticker does its part of
   * the sum that we wait for. Its future completes when there is memory again.
   */
  @Test
  void aFullHeapIsNoDeath() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    try (ChildJvm other = ChildJvm.start(SMALL_HEAP, FullHeapMain.class, id, 3000);
        Communicator own =
            Communicator.initRank(
                Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
        DeviceBuffer in = own.device().allocate(DataType.INT32, 2);
        DeviceBuffer out = own.device().allocate(DataType.INT32, 2);
        Stream stream = own.device().newStream()) {
      own.allReduce(in, out, 2, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize(Duration.ofSeconds(20));
      other.expect("completed");
      other.expect("full");
      own.allReduce(in, out, 2, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize(Duration.ofSeconds(20));
      other.expect("freed");
      assertEquals(Communicator.State.READY, own.state(), () -> own.failure().toString());
      String thread = other.expect("completed");
      assertFalse(thread.startsWith("nccl4j"), thread);
      own.allReduce(in, out, 2, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize(Duration.ofSeconds(20));
      other.expect("done");
    }
  }
}
