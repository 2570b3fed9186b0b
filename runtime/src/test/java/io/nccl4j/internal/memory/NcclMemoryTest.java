package io.nccl4j.internal.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPrediction.Basis;
import io.nccl4j.memory.MemoryPrediction.Line;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import io.nccl4j.property.Property;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The prediction against what NCCL has logged, what was measured, and what has to hold always. */
class NcclMemoryTest {
  private static final long MIB = 1 << 20;

  private static MemoryQuery query(int nranks, int nccl) {
    return MemoryQuery.of(Backend.CUDA).with(Lever.NRANKS, nranks).with(Lever.NCCL, nccl);
  }

  private static Line only(MemoryQuery query, MemoryPurpose purpose, When when) {
    List<Line> lines =
        NcclMemory.lines(query).stream()
            .filter(line -> line.purpose() == purpose && line.when() == when)
            .toList();
    assertEquals(1, lines.size(), lines::toString);
    return lines.getFirst();
  }

  /** What NCCL logged as nvlsTotalSize with 4 GPUs. */
  @Test
  void loggedTotalOfFourGpus() {
    assertEquals(805_306_368, NcclMemory.nvlsTotalBytes(query(4, 21903)));
    assertEquals(805_306_368, NcclMemory.nvlsTotalBytes(query(4, 22005)));
    List<Line> lines =
        NcclMemory.lines(query(4, 22005)).stream()
            .filter(line -> line.basis() == Basis.LOGGED)
            .toList();
    assertEquals(1, lines.size());
    assertEquals(1024 * MIB, lines.getFirst().bytes(), "rounded up to 512 MiB");
  }

  /** 1.5 GiB a GPU on 8 H100 up to 2.20, 256 MiB from 2.26 on. */
  @ParameterizedTest
  @CsvSource({
    "21903, JOIN, 1536",
    "22005, JOIN, 1536",
    "22602, COLLECTIVE, 256",
    "22705, COLLECTIVE, 256",
    "23007, COLLECTIVE, 256"
  })
  void loggedBytesOfEightGpus(int nccl, When when, long mib) {
    List<Line> lines =
        NcclMemory.lines(query(8, nccl)).stream()
            .filter(line -> line.basis() == Basis.LOGGED)
            .toList();
    assertEquals(1, lines.size(), lines::toString);
    assertEquals(MemoryPurpose.NVLS, lines.getFirst().purpose());
    assertEquals(when, lines.getFirst().when());
    assertEquals(mib * MIB, lines.getFirst().bytes());
  }

  /** What no log has is labelled as computed; what there is in between follows the source. */
  @ParameterizedTest
  @CsvSource({
    "21, 8, 90, 1024",
    "22, 8, 90, 512",
    "25, 8, 90, 512",
    "25, 8, 100, 512",
    "26, 4, 90, 128",
    "30, 2, 90, 64",
    "30, 4, 90, 128",
    "30, 8, 100, 384",
    "26, 8, 100, 512"
  })
  void derivedBytes(int minor, int nranks, int arch, long mib) {
    MemoryQuery query = query(nranks, 20000 + 100 * minor + 7).with(Lever.ARCH, arch);
    long largest = 0;
    for (Line line : NcclMemory.lines(query)) {
      assertTrue(line.basis() == Basis.DERIVED, line::toString);
      assertTrue(line.source().startsWith("NCCL 2." + minor), line::toString);
      if (line.purpose() == MemoryPurpose.NVLS) {
        largest = Math.max(largest, line.bytes());
      }
    }
    assertEquals(mib * MIB, largest);
  }

  /** 1 H200: 384 MiB suspendable with one rank; with two 384 after joining, 1152 MiB later. */
  @Test
  void measuredBytesOnOneGpu() {
    MemoryQuery alone = query(1, 23007).with(Lever.ARCH, 90);
    assertEquals(384 * MIB, only(alone, MemoryPurpose.CHANNEL, When.JOIN).bytes());
    MemoryQuery shared = query(2, 23007).with(Lever.ARCH, 90).onOneGpu();
    Line joined = only(shared, MemoryPurpose.CHANNEL, When.JOIN);
    assertEquals(384 * MIB, joined.bytes());
    Line first = only(shared, MemoryPurpose.RING, When.COLLECTIVE);
    assertEquals(1152 * MIB, joined.bytes() + first.bytes());
  }

  /** 2 H200: 192 MiB suspendable after joining, 480 MiB after the first allReduce. */
  @Test
  void measuredBytesOfTwoGpus() {
    MemoryQuery query = query(2, 23007).with(Lever.NVLS, 0);
    Line joined = only(query, MemoryPurpose.CHANNEL, When.JOIN);
    Line first = only(query, MemoryPurpose.RING, When.COLLECTIVE);
    assertEquals(192 * MIB, joined.bytes());
    assertEquals(480 * MIB, joined.bytes() + first.bytes());
    assertEquals(Basis.MEASURED, joined.basis());
    assertEquals(Basis.MEASURED, first.basis());
  }

