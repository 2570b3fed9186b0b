package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.MemoryPolicy;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Setting;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * What memory may be taken, and what is said of it. The trials are in order: NVLS can be switched
 * off only before the first communicator.
 */
final class MemoryTrials {
  private static final ByteArrayOutputStream LOG = new ByteArrayOutputStream();
  private static final long MIB = 1 << 20;
  private static final int NRANKS = 4;

  /** Of NCCL, as the stand-in takes it. */
  private static final long NCCL_BYTES = 4 * MIB;

  private final StandIn standIn;

  private MemoryTrials(StandIn standIn) {
    this.standIn = standIn;
  }

  public static void main(String[] arguments) {
    System.setProperty("log4j.provider", "org.apache.logging.log4j.simple.internal.SimpleProvider");
    System.setProperty("org.apache.logging.log4j.simplelog.level", "WARN");
    System.setErr(new PrintStream(LOG, true, StandardCharsets.UTF_8));
    Trials trials = new Trials(arguments);
    MemoryTrials all = new MemoryTrials(trials.standIn());
    trials.add("strictRefuses", all::strictRefuses);
    trials.add("autoSwitchesNvlsOff", all::autoSwitchesNvlsOff);
    trials.add("failuresLeaveNothing", all::failuresLeaveNothing);
    trials.add("autoLowersCtas", all::autoLowersCtas);
    trials.add("whatTheUserSetStays", all::whatTheUserSetStays);
    trials.add("budgetIsFirm", all::budgetIsFirm);
    trials.add("offLooksAtNothing", all::offLooksAtNothing);
    trials.add("budgetOfADevice", all::budgetOfADevice);
    trials.add("childrenAreHeldToBudgets", all::childrenAreHeldToBudgets);
    trials.add("reports", all::reports);
    trials.run();
  }

  private static CommunicatorConfig.Builder config() {
    return CommunicatorConfig.builder()
        .initTimeout(Duration.ofSeconds(20))
        .operationTimeout(Duration.ofSeconds(15))
        .closeTimeout(Duration.ofSeconds(5));
  }

  private static List<Device> devices() {
    return IntStream.range(0, NRANKS).mapToObj(i -> Device.get(Backend.CUDA, i)).toList();
  }

  private static Communicators ranks(CommunicatorConfig config) {
    return io.nccl4j.Communicator.initAll(devices(), config);
  }

  private static void memory(long bytes) {
    StandIn.environment("STANDIN_CUDA_MEMORY", bytes == 0 ? "" : Long.toString(bytes));
  }

  /** Four Hopper GPUs: NCCL 2.24 and newer never choose trees, and need less. */
  private static long mib(int withTrees, int withRingsOnly) {
    return (Features.SHRINK.isPresent() ? withRingsOnly : withTrees) * MIB;
  }

  private static List<String> warnings() {
    List<String> lines =
        LOG.toString(StandardCharsets.UTF_8).lines().filter(l -> l.contains("WARN")).toList();
    LOG.reset();
    return lines;
  }

  private static void sum(Communicators communicators) throws Exception {
    communicators.run(
        communicator -> {
          try (Stream stream = communicator.device().newStream();
              DeviceBuffer data = communicator.device().allocate(4)) {
            data.copyFrom(new int[] {communicator.rank() + 1});
            communicator.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
            stream.synchronize();
            int[] got = new int[1];
            data.copyTo(got);
            assertEquals(NRANKS * (NRANKS + 1) / 2, got[0]);
          }
        });
  }

  /** What is alive when devices have given back what they keep. */
  private Map<String, Long> trimmed() {
    devices().forEach(CudaRig::trim);
    // What NCCL ends in the background may take a while.
    CudaRig.eventually(() -> standIn.live("comm") == 0 && standIn.live("memory") == 0);
    return standIn.live();
  }

