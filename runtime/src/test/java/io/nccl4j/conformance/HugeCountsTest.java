package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Counts beyond 2³¹, on one host and between two. It needs 10 GB of memory. */
@Tag("long")
@Timeout(1200)
class HugeCountsTest {
  private static final long COUNT = (1L << 31) + 4099;
  private static final long STRIDE = 100_003;

  private static Communicators ranks(String hosts) {
    TestBackend.requireHost("GPUs of a test have less memory");
    return hosts.equals("0 0")
        ? TestBackend.communicators(2)
        : TestBackend.overHosts(new int[] {0, 1}, TestBackend.CONFIG, "netty");
  }

  @SuppressWarnings("restricted")
  private static MemorySegment memory(DeviceBuffer buffer) {
    return MemorySegment.ofAddress(buffer.address()).reinterpret(buffer.byteSize());
  }

  private static byte value(long i, int rank) {
    return (byte) (i / STRIDE * 31 + rank * 7L + 1);
  }

  private static void fill(DeviceBuffer buffer, int rank) {
    MemorySegment memory = memory(buffer);
    for (long start = 0; start < COUNT; start += STRIDE) {
      memory.asSlice(start, Math.min(STRIDE, COUNT - start)).fill(value(start, rank));
    }
  }

  @ParameterizedTest(name = "hosts {0}")
  @ValueSource(strings = {"0 0", "0 1"})
  void sendAndReceive(String hosts) throws Exception {
    try (Communicators ranks = ranks(hosts)) {
      ranks.run(
          comm -> {
            int rank = comm.rank();
            try (Stream stream = comm.device().newStream();
                DeviceBuffer sent = comm.device().allocate(DataType.INT8, COUNT);
                DeviceBuffer received = comm.device().allocate(DataType.INT8, COUNT)) {
              fill(sent, rank);
              Group.run(
                  () -> {
                    comm.send(sent, COUNT, DataType.INT8, 1 - rank, stream);
                    comm.recv(received, COUNT, DataType.INT8, 1 - rank, stream);
                  });
              stream.synchronize();
              // Now it is what the peer has sent.
              fill(sent, 1 - rank);
              assertEquals(-1, memory(sent).mismatch(memory(received)));
            }
          });
    }
  }

  @ParameterizedTest(name = "hosts {0}")
  @ValueSource(strings = {"0 0", "0 1"})
  void allReduce(String hosts) throws Exception {
    try (Communicators ranks = ranks(hosts)) {
      ranks.run(
          comm -> {
            try (Stream stream = comm.device().newStream();
                DeviceBuffer buffer = comm.device().allocate(DataType.INT8, COUNT)) {
              fill(buffer, comm.rank());
              comm.allReduce(buffer, buffer, COUNT, DataType.INT8, ReduceOp.SUM, stream);
              stream.synchronize();
              MemorySegment memory = memory(buffer);
              for (long i = 0; i < COUNT; i += i < COUNT - 5000 ? 4093 : 1) {
                byte expected = (byte) (value(i, 0) + value(i, 1));
                if (memory.get(ValueLayout.JAVA_BYTE, i) != expected) {
                  assertEquals(expected, memory.get(ValueLayout.JAVA_BYTE, i), "element " + i);
                }
              }
            }
          });
    }
  }
}