  /** 4 H200, all to all: 205,520,896 B after joining, 507,510,784 B after the first allReduces. */
  @Test
  void measuredBytesOfFourGpus() {
    MemoryQuery query = query(4, 23007).with(Lever.NVLS, 0);
    MemoryPrediction prediction = MemoryPrediction.of(query);
    long barrier = prediction.bytes(MemoryPurpose.BARRIER);
    assertEquals(205_520_896, prediction.bytes(MemoryPlace.DEVICE, When.JOIN) - barrier);
    assertEquals(507_510_784, prediction.bytes(MemoryPlace.DEVICE, When.COLLECTIVE) - barrier);
  }

  /** Where NCCL may choose trees, or connects everything when joining, they count. */
  @ParameterizedTest
  @CsvSource({
    "2, 23007, 80, 2, false",
    "4, 23007, 90, 4, false",
    "8, 22403, 90, 8, false",
    "4, 22304, 90, 4, true",
    "4, 23007, 80, 4, true",
    "4, 23007, 100, 4, true",
    "4, 22105, 90, 4, true",
    "16, 23007, 90, 8, true",
    "16, 23007, 90, 16, true"
  })
  void treesWhereTheyMayBe(int nranks, int nccl, int arch, int local, boolean trees) {
    MemoryQuery query =
        query(nranks, nccl).with(Lever.ARCH, arch).with(Lever.RANKS_PER_NODE, local);
    assertEquals(trees, bytes(query, MemoryPurpose.TREE) > 0);
    if (trees) {
      assertEquals(bytes(query, MemoryPurpose.RING), bytes(query, MemoryPurpose.TREE));
    }
    if (nranks > 2) {
      assertTrue(bytes(query.with(Lever.TREES, 1), MemoryPurpose.TREE) > 0);
      MemoryQuery asked = query.withEnvironment(Map.of("NCCL_ALGO", "allreduce:tree"));
      assertTrue(bytes(asked, MemoryPurpose.TREE) > 0);
    }
  }

  private static long bytes(MemoryQuery query, MemoryPurpose purpose) {
    return NcclMemory.lines(query).stream()
        .filter(line -> line.purpose() == purpose)
        .mapToLong(Line::bytes)
        .sum();
  }

  /** Between two GPUs before 2.28.7, before Hopper, or switched off: no NVLS. */
  @ParameterizedTest
  @CsvSource({"2, 22803, 90, 1", "8, 23007, 80, 1", "8, 23007, 90, 0", "1, 23007, 90, 1"})
  void noNvls(int nranks, int nccl, int arch, int nvls) {
    MemoryQuery query = query(nranks, nccl).with(Lever.ARCH, arch).with(Lever.NVLS, nvls);
    assertEquals(0, NcclMemory.nvlsTotalBytes(query));
    assertTrue(
        NcclMemory.lines(query).stream().noneMatch(line -> line.purpose() == MemoryPurpose.NVLS));
  }