  private void strictRefuses() {
    CommunicatorConfig strict =
        config().name("large").memoryPolicy(MemoryPolicy.STRICT).memoryBudget(100 * MIB).build();
    MemoryBudgetException e =
        assertThrows(MemoryBudgetException.class, () -> ranks(strict).close());
    MemoryPrediction prediction = e.prediction().orElseThrow();
    long bytes = prediction.bytes(MemoryPlace.DEVICE);
    assertTrue(e.problem().contains("communicator large would take " + bytes + " B of device"));
    assertTrue(e.problem().contains("memory-budget is 104857600 B"), e::problem);
    assertTrue(e.getMessage().contains(prediction.toString()), e::getMessage);
    assertTrue(prediction.bytes(MemoryPurpose.NVLS) > 0);
    assertEquals(0, standIn.live("memory") + standIn.live("comm"));
    // The free memory is a limit of its own.
    memory(300 * MIB);
    CommunicatorConfig free = config().memoryPolicy(MemoryPolicy.STRICT).build();
    e = assertThrows(MemoryBudgetException.class, () -> ranks(free).close());
    assertTrue(e.problem().contains("the free memory of cuda device 0 is"), e::problem);
    memory(0);
    assertEquals(0, standIn.calls("ncclGetUniqueId"), "NCCL was not called");
    assertEquals(0, standIn.calls("ncclCommInitRankConfig"));
    assertEquals(List.of(), warnings());
  }

  /** Whichever step of joining fails, whichever time it is called: it leaves nothing. */
  private void failuresLeaveNothing() throws Exception {
    // Where a rank is lost before NCCL knows of it, the others wait for it until then.
    CommunicatorConfig config = config().initTimeout(Duration.ofSeconds(1)).build();
    for (String step :
        List.of(
            "cuMemCreate",
            "cuMemAddressReserve",
            "cuMemMap",
            "cuMemSetAccess",
            "cuCtxPushCurrent_v2",
            "ncclGroupStart",
            "ncclCommInitRankConfig")) {
      failAt(step, config);
    }
  }

  private void failAt(String step, CommunicatorConfig config) throws Exception {
    Map<String, Long> before = trimmed();
    for (int call = 1; ; call++) {
      standIn.reset();
      standIn.inject(step, call, StandIn.Fault.ERROR, step.startsWith("nccl") ? 2 : 999);
      try (Communicators joined = io.nccl4j.Communicator.initAll(devices().subList(0, 2), config)) {
        assertTrue(standIn.calls(step) < call, step + ": the fault was swallowed");
        assertTrue(call > 1, step + " is never called");
        assertEquals(2, joined.size());
        standIn.reset();
        break;
      } catch (NcclException e) {
        standIn.reset();
        CudaRig.eventually(() -> standIn.live().equals(before));
        assertEquals(before, standIn.live(), step + ", call " + call + ": " + e.getMessage());
        for (Device device : devices()) {
          assertEquals(
              0,
              MemoryReport.of(device).bytes(MemoryPlace.DEVICE),
              () -> "" + MemoryReport.of(device));
        }
      }
    }
    assertEquals(before, trimmed());
  }

  /** With its multicast buffers NCCL would find no memory; without it all fits. */
  private void autoSwitchesNvlsOff() throws Exception {
    StandIn.environment("STANDIN_NCCL_NVLS", Long.toString(880 * MIB));
    long free = mib(900, 560);
    memory(free);
    try (Communicators joined = ranks(config().name("job").build())) {
      List<String> warnings = warnings();
      assertEquals(1, warnings.size(), warnings::toString);
      assertTrue(
          warnings.getFirst().contains("communicator job would take ")
              && warnings.getFirst().contains("the free memory of cuda device 0 is " + free + " B")
              && warnings.getFirst().contains("NVLS is off for this process (NCCL_NVLS_ENABLE=0)"),
          warnings::toString);
      sum(joined);
      assertEquals(NcclOptions.of(joined.get(0).config()), NcclOptions.defaults());
    } finally {
      memory(0);
    }
    assertEquals(List.of(), warnings());
  }

