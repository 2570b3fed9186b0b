package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo.TuningInfo;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.conformance.Case.Op;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Locale;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every algorithm and protocol forced: results, refusals, and what ranks must agree on. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ForcedTest {
  private static final int SMALL_BYTES = 16 << 10;

  @BeforeEach
  void onHost() {
    TestBackend.requireHost("cuda leaves the choice to NCCL");
  }

  private static CommunicatorConfig algorithm(String name) {
    return TestBackend.CONFIG.toBuilder().algorithm(name).build();
  }

  private static CommunicatorConfig protocol(String name) {
    return TestBackend.CONFIG.toBuilder().protocol(name).build();
  }

  private static CommunicatorConfig config(String setting, String name) {
    return setting.equals("algo") ? algorithm(name) : protocol(name);
  }

  /** Each operation that has it, at the sizes that have it, with exact expected values. */
  @ParameterizedTest
  @CsvSource({
    "algo, flat",
    "algo, share",
    "proto, ll",
    "proto, direct",
    "proto, stream",
    "proto, staged"
  })
  void allThatCanBeForcedIsRight(String setting, String name) throws Exception {
    CommunicatorConfig config = config(setting, name);
    int nranks = 3;
    List<TuningInfo> rows = Backend.HOST.tuning(nranks, config);
    List<Case> cases =
        CaseGenerator.sample(RankLayout.THREADS, nranks).stream()
            .filter(c -> bytes(c) <= SMALL_BYTES && isPossible(c, rows))
            .toList();
    assertTrue(cases.size() > 50, () -> cases.size() + " cases");
    assertEquals(
        List.of(),
        RankLayout.THREADS.run(cases, () -> TestBackend.communicators(nranks, config)),
        () -> setting + " " + name);
  }

  private static long bytes(Case c) {
    return (long) c.count() * c.type().byteSize() * (c.op().holdsBlockPerRank() ? c.nranks() : 1);
  }

  private static boolean isPossible(Case c, List<TuningInfo> rows) {
    OptionalLong most =
        rows.stream()
            .filter(row -> row.operation().equals(operation(c.op())))
            .mapToLong(TuningInfo::mostBytes)
            .max();
    // Both send first: only a message that needs no receiver lets them go on.
    boolean eager =
        c.op() != Op.EAGER_PAIRS
            || rows.stream()
                .anyMatch(row -> row.operation().equals("send") && row.protocol().equals("ll"));
    return eager && most.isPresent() && (bytes(c) <= most.getAsLong() || c.op() == Op.BARRIER);
  }

  private static String operation(Op op) {
    return op.pointToPoint()
        ? "send"
        : Pattern.compile("_(.)")
            .matcher(op.name().toLowerCase(Locale.ROOT))
            .replaceAll(match -> match.group(1).toUpperCase(Locale.ROOT));
  }

  /** Several pieces of each share, and a last one that is no whole one; sums that need rounding. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whatIsWrittenPastTheCachesHasTheSameBits(boolean inPlace) throws Exception {
    int count = (10 << 20) / Float.BYTES + 7;
    float[] direct = sums(protocol("direct"), count, inPlace, 0);
    assertArrayEquals(direct, sums(protocol("stream"), count, inPlace, 4 << 20));
  }

  /**
   * Less than a share for each rank, a last one that is short, the most that fits; in place and
   * scaled, too. In a row, so that slots are used again.
   */
  @ParameterizedTest
  @CsvSource({"3, 384", "5, 17", "5, 384", "8, 1", "8, 129", "17, 33", "17, 256", "17, 384"})
  void sharesInSlotsHaveTheBitsOfWholeSlots(int nranks, int count) throws Exception {
    CommunicatorConfig.Builder ll = TestBackend.CONFIG.toBuilder().protocol("ll");
    assertArrayEquals(
        smallSums(ll.algorithm("flat").build(), nranks, count),
        smallSums(ll.algorithm("share").build(), nranks, count));
  }

  /** What each rank has in the end: of sums, scaled sums and sums in place of one another. */
  private static float[][] smallSums(CommunicatorConfig config, int nranks, int count)
      throws Exception {
    float[][] results = new float[nranks][];
    long bytes = (long) Float.BYTES * count;
    try (Communicators all = TestBackend.communicators(nranks, config)) {
      all.run(
          communicator -> {
            int rank = communicator.rank();
            ReduceOp scaled = ReduceOp.preMulSum(1f / (rank + 3));
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer in = communicator.device().allocate(bytes);
                DeviceBuffer out = communicator.device().allocate(bytes)) {
              float[] values = new float[count];
              for (int i = 0; i < count; i++) {
                values[i] = 1f / (1 + i % 1009 + 31 * rank);
              }
              in.copyFrom(MemorySegment.ofArray(values));
              for (int i = 0; i < 40; i++) {
                communicator.allReduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM, stream);
                communicator.allReduce(out, out, count, DataType.FLOAT32, scaled, stream);
                communicator.allReduce(in, in, count, DataType.FLOAT32, ReduceOp.AVG, stream);
                communicator.allReduce(in, in, count, DataType.FLOAT32, scaled, stream);
              }
              stream.synchronize();
              float[] last = out.hostSegment().orElseThrow().toArray(ValueLayout.JAVA_FLOAT);
              results[rank] = last;
            }
          });
    }
    for (float[] result : results) {
      assertArrayEquals(results[0], result);
      for (float value : result) {
        assertTrue(value > 0, () -> value + " of " + nranks + " ranks");
      }
    }
    return results;
  }

  /** The results of rank 1, after it was made sure that rank 0 has them, too. */
  private static float[] sums(
      CommunicatorConfig config, int count, boolean inPlace, long expectedMemory) throws Exception {
    float[][] results = new float[2][];
    MemoryReport[] reports = new MemoryReport[2];
    try (Communicators both = TestBackend.communicators(2, config)) {
      both.run(
          communicator -> {
            int rank = communicator.rank();
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer in = communicator.device().allocate(4L * count);
                DeviceBuffer other = communicator.device().allocate(4L * count)) {
              float[] values = new float[count];
              for (int i = 0; i < count; i++) {
                values[i] = 1f / (1 + i % 1009 + 31 * rank);
              }
              in.copyFrom(MemorySegment.ofArray(values));
              DeviceBuffer out = inPlace ? in : other;
              communicator.allReduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM, stream);
              stream.synchronize();
              results[rank] = out.hostSegment().orElseThrow().toArray(ValueLayout.JAVA_FLOAT);
              reports[rank] = MemoryReport.of(communicator);
            }
          });
    }
    assertArrayEquals(results[0], results[1]);
    for (MemoryReport report : reports) {
      assertEquals(expectedMemory, report.bytes(MemoryPurpose.STAGING), report::toString);
    }
    return results[1];
  }

  // ---- refusals

  @Test
  void whatAnOperationHasNotIsRefusedAndTheRestGoesOn() throws Exception {
    try (Communicators both = TestBackend.communicators(2, algorithm("share"))) {
      both.run(
          communicator -> {
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer in = communicator.device().allocate(64);
                DeviceBuffer out = communicator.device().allocate(128)) {
              InvalidUsageException e =
                  assertThrows(
                      InvalidUsageException.class,
                      () -> communicator.allGather(in, out, 16, DataType.FLOAT32, stream));
              assertEquals(
                  "allGather cannot be done with algo share, proto unset; it has flat with ll up to"
                      + " 1536 B, flat with staged, flat with stream, flat with direct: force one"
                      + " of these, or nothing (NCCL4J_ALGO, NCCL4J_PROTO, --algo, --proto)",
                  e.getMessage());
              communicator.allReduce(in, out, 16, DataType.FLOAT32, ReduceOp.SUM, stream);
              communicator.barrier(stream);
              stream.synchronize();
            }
          });
    }
  }

  @Test
  void whatIsTooLargeIsRefused() throws Exception {
    try (Communicators both = TestBackend.communicators(2, protocol("ll"))) {
      both.run(
          communicator -> {
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer in = communicator.device().allocate(4096);
                DeviceBuffer out = communicator.device().allocate(4096)) {
              InvalidUsageException e =
                  assertThrows(
                      InvalidUsageException.class,
                      () ->
                          communicator.allReduce(
                              in, out, 385, DataType.FLOAT32, ReduceOp.SUM, stream));
              assertTrue(
                  e.getMessage().startsWith("allReduce of 1540 B cannot be done with"),
                  e::getMessage);
              // Blocks of all ranks together.
              assertThrows(
                  InvalidUsageException.class,
                  () -> communicator.allToAll(in, out, 193, DataType.FLOAT32, stream));
              assertThrows(
                  InvalidUsageException.class,
                  () ->
                      communicator.send(
                          in, 287, DataType.FLOAT32, 1 - communicator.rank(), stream));
              communicator.allReduce(in, out, 384, DataType.FLOAT32, ReduceOp.SUM, stream);
              communicator.allToAll(in, out, 192, DataType.FLOAT32, stream);
              stream.synchronize();
            }
          });
    }
  }

  /** The exchanges of a split are no operations of the program. */
  @ParameterizedTest
  @CsvSource({"algo, share", "proto, ll", "proto, direct", "proto, stream", "proto, staged"})
  void splitsWhateverIsForced(String setting, String name) throws Exception {
    try (Communicators three = TestBackend.communicators(3, config(setting, name))) {
      three.run(
          communicator -> {
            Communicator child = communicator.split(communicator.rank() % 2, 0);
            assertEquals(communicator.rank() == 1 ? 1 : 2, child.nranks());
            assertEquals(
                name, child.config().algorithm().or(() -> child.config().protocol()).orElseThrow());
            child.close();
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"algo, tree, flat", "proto, LL128, ll"})
  void whatThereIsNotIsRefused(String setting, String name, String known) {
    InvalidArgumentException e =
        assertThrows(
            InvalidArgumentException.class,
            () -> TestBackend.communicators(2, config(setting, name)));
    assertTrue(
        e.getMessage().startsWith(setting + " is '" + name + "', which the host backend does not"),
        e::getMessage);
    assertTrue(e.remedy().contains(known), e::remedy);
  }

  @Test
  void severalHostsHaveOneProtocol() {
    InvalidUsageException e =
        assertThrows(
            InvalidUsageException.class,
            () -> TestBackend.overHosts(new int[] {0, 1}, protocol("ll"), "memory"));
    assertTrue(e.getMessage().contains("on several hosts; use direct"), e::getMessage);
  }

  // ---- agreement

  @ParameterizedTest
  @CsvSource({"algo, flat", "proto, direct"})
  void ranksThatDisagreeAreAllTold(String setting, String name) {
    UniqueId id = UniqueId.create(Backend.HOST, UniqueId.Reach.MACHINE);
    List<CompletableFuture<Communicator>> joins =
        List.of(join(id, 0, TestBackend.CONFIG), join(id, 1, config(setting, name)));
    for (CompletableFuture<Communicator> join : joins) {
      NcclException e =
          (NcclException) assertThrows(CompletionException.class, join::join).getCause();
      assertEquals(InvalidUsageException.class, e.getClass(), e::getMessage);
      assertTrue(e.getMessage().contains("algo unset, proto unset"), e::getMessage);
      assertTrue(e.getMessage().contains(setting + " " + name), e::getMessage);
      assertTrue(e.remedy().startsWith("give all ranks the same"), e::remedy);
    }
  }

  private static CompletableFuture<Communicator> join(
      UniqueId id, int rank, CommunicatorConfig config) {
    return CompletableFuture.supplyAsync(
        () -> Communicator.initRank(TestBackend.device(rank), 2, id, rank, config),
        task -> Thread.ofPlatform().start(task));
  }
}
