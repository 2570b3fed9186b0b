package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.CudaKernel.Dim;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclMemoryStatistics;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.cuda.NcclParameters;
import io.nccl4j.cuda.NcclProperties;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.nccl.NcclConfig;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Over NCCL 2.30; as a child with a unique id, one rank of a trial with processes. */
final class NcclTrials {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.builder()
          .initTimeout(Duration.ofSeconds(20))
          .operationTimeout(Duration.ofSeconds(15))
          .closeTimeout(Duration.ofSeconds(5))
          .build();
  private static final String DONE = "DONE";

  private final Trials trials;
  private final StandIn standIn;
  private final String[] libraries;

  private NcclTrials(String[] arguments) {
    libraries = arguments;
    trials = new Trials(arguments);
    standIn = trials.standIn();
  }

  public static void main(String[] arguments) throws Exception {
    NcclTrials all = new NcclTrials(arguments);
    if (arguments.length > 3) {
      putToPeer(UniqueId.parse(arguments[3]), Integer.parseInt(arguments[4]));
      System.out.println(DONE);
      return;
    }
    all.add("optionsReachNccl", NcclTrials::optionsReachNccl);
    all.add("optionsThatDoNotBlock", NcclTrials::optionsThatDoNotBlock);
    all.add("queries", NcclTrials::queries);
    all.add("suspend", NcclTrials::suspend);
    all.add("registrations", all::registrations);
    all.add("windows", all::windows);
    all.add("oneSided", NcclTrials::oneSided);
    all.add("oneSidedBetweenProcesses", all::oneSidedBetweenProcesses);
    all.add("shrink", NcclTrials::shrink);
    all.add("collectiveCallsThatDoNotBlock", NcclTrials::collectiveCallsThatDoNotBlock);
    all.add("shrinkWithAbort", NcclTrials::shrinkWithAbort);
    all.add("grow", NcclTrials::grow);
    all.add("revoke", NcclTrials::revoke);
    all.add("simulate", all::simulate);
    all.add("parameters", NcclTrials::parameters);
    all.add("severalIds", NcclTrials::severalIds);
    all.add("failingShrink", all::failingShrink);
    all.add("hangingWindow", all::hangingWindow);
    all.add("hangingGrow", NcclTrials::hangingGrow);
    all.add("lonelyNewRank", NcclTrials::lonelyNewRank);
    all.add("failingSuspend", all::failingSuspend);
    all.add("closedCommunicator", NcclTrials::closedCommunicator);
    all.trials.run();
  }

  /** A trial that leaves nothing behind. */
  private void add(String name, Trials.Trial trial) {
    trials.add(
        name,
        () -> {
          trial.run();
          for (String what : List.of("comm", "devcomm", "window", "registration", "stream")) {
            // The streams of the devices' own copies stay.
            long allowed = what.equals("stream") ? 8 : 0;
            long start = System.nanoTime();
            // NCCL's own threads end communicators that were never complete.
            while (standIn.live(what) > allowed && System.nanoTime() - start < 3_000_000_000L) {
              Thread.sleep(1);
            }
            assertTrue(standIn.live(what) <= allowed, what + ": " + standIn.live());
          }
        });
  }

  private static Communicators ranks(int nranks) {
    return ranks(nranks, CONFIG);
  }

  private static Communicators ranks(int nranks, CommunicatorConfig config) {
    List<Device> devices =
        IntStream.range(0, nranks).mapToObj(rank -> Device.get(Backend.CUDA, rank)).toList();
    return Communicator.initAll(devices, config);
  }

  private static CommunicatorConfig with(NcclOptions options) {
    return CommunicatorConfig.builder().with(options).build();
  }

