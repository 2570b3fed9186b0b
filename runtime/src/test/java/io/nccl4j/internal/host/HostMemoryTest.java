package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryPolicy;
import io.nccl4j.PeerFailedException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.join.Place;
import io.nccl4j.internal.host.join.Provisions;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.life.ProcessGroup;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.MemorySegment;
import java.util.AbstractList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Each byte of the host backend is on somebody's account, as long as it is taken. */
class HostMemoryTest {
  private static final int ORDINAL = 900;

  private static HostHeap heap() {
    return ProcessMemory.self().heap();
  }

  /** All that is taken from the system for the heap, by whomever. */
  private static void requireAllIsBooked() {
    long inBlocks = heap().allocatedBytes();
    MemoryReport report = ProcessMemory.self().book().report("all", heap());
    long unused = report.bytes(MemoryPurpose.UNUSED);
    assertTrue(unused >= 0, report::toString);
    assertEquals(Descriptors.fstat(heap().fd()).allocatedBytes(), inBlocks + unused);
  }

  @Test
  void buffersAreOnTheirDevice() {
    Device device = Device.get(Backend.HOST, ORDINAL);
    try (DeviceBuffer small = device.allocate(100);
        DeviceBuffer large = device.allocate((5 << 20) + 1);
        PinnedBuffer pinned = device.allocatePinned(64)) {
      MemoryReport report = MemoryReport.of(device);
      long expected = small.byteSize() + large.byteSize() + pinned.byteSize();
      assertEquals(expected, report.bytes(MemoryPurpose.USER), report::toString);
      assertEquals(64, report.bytes(MemoryPlace.NATIVE));
      assertTrue(report.toString().startsWith("memory of host device 900\n"));
      requireAllIsBooked();
    }
    MemoryReport after = MemoryReport.of(device);
    assertEquals(0, after.bytes(MemoryPurpose.USER));
    assertTrue(
        after.lines().stream()
            .anyMatch(line -> line.owner().equals("host device 900") && line.peakBytes() > 5 << 20),
        after::toString);
    requireAllIsBooked();
  }

  @Test
  void communicatorsOfThreads() {
    int nranks = 3;
    MemoryReport first;
    String name;
    try (HostRanks ranks = new HostRanks(nranks, 64)) {
      first = MemoryReport.of(ranks.get(0));
      name = ranks.get(0).name();
      assertEquals(ControlBlock.bytes(nranks), first.bytes(MemoryPurpose.CONTROL));
      assertEquals(ControlBlock.bytes(nranks), first.bytes(MemoryPlace.SHARED));
      for (int rank = 0; rank < nranks; rank++) {
        MemoryReport report = MemoryReport.of(ranks.get(rank));
        assertEquals(
            ranks.get(rank).config().fifoBytes(), report.bytes(MemoryPlace.HEAP), report::toString);
        assertEquals(0, report.bytes(MemoryPurpose.STAGING));
      }
      assertEquals(0, MemoryReport.of(ranks.get(1)).bytes(MemoryPurpose.CONTROL));
      MemoryReport device = MemoryReport.of(ranks.get(0).device());
      assertTrue(device.lines().containsAll(first.lines()), device::toString);
      requireAllIsBooked();
    }
    requireNothingOf(name);
  }

  /** Others may be there: a communicator whose peer was killed keeps its memory for a while. */
  private static void requireNothingOf(String name) {
    MemoryReport all = ProcessMemory.self().book().report("all", Device.get(Backend.HOST, 0));
    assertTrue(
        all.lines().stream()
            .filter(line -> line.owner().startsWith("communicator " + name + " "))
            .allMatch(line -> line.bytes() == 0),
        all::toString);
  }

