package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.internal.net.FakeNetwork;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Whoever waits for a rank of another host that is gone hears which operation needed it. */
@Timeout(30)
@Tag("parallel")
class LostRankTest {
  @Test
  void theOperationIsNamed() {
    FakeNetwork network = new FakeNetwork(1, true);
    CommunicatorConfig config = CommunicatorConfig.builder().build();
    try (network;
        Communicators ranks = SpanRanks.join(new int[] {0, 1}, config, network);
        Stream stream = ranks.get(0).device().newStream();
        DeviceBuffer buffer = ranks.get(0).device().allocate(64)) {
      Communicator own = ranks.get(0);
      own.allReduce(buffer, buffer, 3, DataType.INT32, ReduceOp.SUM, stream);
      ranks.get(1).close();
      PeerFailedException e = assertThrows(PeerFailedException.class, stream::synchronize);
      assertEquals(List.of(1), e.failedRanks());
      assertTrue(e.getMessage().contains("allReduce(3 int32, sum) #1"), e::getMessage);
      assertTrue(e.getMessage().contains("rank 1, on another host, is gone"), e::getMessage);
    }
  }
}