  /** A sum of rank + 1 over all ranks. */
  private static void assertUsable(Communicator communicator) {
    int n = communicator.nranks();
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer data = communicator.device().allocate(4)) {
      data.copyFrom(new int[] {communicator.rank() + 1});
      communicator.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
      assertArrayEquals(new int[] {n * (n + 1) / 2}, ints(data, 1));
    }
  }

  private static int[] ints(DeviceBuffer buffer, int count) {
    int[] values = new int[count];
    buffer.copyTo(values);
    return values;
  }

  // ---- options

  private static void optionsReachNccl() {
    NcclOptions options =
        NcclOptions.builder()
            .minCtas(2)
            .ctaPolicy(NcclOptions.CtaPolicy.EFFICIENCY)
            .graphUsageMode(NcclOptions.GraphUsage.SINGLE)
            .netName("Socket")
            .splitShare(true)
            .build();
    CommunicatorConfig config = CommunicatorConfig.builder().name("trial").with(options).build();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = NcclConfig.name(config);
      MemorySegment struct = NcclConfig.write(arena, config, name);
      int undefined = Nccl.NCCL_CONFIG_UNDEF_INT();
      assertEquals("trial", Driver.string(ncclConfig_v23000.commName(struct)));
      assertEquals("Socket", Driver.string(ncclConfig_v23000.netName(struct)));
      assertEquals(1, ncclConfig_v23000.blocking(struct));
      assertEquals(2, ncclConfig_v23000.minCTAs(struct));
      assertEquals(undefined, ncclConfig_v23000.maxCTAs(struct));
      assertEquals(1, ncclConfig_v23000.CTAPolicy(struct));
      assertEquals(1, ncclConfig_v23000.graphUsageMode(struct));
      assertEquals(1, ncclConfig_v23000.splitShare(struct));
      assertEquals(undefined, ncclConfig_v23000.graphStreamOrdering(struct));
      assertEquals(undefined, ncclConfig_v23000.trafficClass(struct));
    }
  }

  private static void optionsThatDoNotBlock() throws Exception {
    try (Communicators pair = ranks(2, with(NcclOptions.builder().blocking(false).build()))) {
      pair.run(
          communicator -> {
            assertUsable(communicator);
            try (Communicator child = communicator.split(0, 0)) {
              assertUsable(child);
            }
          });
    }
  }

  private static void collectiveCallsThatDoNotBlock() throws Exception {
    CommunicatorConfig config = with(NcclOptions.builder().blocking(false).build());
    try (Communicators three = ranks(3, config)) {
      three.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            nccl.suspend();
            nccl.resume();
            putAround(nccl);
            if (nccl.rank() != 1) {
              try (NcclCommunicator child = nccl.shrink(new int[] {1}, false, config)) {
                assertUsable(child);
              }
            }
            nccl.revoke();
          });
    }
  }

  // ---- queries

  private static void queries() throws Exception {
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            NcclProperties properties = NcclCommunicator.of(communicator).properties();
            assertEquals(communicator.rank(), properties.rank());
            assertEquals(2, properties.nranks());
            assertEquals(communicator.rank(), properties.cudaDevice());
            assertEquals(NcclProperties.GinType.NONE, properties.ginType());
            assertEquals(1, properties.lsaTeams());
            assertTrue(properties.hostRmaSupport());
          });
    }
  }

  private static void suspend() throws Exception {
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            assertThrows(InvalidUsageException.class, nccl::resume);
            NcclMemoryStatistics before = nccl.memoryStatistics();
            assertFalse(before.suspended());
            assertEquals(before.totalBytes(), before.persistentBytes() + before.suspendableBytes());
            nccl.suspend();
            assertTrue(nccl.memoryStatistics().suspended());
            assertTrue(nccl.memoryStatistics().totalBytes() < before.totalBytes());
            assertThrows(InvalidUsageException.class, () -> assertUsable(nccl));
            assertThrows(InvalidUsageException.class, nccl::suspend);
            nccl.resume();
            assertEquals(before, nccl.memoryStatistics());
            assertUsable(nccl);
          });
    }
  }

  // ---- registered memory

  private void registrations() throws Exception {
    Device device = Device.get(Backend.CUDA, 0);
    DeviceBuffer buffer = device.allocate(8192);
    try (Communicators one = ranks(1)) {
      NcclCommunicator nccl = NcclCommunicator.of(one.get(0));
      NcclCommunicator.Registration part = nccl.register(buffer.slice(4096, 4096));
      NcclCommunicator.Registration whole = nccl.register(buffer);
      assertTrue(part.isActive());
      assertEquals(2, standIn.live("registration"));
      assertThrows(InvalidUsageException.class, buffer::close);
      assertFalse(buffer.isClosed());
      part.close();
      part.close();
      assertThrows(InvalidUsageException.class, buffer::close);
      assertEquals(1, standIn.live("registration"));
      assertTrue(whole.isActive());
      DeviceBuffer elsewhere = Device.get(Backend.CUDA, 1).allocate(64);
      assertThrows(InvalidArgumentException.class, () -> nccl.register(elsewhere));
      assertThrows(InvalidArgumentException.class, () -> nccl.register(buffer.slice(0, 0)));
      elsewhere.close();
      StandIn.environment("NCCL_LOCAL_REGISTER", "0");
      try (NcclCommunicator.Registration off = nccl.register(buffer)) {
        assertFalse(off.isActive());
      } finally {
        StandIn.environment("NCCL_LOCAL_REGISTER", "");
      }
      standIn.inject("ncclCommRegister", 1, StandIn.Fault.ERROR, 4);
      assertThrows(InvalidArgumentException.class, () -> nccl.register(buffer));
      assertEquals(Communicator.State.READY, nccl.state());
    }
    assertEquals(0, standIn.live("registration"));
    buffer.close();
  }

  private void windows() throws Exception {
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            DeviceBuffer buffer = communicator.device().allocate(8192);
            assertThrows(
                InvalidArgumentException.class,
                () -> nccl.registerWindow(buffer.slice(64, 64), true, false));
            NcclCommunicator.Window window = nccl.registerWindow(buffer, true, false);
            assertTrue(window.isSupported());
            assertThrows(InvalidUsageException.class, buffer::close);
            assertUsable(nccl);
            window.close();
            window.close();
            nccl.registerWindow(buffer, true, true);
            nccl.close();
            buffer.close();
          });
    }
    StandIn.environment("NCCL_WIN_ENABLE", "0");
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer buffer = communicator.device().allocate(4096);
                NcclCommunicator.Window window = nccl.registerWindow(buffer, true, false)) {
              assertFalse(window.isSupported());
              assertThrows(
                  InvalidUsageException.class,
                  () -> nccl.putSignal(buffer, 1, DataType.INT32, 0, window, 0, stream));
            }
          });
    } finally {
      StandIn.environment("NCCL_WIN_ENABLE", "");
    }
  }

  private static void oneSided() throws Exception {
    try (Communicators three = ranks(3)) {
      three.run(NcclTrials::putAround);
    }
  }

  /** Each rank puts two numbers to the next one, and signals once more. */
  private static void putAround(Communicator communicator) {
    NcclCommunicator nccl = NcclCommunicator.of(communicator);
    int n = nccl.nranks();
    int next = (nccl.rank() + 1) % n;
    int previous = (nccl.rank() + n - 1) % n;
    int[] counts = new int[n];
    counts[previous] = 2;
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(8192);
        NcclCommunicator.Window window = nccl.registerWindow(buffer, true, false)) {
      buffer.copyFrom(new int[] {10 + nccl.rank(), 20 + nccl.rank()});
      assertThrows(
          InvalidArgumentException.class,
          () -> nccl.putSignal(buffer, 2, DataType.INT32, n, window, 4096, stream));
      assertThrows(
          InvalidArgumentException.class,
          () -> nccl.putSignal(buffer, 2, DataType.INT32, next, window, -4, stream));
      try (DeviceBuffer elsewhere = communicator.device().allocate(8)) {
        assertThrows(
            InvalidArgumentException.class,
            () -> nccl.putSignal(elsewhere, 2, DataType.INT32, next, window, 0, stream));
      }
      assertThrows(InvalidArgumentException.class, () -> nccl.waitSignals(new int[n], stream));
      nccl.putSignal(buffer, 2, DataType.INT32, next, window, 4096, stream);
      nccl.signal(next, stream);
      nccl.waitSignals(counts, stream);
      stream.synchronize();
      assertArrayEquals(
          new int[] {10 + previous, 20 + previous}, ints(buffer.slice(4096, 4096), 2));
      stream.beginCapture();
      assertThrows(InvalidUsageException.class, () -> nccl.signal(next, stream));
      stream.endCapture().close();
      nccl.barrier(stream);
      stream.synchronize();
    }
  }

  private void oneSidedBetweenProcesses() throws Exception {
    String id = UniqueId.create(Backend.CUDA).toString();
    try (ChildJvm child =
        ChildJvm.start(NcclTrials.class, libraries[0], libraries[1], libraries[2], id, "1")) {
      putToPeer(UniqueId.parse(id), 0);
      child.expect(DONE);
      assertEquals(0, child.await());
    }
  }

  private static void putToPeer(UniqueId id, int rank) {
    Device device = Device.get(Backend.CUDA, rank);
    try (Communicator communicator = Communicator.initRank(device, 2, id, rank, CONFIG)) {
      putAround(communicator);
      sumByKernel(NcclCommunicator.of(communicator));
    }
  }

  /** A kernel of each rank sums over both processes' windows. */
  private static void sumByKernel(NcclCommunicator nccl) {
    NcclDeviceRequirements requirements =
        NcclDeviceRequirements.builder(23007).lsaBarriers(1).build();
    try (Stream stream = nccl.device().newStream();
        DeviceBuffer buffer = nccl.device().allocate(4096);
        CudaModule module =
            CudaDevice.of(nccl.device()).loadModule(CudaDeviceCommunicatorTest.ptx(240));
        NcclCommunicator.Window window = nccl.registerWindow(buffer, true, false);
        NcclDeviceCommunicator device = nccl.createDeviceCommunicator(requirements)) {
      buffer.copyFrom(new int[] {1 + nccl.rank(), 10 * nccl.rank()});
      module
          .kernel("nccl4j_allreduce1_u32")
          .launch(stream, new Dim(1), new Dim(8), 0, window, 0L, window, 0L, 2L, device);
      stream.synchronize();
      assertArrayEquals(new int[] {3, 10}, ints(buffer, 2));
      nccl.barrier(stream);
      stream.synchronize();
    }
  }

  // ---- fewer and more ranks

  private static void shrink() throws Exception {
    try (Communicators three = ranks(3)) {
      three.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            for (int[] wrong : new int[][] {{}, {3}, {communicator.rank()}, {0, 1, 2}}) {
              assertThrows(InvalidArgumentException.class, () -> nccl.shrink(wrong, false, CONFIG));
            }
            if (nccl.rank() != 1) {
              try (NcclCommunicator child = nccl.shrink(new int[] {1}, false, CONFIG)) {
                assertEquals(2, child.nranks());
                assertEquals(nccl.rank() / 2, child.rank());
                assertUsable(child);
              }
            }
            assertUsable(nccl);
            if (nccl.rank() != 1) {
              assertThrows(
                  InvalidUsageException.class,
                  () -> nccl.shrink(new int[] {2 - nccl.rank()}, false, CONFIG));
              assertThrows(InvalidUsageException.class, () -> nccl.split(0, 0));
              assertThrows(InvalidUsageException.class, () -> nccl.grow(4, null, CONFIG));
              try (NcclCommunicator again = nccl.shrink(new int[] {1}, false, CONFIG)) {
                assertUsable(again);
              }
            }
          });
    }
  }

  private static void shrinkWithAbort() throws Exception {
    try (Communicators three = ranks(3)) {
      three.run(NcclTrials::assertUsable);
      List<Thread> threads = new ArrayList<>();
      List<Throwable> failures = java.util.Collections.synchronizedList(new ArrayList<>());
      for (int rank = 0; rank < 2; rank++) {
        NcclCommunicator nccl = NcclCommunicator.of(three.get(rank));
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try {
                        leaveRankTwo(nccl);
                      } catch (Throwable e) {
                        failures.add(e);
                      }
                    }));
      }
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(List.of(), failures);
    }
  }

  private static void leaveRankTwo(NcclCommunicator nccl) {
    try (Stream stream = nccl.device().newStream();
        DeviceBuffer data = nccl.device().allocate(4)) {
      nccl.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
      assertFalse(stream.query());
      assertThrows(InvalidUsageException.class, () -> nccl.shrink(new int[] {2}, false, CONFIG));
      try (NcclCommunicator child = nccl.shrink(new int[] {2}, true, CONFIG)) {
        assertThrows(AbortedException.class, stream::synchronize);
        assertEquals(Communicator.State.ABORTED, nccl.state());
        assertThrows(InvalidUsageException.class, () -> assertUsable(nccl));
        assertUsable(child);
      }
    }
  }

  private static void grow() throws Exception {
    CompletableFuture<UniqueId> id = new CompletableFuture<>();
    CompletableFuture<Void> joined =
        CompletableFuture.runAsync(
            () -> {
              Device device = Device.get(Backend.CUDA, 2);
              try (NcclCommunicator third =
                  NcclCommunicator.join(device, 3, id.join(), 2, CONFIG)) {
                assertEquals(2, third.rank());
                assertUsable(third);
              }
            });
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            NcclCommunicator nccl = NcclCommunicator.of(communicator);
            assertThrows(InvalidArgumentException.class, () -> nccl.grow(2, null, CONFIG));
            UniqueId own = nccl.rank() == 0 ? nccl.createGrowId() : null;
            if (own != null) {
              assertThrows(InvalidUsageException.class, nccl::createGrowId);
              assertThrows(InvalidArgumentException.class, () -> nccl.grow(3, null, CONFIG));
              id.complete(own);
            }
            growFrom(nccl, own);
          });
    }
    joined.get();
  }

  private static void growFrom(NcclCommunicator nccl, @Nullable UniqueId id) {
    try (NcclCommunicator grown = nccl.grow(3, id, CONFIG)) {
      assertEquals(nccl.rank(), grown.rank());
      assertEquals(3, grown.nranks());
      assertUsable(grown);
    }
    assertUsable(nccl);
  }

  private static void revoke() throws Exception {
    try (Communicators pair = ranks(2)) {
      pair.run(NcclTrials::assertUsable);
      NcclCommunicator waiting = NcclCommunicator.of(pair.get(0));
      try (Stream stream = waiting.device().newStream();
          DeviceBuffer data = waiting.device().allocate(4)) {
        waiting.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
        assertFalse(stream.query());
        waiting.revoke();
        assertThrows(AbortedException.class, stream::synchronize);
      }
      assertEquals(Communicator.State.ABORTED, waiting.state());
      assertInstanceOf(AbortedException.class, waiting.failure().orElseThrow());
      assertThrows(InvalidUsageException.class, waiting::revoke);
      NcclCommunicator.of(pair.get(1)).revoke();
      pair.run(
          communicator -> {
            assertThrows(InvalidUsageException.class, () -> assertUsable(communicator));
            try (Communicator child = communicator.split(0, communicator.rank())) {
              assertUsable(child);
            }
          });
    }
  }

  // ---- estimates, parameters, ids

  private void simulate() throws Exception {
    try (Communicators pair = ranks(2)) {
      pair.run(
          communicator -> {
            try (Stream stream = communicator.device().newStream();
                DeviceBuffer data = communicator.device().allocate(4)) {
              data.copyFrom(new int[] {7});
              Duration estimate =
                  NcclCommunicator.simulate(
                      () -> {
                        communicator.allReduce(
                            data, data, 1, DataType.INT32, ReduceOp.preMulSum(3), stream);
                        communicator.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
                      });
              assertTrue(estimate.compareTo(Duration.ofNanos(10_000)) >= 0, estimate.toString());
              stream.synchronize();
              assertArrayEquals(new int[] {7}, ints(data, 1));
              assertEquals(0, communicator.counters().unfinishedWorks());
              assertEquals(0, communicator.counters().collectives());
            }
            assertThrows(InvalidUsageException.class, () -> NcclCommunicator.simulate(() -> {}));
            assertUsable(communicator);
          });
    }
    try (Communicators one = ranks(1, with(NcclOptions.builder().blocking(false).build()));
        Stream stream = one.get(0).device().newStream()) {
      Communicator free = one.get(0);
      assertThrows(
          InvalidUsageException.class, () -> NcclCommunicator.simulate(() -> free.barrier(stream)));
      assertEquals(0, standIn.live("graph"));
      try (Group group = Group.start()) {
        assertThrows(
            InvalidUsageException.class,
            () -> NcclCommunicator.simulate(() -> free.barrier(stream)));
        group.launch();
      }
      assertUsable(free);
    }
  }

  private static void parameters() {
    List<String> keys = NcclParameters.keys();
    assertEquals(6, keys.size(), keys.toString());
    assertTrue(NcclParameters.get("NCCL_NO_SUCH").isEmpty());
    StandIn.environment("NCCL_DEBUG_TIMESTAMP_FORMAT", "[%T] ä ");
    assertEquals("[%T] ä ", NcclParameters.get("NCCL_DEBUG_TIMESTAMP_FORMAT").orElseThrow());
    StandIn.environment("NCCL_DEBUG_TIMESTAMP_FORMAT", "");
    assertEquals(keys.size(), NcclParameters.dump().lines().count());
    assertTrue(NcclParameters.dump().contains("NCCL_DEBUG_FILE=\n"), NcclParameters.dump());
  }

  private static void severalIds() throws Exception {
    List<UniqueId> ids = List.of(UniqueId.create(Backend.CUDA), UniqueId.create(Backend.CUDA));
    Device device = Device.get(Backend.CUDA, 0);
    assertThrows(
        InvalidArgumentException.class, () -> Communicator.initRank(device, 1, ids, 0, CONFIG));
    assertThrows(
        InvalidArgumentException.class,
        () -> Communicator.initRank(device, 2, List.of(ids.getFirst(), ids.getFirst()), 0, CONFIG));
    CompletableFuture<Void> other = CompletableFuture.runAsync(() -> join(ids, 1));
    join(ids, 0);
    other.get();
  }

  private static void join(List<UniqueId> ids, int rank) {
    Device device = Device.get(Backend.CUDA, rank);
    try (Communicator communicator = Communicator.initRank(device, 2, ids, rank, CONFIG)) {
      assertUsable(communicator);
    }
  }

  // ---- faults

  private void failingShrink() throws Exception {
    standIn.inject("ncclCommShrink", 1, StandIn.Fault.ERROR, 3);
    try (Communicators pair = ranks(2)) {
      NcclCommunicator nccl = NcclCommunicator.of(pair.get(0));
      assertThrows(InternalErrorException.class, () -> nccl.shrink(new int[] {1}, false, CONFIG));
      assertEquals(Communicator.State.FAILED, nccl.state());
      assertThrows(InternalErrorException.class, nccl::properties);
    }
  }

  private void hangingWindow() throws Exception {
    CommunicatorConfig quick =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(400)).build();
    try (Communicators pair = ranks(2, quick);
        DeviceBuffer buffer = Device.get(Backend.CUDA, 0).allocate(4096)) {
      NcclCommunicator nccl = NcclCommunicator.of(pair.get(0));
      // The other rank does not come.
      DeadlineException e =
          assertThrows(DeadlineException.class, () -> nccl.registerWindow(buffer, true, false));
      assertTrue(e.getMessage().contains("window"), e.getMessage());
      assertEquals(Communicator.State.FAILED, nccl.state());
    }
  }

  private static void hangingGrow() throws Exception {
    CommunicatorConfig quick =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(400)).build();
    try (Communicators pair = ranks(2)) {
      NcclCommunicator nccl = NcclCommunicator.of(pair.get(0));
      UniqueId id = nccl.createGrowId();
      // Neither the other rank nor a new one comes.
      assertThrows(DeadlineException.class, () -> nccl.grow(3, id, quick));
      assertEquals(Communicator.State.FAILED, nccl.state());
      assertInstanceOf(DeadlineException.class, nccl.failure().orElseThrow());
    }
  }

  private static void lonelyNewRank() {
    CommunicatorConfig quick =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(400)).build();
    Device device = Device.get(Backend.CUDA, 0);
    UniqueId id = UniqueId.create(Backend.CUDA);
    assertThrows(DeadlineException.class, () -> NcclCommunicator.join(device, 3, id, 2, quick));
    for (int rank : new int[] {-1, 3}) {
      assertThrows(
          InvalidArgumentException.class, () -> NcclCommunicator.join(device, 3, id, rank, quick));
    }
  }

  private void failingSuspend() throws Exception {
    standIn.inject("ncclCommSuspend", 1, StandIn.Fault.ASYNC, 3);
    CommunicatorConfig free = with(NcclOptions.builder().blocking(false).build());
    try (Communicators one = ranks(1, free)) {
      NcclCommunicator nccl = NcclCommunicator.of(one.get(0));
      InternalErrorException e = assertThrows(InternalErrorException.class, nccl::suspend);
      assertTrue(e.getMessage().contains("suspend of communicator"), e.getMessage());
      assertEquals(Communicator.State.FAILED, nccl.state());
    }
  }

  private static void closedCommunicator() {
    Communicators one = ranks(1);
    NcclCommunicator nccl = NcclCommunicator.of(one.get(0));
    one.close();
    DeviceBuffer buffer = nccl.device().allocate(4096);
    for (Map.Entry<String, Runnable> call :
        Map.<String, Runnable>of(
                "suspend", nccl::suspend,
                "resume", nccl::resume,
                "revoke", nccl::revoke,
                "properties", nccl::properties,
                "createGrowId", nccl::createGrowId,
                "register", () -> nccl.register(buffer),
                "registerWindow", () -> nccl.registerWindow(buffer, true, false))
            .entrySet()) {
      InvalidUsageException e =
          assertThrows(InvalidUsageException.class, call.getValue()::run, call.getKey());
      assertTrue(e.getMessage().contains("is closed"), e.getMessage());
    }
    buffer.close();
  }
}