  @Test
  void splitCommunicators() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      ranks.run(
          rank -> {
            try (Communicator child = ranks.get(rank).split(0, rank)) {
              assertEquals(
                  rank == 0 ? ControlBlock.bytes(2) : 0,
                  MemoryReport.of(child).bytes(MemoryPurpose.CONTROL));
            }
          });
    }
    requireAllIsBooked();
  }

  /** The other rank learns it at once, and the control block goes with that one. */
  @Test
  @Timeout(30)
  void aRankThatCannotBeMadeLeavesNothing() throws Exception {
    HostDevice device = (HostDevice) Device.get(Backend.HOST, ORDINAL);
    long handle = ProcessMemory.self().controlBlocks().create(device.account(), 2);
    HostHeap.Block block = ProcessMemory.self().controlBlocks().find(handle);
    ControlBlock control = new ControlBlock(block.segment(), block.offset(), 2);
    UUID[] processes = {ProcessMemory.self().id()};
    MemorySegment[] heaps = {block.segment()};
    ProcessGroup group = new ProcessGroup(control, processes, new long[1], heaps, 0, "pair");
    Supplier<LocalPart> part = () -> new LocalPart(control, new int[2], group, handle, block);
    CommunicatorConfig config = HostRanks.patient().build();
    LocalPart good = LocalPart.join(control, 0, null, part);
    LocalPart bad = LocalPart.join(control, 1, null, part);
    Provisions<HostWork> ofGood = Provisions.take(0, device, config, "pair", false, HostWork::new);
    Provisions<HostWork> ofBad = Provisions.take(1, device, config, "pair", false, HostWork::new);
    long now = System.nanoTime();
    CompletableFuture<HostCommunicator> other =
        CompletableFuture.supplyAsync(
            () ->
                HostCommunicator.attach(
                    new Place<>(0, device, good, config, "pair", ofGood, now, k -> null)));
    // No configuration: any failure of a constructor.
    assertThrows(
        NullPointerException.class,
        () ->
            HostCommunicator.attach(
                new Place<>(1, device, bad, null, "pair", ofBad, now, k -> null)));
    ExecutionException e =
        assertThrows(ExecutionException.class, () -> other.get(20, TimeUnit.SECONDS));
    assertEquals(1, assertInstanceOf(PeerFailedException.class, e.getCause()).rank());
    assertEquals(
        0, MemoryReport.of(device).bytes(MemoryPurpose.CONTROL), MemoryReport.of(device)::toString);
    assertNull(ProcessMemory.self().controlBlocks().find(handle));
  }

  /** All ranks have taken their memory; then the first or the last one does not join. */
  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void initAllLeavesNothingWhenARankDoesNotJoin(int refused) {
    Device device = Device.get(Backend.HOST, ORDINAL);
    List<Device> devices =
        new AbstractList<>() {
          private boolean taken;

          @Override
          public Device get(int rank) {
            if (taken && rank == refused) {
              throw new IllegalStateException("rank " + rank);
            }
            taken |= rank == size() - 1;
            return device;
          }

          @Override
          public int size() {
            return 2;
          }
        };
    CommunicatorConfig config = HostRanks.patient().name("not-joined").build();
    assertThrows(IllegalStateException.class, () -> new HostBackend().initAll(devices, config));
    requireNothingOf("not-joined");
    assertEquals(
        0, MemoryReport.of(device).bytes(MemoryPurpose.CONTROL), MemoryReport.of(device)::toString);
  }

  /** The others see that this one does not come. */
  @Test
  void aPartThatCannotBeMadeIsLost() {
    HostDevice device = (HostDevice) Device.get(Backend.HOST, ORDINAL);
    long handle = ProcessMemory.self().controlBlocks().create(device.account(), 2);
    HostHeap.Block block = ProcessMemory.self().controlBlocks().get(handle);
    ControlBlock control = new ControlBlock(block.segment(), block.offset(), 2);
    assertThrows(
        IllegalStateException.class,
        () ->
            LocalPart.join(
                control,
                1,
                block,
                () -> {
                  throw new IllegalStateException("no");
                }));
    assertTrue(RankState.isGone(control.getAcquire(control.state(1))));
    ProcessMemory.self().controlBlocks().discard(handle);
  }

  /** Ranks of several processes have a staging area each. */
  @Tag("process")
  @Timeout(60)
  @Test
  void communicatorsOfProcesses() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      child.tell("join " + id + " 2 1");
      try (Communicator own =
          Communicator.initRank(
              Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build())) {
        MemoryReport report = MemoryReport.of(own);
        assertEquals(Layout.STAGING_BYTES, report.bytes(MemoryPurpose.STAGING), report::toString);
        assertEquals(List.of(), report.comparisons());
        requireAllIsBooked();
      }
    }
  }

  /** Nothing of a control block can be lowered: it is refused, with the table. */
  @Test
  void budgetOfACommunicator() throws Exception {
    long bytes = ControlBlock.bytes(2);
    CommunicatorConfig enough = HostRanks.patient().memoryBudget(bytes).build();
    new HostRanks(2, 64, enough).close();
    CommunicatorConfig less = HostRanks.patient().memoryBudget(bytes - 1).build();
    for (MemoryPolicy policy : List.of(MemoryPolicy.AUTO, MemoryPolicy.STRICT)) {
      CommunicatorConfig config =
          HostRanks.patient().memoryBudget(bytes - 1).memoryPolicy(policy).build();
      MemoryBudgetException e =
          assertThrows(MemoryBudgetException.class, () -> new HostRanks(2, 64, config).close());
      assertTrue(e.problem().contains("memory-budget is " + (bytes - 1) + " B"), e::problem);
      assertTrue(e.getMessage().contains("control"), e::getMessage);
      assertEquals(bytes, e.prediction().orElseThrow().bytes(MemoryPlace.SHARED));
    }
    CommunicatorConfig off =
        HostRanks.patient().memoryBudget(1).memoryPolicy(MemoryPolicy.OFF).build();
    try (HostRanks ranks = new HostRanks(2, 64, off)) {
      ranks.run(
          rank ->
              assertThrows(MemoryBudgetException.class, () -> ranks.get(rank).split(0, 0, less)));
    }
    requireAllIsBooked();
  }

  @Test
  void budgetOfADevice() {
    Device device = Device.get(Backend.HOST, ORDINAL + 1);
    long taken = MemoryReport.of(device).bytes(MemoryPlace.SHARED);
    System.setProperty("nccl4j.device-memory-budget", Long.toString(taken + (4 << 20)));
    try {
      DeviceBuffer first = device.allocate(3 << 20);
      assertThrows(MemoryBudgetException.class, () -> device.allocate(3 << 20).close());
      first.close();
      device.allocate(3 << 20).close();
      System.setProperty("nccl4j.device-memory-budget", "much");
      assertThrows(InvalidArgumentException.class, () -> device.allocate(1).close());
    } finally {
      System.clearProperty("nccl4j.device-memory-budget");
    }
  }
}