  /** NVLS is off already: fewer CTAs, for this communicator alone. */
  private void autoLowersCtas() throws Exception {
    memory(mib(470, 270));
    try (Communicators joined = ranks(config().build())) {
      List<String> warnings = warnings();
      assertEquals(1, warnings.size(), warnings::toString);
      assertTrue(warnings.getFirst().contains(": maxCTAs is 8; it will take "), warnings::toString);
      assertTrue(
          joined
              .get(0)
              .config()
              .settings()
              .contains(new Setting("nccl.maxCTAs", "8", "memory-policy")));
      sum(joined);
    } finally {
      memory(0);
    }
    try (Communicators joined = ranks(config().build())) {
      sum(joined);
    }
    assertEquals(List.of(), warnings());
  }

  /** An order is an order: it is said that the memory may not do. */
  private void whatTheUserSetStays() throws Exception {
    memory(mib(470, 270));
    NcclOptions options = NcclOptions.builder().maxCtas(24).build();
    try (Communicators joined = ranks(config().with(options).build())) {
      List<String> warnings = warnings();
      assertEquals(1, warnings.size(), warnings::toString);
      assertTrue(
          warnings.getFirst().contains("nothing can be lowered")
              && warnings.getFirst().contains("which may be too much"),
          warnings::toString);
      sum(joined);
    } finally {
      memory(0);
    }
  }

  private void budgetIsFirm() {
    CommunicatorConfig config = config().memoryBudget(20 * MIB).build();
    MemoryBudgetException e =
        assertThrows(MemoryBudgetException.class, () -> ranks(config).close());
    assertTrue(e.problem().contains("memory-budget is 20971520 B"), e::problem);
    assertInstanceOf(
        MemoryBudgetException.class,
        assertThrows(
            NcclException.class,
            () ->
                io.nccl4j.Communicator.initRank(
                        Device.get(Backend.CUDA, 0),
                        2,
                        io.nccl4j.UniqueId.create(Backend.CUDA),
                        0,
                        config)
                    .close()));
    assertEquals(0, standIn.calls("ncclCommInitRankConfig"));
  }

  private void offLooksAtNothing() throws Exception {
    memory(300 * MIB);
    CommunicatorConfig config = config().memoryBudget(1).memoryPolicy(MemoryPolicy.OFF).build();
    try (Communicators joined = ranks(config)) {
      sum(joined);
      assertEquals(0, standIn.calls("cuMemGetInfo_v2"));
      assertEquals(List.of(), MemoryReport.of(joined.get(0)).comparisons());
    } finally {
      memory(0);
    }
    assertEquals(List.of(), warnings());
  }

  /** The largest child there can be decides; what it takes is predicted anew when it is there. */
  private void childrenAreHeldToBudgets() throws Exception {
    CommunicatorConfig little =
        config().memoryBudget(20 * MIB).memoryPolicy(MemoryPolicy.STRICT).build();
    try (Communicators joined = ranks(config().build())) {
      List<MemoryPrediction> refused = Collections.synchronizedList(new ArrayList<>());
      long live = standIn.live("comm");
      joined.run(
          communicator -> {
            MemoryBudgetException e =
                assertThrows(
                    MemoryBudgetException.class, () -> communicator.split(0, 0, little).close());
            assertTrue(
                e.problem().startsWith("split of communicator " + communicator.name()), e::problem);
            assertTrue(e.problem().contains("memory-budget is 20971520 B"), e::problem);
            refused.add(e.prediction().orElseThrow());
          });
      assertEquals(live, standIn.live("comm"), "each took part, and none has a child");
      NcclCommunicator first = NcclCommunicator.of(joined.get(0));
      if (Features.SHRINK.isPresent()) {
        assertThrows(
            MemoryBudgetException.class, () -> first.shrink(new int[] {1}, true, little).close());
        assertEquals(0, standIn.calls("ncclCommShrink"));
      }
      if (Features.GROW.isPresent()) {
        UniqueId id = first.createGrowId();
        assertThrows(MemoryBudgetException.class, () -> first.grow(6, id, little).close());
        assertThrows(
            MemoryBudgetException.class,
            () -> NcclCommunicator.join(Device.get(Backend.CUDA, 4), 6, id, 4, little).close());
        assertEquals(0, standIn.calls("ncclCommGrow"));
      }
      // Nothing has happened to the ranks.
      sum(joined);
      assertEquals(List.of(), warnings());
      long largest = refused.getFirst().bytes(MemoryPlace.DEVICE);
      CommunicatorConfig half = config().memoryBudget(largest / 2).build();
      joined.run(
          communicator -> {
            try (io.nccl4j.Communicator child = communicator.split(0, 0, half)) {
              assertTrue(NcclOptions.of(child.config()).isSet(NcclOptions.Option.MAX_CTAS));
            }
            try (io.nccl4j.Communicator child = communicator.split(communicator.rank(), 0)) {
              assertEquals(1, child.nranks());
              long taken = predicted(child);
              assertTrue(
                  taken < predicted(communicator),
                  () -> taken + " B, all: " + predicted(communicator) + " B");
            }
          });
      List<String> warnings = warnings();
      assertEquals(NRANKS, warnings.size(), warnings::toString);
      assertTrue(warnings.getFirst().contains("split of communicator"), warnings::toString);
    }
  }