  /** 10 + 2 MiB a channel and peer, on A100 6 + 6. */
  @Test
  void exchangeWithPeers() {
    for (int arch : new int[] {80, 90}) {
      MemoryQuery query = query(8, 23007).with(Lever.ARCH, arch).with(Lever.PEERS, 7);
      assertEquals(7 * 32 * 12 * MIB, only(query, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    }
    MemoryQuery few = query(8, 23007).with(Lever.PEERS, 3).with(Lever.PEER_CHANNELS, 2);
    assertEquals(3 * 2 * 12 * MIB, only(few, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    // Who only receives needs the larger part, on A100s who only sends; and at most all others.
    MemoryQuery one = query(8, 23007).with(Lever.PEER_CHANNELS, 1);
    MemoryQuery from = one.with(Lever.RECEIVE_PEERS, 7);
    assertEquals(7 * 10 * MIB, only(from, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    MemoryQuery to = one.with(Lever.SEND_PEERS, 7);
    assertEquals(7 * 2 * MIB, only(to, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    MemoryQuery older = to.with(Lever.ARCH, 80);
    assertEquals(7 * 6 * MIB, only(older, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    MemoryQuery ring = one.with(Lever.SEND_PEERS, 1).with(Lever.RECEIVE_PEERS, 1);
    assertEquals(12 * MIB, only(ring, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
    MemoryQuery many = from.with(Lever.PEERS, 3).with(Lever.SEND_PEERS, 9);
    assertEquals(7 * 12 * MIB, only(many, MemoryPurpose.EXCHANGE, When.EXCHANGE).bytes());
  }

  /** Segments of 9,637,888 and 4096 bytes and the count of their users, in whole pages. */
  @Test
  void sharedMemory() {
    MemoryQuery query = query(8, 22105).with(Lever.P2P, 0);
    long file = 9_637_888 + 4096 + 8192;
    assertEquals(2 * file, only(query, MemoryPurpose.RING, When.JOIN).bytes());
    assertEquals(2 * file, only(query, MemoryPurpose.TREE, When.JOIN).bytes());
    MemoryPrediction prediction = MemoryPrediction.of(query);
    assertEquals(2 * 2 * file, prediction.bytes(MemoryPlace.SHM));
    assertEquals(8 * 2 * 2 * file, prediction.shmBytesPerNode());
    assertEquals(0, MemoryPrediction.of(query.with(Lever.SHM, 0)).shmBytesPerNode());
    assertEquals(0, MemoryPrediction.of(query.with(Lever.P2P, 1)).shmBytesPerNode());
    // CUDA shares it from 2.24 on, but not between ranks of one process.
    MemoryQuery newer = query.with(Lever.NCCL, 23007);
    assertEquals(0, MemoryPrediction.of(newer).shmBytesPerNode());
    assertTrue(MemoryPrediction.of(newer.with(Lever.RANKS_PER_PROCESS, 2)).shmBytesPerNode() > 0);
    assertTrue(MemoryPrediction.of(newer.with(Lever.CUMEM_HOST, 0)).shmBytesPerNode() > 0);
  }

  /** The pool of the proxy, where there is a network. */
  @ParameterizedTest
  @CsvSource({"23007, 34213888", "22502, 34213888", "22304, 15208448", "22105, 7344128"})
  void proxyPool(int nccl, long bytes) {
    MemoryQuery query = query(16, nccl).with(Lever.RANKS_PER_NODE, 8);
    Line line = only(query, MemoryPurpose.PROXY, When.COLLECTIVE);
    assertEquals(MemoryPlace.SHM, line.place());
    assertEquals(bytes, line.bytes());
    assertEquals(8 * bytes, MemoryPrediction.of(query).shmBytesPerNode());
  }

  @Test
  void environmentBeatsConfiguration() {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .fifoBytes(1 << 13)
            .with(NcclOptions.builder().maxCtas(8).nvlsCtas(4).build())
            .build();
    MemoryQuery query =
        query(8, 23007)
            .with(config)
            .withEnvironment(
                Map.of(
                    "NCCL_NVLS_NCHANNELS", "2",
                    "NCCL_P2P_DISABLE", "0",
                    "NCCL_SHM_DISABLE", "1",
                    "NCCL_BUFFSIZE", "1048576",
                    "NCCL_LL_BUFFSIZE", "much"));
    assertEquals(8, query.value(Lever.MAX_CTAS));
    assertEquals(2, query.value(Lever.NVLS_CHANNELS));
    assertEquals(1, query.value(Lever.P2P));
    assertEquals(0, query.value(Lever.SHM));
    assertEquals(1 << 20, query.value(Lever.BUFFSIZE));
    assertEquals(512 << 10, query.value(Lever.LL_BUFFSIZE));
    assertEquals(1 << 13, query.value(Lever.FIFO));
    assertThrows(InvalidArgumentException.class, () -> query.with(Lever.ARCH, 60));
    assertThrows(InvalidArgumentException.class, () -> MemoryQuery.of(Backend.AUTO));
  }

  /** Fewer CTAs, smaller buffers, no NVLS: never more memory. */
  @Test
  void leversOnlyLower() {
    Property.holds(
        300,
        draw -> {
          int nranks = draw.integer("nranks", 1, 64);
          int minor = draw.integer("minor", 19, 30);
          int ctas = draw.integer("ctas", 1, 63);
          int which = draw.integer("which", 0, 4);
          int arch = new int[] {70, 80, 90, 100, 120}[which];
          MemoryQuery query =
              query(nranks, 20000 + 100 * minor)
                  .with(Lever.ARCH, arch)
                  .with(Lever.RANKS_PER_NODE, Math.min(nranks, 8))
                  .with(Lever.PEERS, nranks - 1);
          MemoryQuery more = query.with(Lever.MAX_CTAS, ctas + 1);
          MemoryQuery less = query.with(Lever.MAX_CTAS, ctas);
          for (MemoryPlace place : MemoryPlace.values()) {
            assertTrue(bytes(less, place) <= bytes(more, place));
            assertTrue(bytes(query.with(Lever.NVLS, 0), place) <= bytes(query, place));
            assertTrue(bytes(query.with(Lever.BUFFSIZE, 1 << 20), place) <= bytes(query, place));
            assertTrue(bytes(query.with(Lever.PEERS, 0), place) <= bytes(query, place));
          }
          NcclMemory.lines(query).forEach(line -> assertTrue(line.bytes() > 0, line::toString));
        });
  }

  private static long bytes(MemoryQuery query, MemoryPlace place) {
    return MemoryPrediction.of(query).bytes(place);
  }
}