  /** What NCCL was predicted to take of the device, by the report of a communicator. */
  private static long predicted(io.nccl4j.Communicator communicator) {
    List<MemoryReport.Comparison> comparisons = MemoryReport.of(communicator).comparisons();
    return comparisons.stream()
        .filter(comparison -> comparison.what().equals("NCCL by now"))
        .findFirst()
        .orElse(comparisons.getFirst())
        .bookedBytes();
  }

  private void budgetOfADevice() throws Exception {
    Device device = Device.get(Backend.CUDA, 0);
    long before = MemoryReport.of(device).bytes(MemoryPlace.DEVICE);
    long budget = mib(1024, 700);
    System.setProperty("nccl4j.device-memory-budget", Long.toString(budget));
    try (Communicators joined = ranks(config().build())) {
      sum(joined);
      long left = budget - MemoryReport.of(device).bytes(MemoryPlace.DEVICE);
      MemoryBudgetException e =
          assertThrows(MemoryBudgetException.class, () -> device.allocate(left).close());
      assertTrue(e.problem().contains("its budget is " + budget), e::problem);
      assertTrue(e.prediction().isEmpty());
      // What is predicted for NCCL is taken.
      assertThrows(MemoryBudgetException.class, () -> device.allocate(left / 2).close());
      device.allocate(64 * MIB).close();
      // A second one does not fit beside the first one, but with fewer CTAs.
      try (Communicators second = ranks(config().build())) {
        assertTrue(NcclOptions.of(second.get(0).config()).isSet(NcclOptions.Option.MAX_CTAS));
      }
    } finally {
      System.clearProperty("nccl4j.device-memory-budget");
    }
    assertEquals(1, warnings().size());
    assertEquals(before, MemoryReport.of(device).bytes(MemoryPlace.DEVICE));
  }

  /** Booked, said by NCCL, predicted, and seen from outside. */
  private void reports() throws Exception {
    StandIn.environment("STANDIN_NCCL_NVLS", "");
    try (Communicators joined = ranks(config().build())) {
      sum(joined);
      boolean said = Features.MEMORY_STATISTICS.isPresent();
      for (io.nccl4j.Communicator communicator : joined) {
        MemoryReport report = MemoryReport.of(communicator);
        assertEquals(NCCL_BYTES, report.bytes(MemoryPurpose.NCCL), report::toString);
        assertTrue(
            report.toString().contains(said ? "ncclCommMemStats" : "by the free memory"),
            report::toString);
        assertEquals(said ? 3 : 1, report.comparisons().size());
        MemoryReport.Comparison joining = report.comparisons().getFirst();
        assertEquals(NCCL_BYTES, joining.measuredBytes(), report::toString);
        if (said) {
          // The device had a chunk already: nothing is unexplained.
          assertEquals(0, joining.differenceBytes(), report::toString);
        }
      }
      if (said) {
        for (io.nccl4j.Communicator communicator : joined) {
          assertEquals(
              NCCL_BYTES, NcclCommunicator.of(communicator).memoryStatistics().totalBytes());
        }
      }
      joined.get(1).abort();
      MemoryReport failed = MemoryReport.of(joined.get(1));
      assertEquals(4096, failed.bytes(MemoryPurpose.BARRIER), failed::toString);
    }
  }
}
