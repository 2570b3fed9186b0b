package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.AddressRange;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.DeviceAccess;
import io.nccl4j.cuda.MemoryDescriptor;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.cuda.MulticastMemory;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.cuda.VirtualMemory;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Memory of GPUs, and what holds it: buffers, graphs, captures, groups that are given up. */
@SuppressWarnings("try") // a scope is entered, not used
class CudaMemoryTest {
  private static final long SECOND = 1_000_000_000L;

  private StandIn standIn = StandIn.require();

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
  }

  @AfterEach
  void nothingIsLeft() {
    standIn.reset();
    CudaRig.requireNoLeak();
  }

  private static void requireText(Throwable thrown, String... words) {
    for (String word : words) {
      assertTrue(
          String.valueOf(thrown.getMessage()).contains(word),
          () -> "'" + word + "' is not in: " + thrown.getMessage());
    }
  }

  /** Each step of taking memory fails once: the steps before it are undone. */
  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuCtxPushCurrent_v2"
      })
  void stepFails(String step) {
    Map<String, Long> before = standIn.live();
    standIn.inject(step, 1, StandIn.Fault.ERROR, 999);
    assertThrows(NcclException.class, () -> CudaRig.device(1).allocate(64 << 20).close());
    assertEquals(before, standIn.live());
    try (DeviceBuffer buffer = CudaRig.device(1).allocate(64 << 20)) {
      assertEquals(before.getOrDefault("memory", 0L) + (64 << 20), standIn.live("memory"));
      assertEquals(64 << 20, buffer.byteSize());
    }
    assertEquals(before, standIn.live());
  }

  /** All that the stand-in has given out is booked, but for what NCCL took. */
  @Test
  void everyByteIsBooked() {
    CudaDevice device = CudaRig.device(3);
    long before = MemoryReport.of(device).bytes(MemoryPlace.DEVICE);
    long given = standIn.live("memory");
    try (DeviceBuffer small = device.allocate(5000);
        DeviceBuffer large = device.allocate(40 << 20);
        PinnedBuffer pinned = device.allocatePinned(100)) {
      MemoryReport report = MemoryReport.of(device);
      assertEquals(
          standIn.live("memory") - given,
          report.bytes(MemoryPlace.DEVICE) - before,
          report::toString);
      // Blocks are multiples of 4096 bytes, page-locked ones of 256.
      assertEquals(8192 + (40 << 20) + 256, report.bytes(MemoryPurpose.USER), report::toString);
      assertEquals(
          5000 + (40 << 20) + 100, small.byteSize() + large.byteSize() + pinned.byteSize());
    }
    assertEquals(0, MemoryReport.of(device).bytes(MemoryPurpose.USER));
    assertEquals(before, MemoryReport.of(device).bytes(MemoryPlace.DEVICE));
  }

  /** A registered buffer is its communicator's until the last registration ends. */
  @Test
  void registeredBuffersAreBookedOnTheirCommunicator() {
    try (CudaRig rig = new CudaRig(2)) {
      Communicator own = rig.communicators.get(0);
      Device device = own.device();
      long user = MemoryReport.of(device).bytes(MemoryPurpose.USER);
      DeviceBuffer buffer = rig.in.getFirst();
      assertEquals(4096, MemoryReport.of(own).bytes(MemoryPurpose.BARRIER));
      assertEquals(own.config().fifoBytes(), MemoryReport.of(own).bytes(MemoryPurpose.FIFO));
      assertEquals(0, MemoryReport.of(own).bytes(MemoryPurpose.WINDOW));
      NcclCommunicator nccl = NcclCommunicator.of(own);
      try (NcclCommunicator.Registration first = nccl.register(buffer);
          NcclCommunicator.Registration second = nccl.register(buffer.slice(0, 64))) {
        assertTrue(first.isActive() && second.isActive());
        assertEquals(4096, MemoryReport.of(own).bytes(MemoryPurpose.WINDOW));
        assertEquals(user - 4096, MemoryReport.of(device).bytes(MemoryPurpose.USER));
      }
      assertEquals(0, MemoryReport.of(own).bytes(MemoryPurpose.WINDOW));
      assertEquals(user, MemoryReport.of(device).bytes(MemoryPurpose.USER));
    }
    assertEquals(0, MemoryReport.of(CudaRig.device(0)).bytes(MemoryPurpose.BARRIER));
  }

  /** A failure and a failure while it is undone: the message is the first one's. */
  @Test
  void undoingFails() {
    standIn.inject("cuMemSetAccess", 1, StandIn.Fault.ERROR, 999);
    standIn.inject("cuMemUnmap", 1, StandIn.Fault.ERROR, 1);
    NcclException e =
        assertThrows(NcclException.class, () -> CudaRig.device(1).allocate(64 << 20).close());
    requireText(e, "cuMemSetAccess");
    requireText(e.getSuppressed()[0], "cuMemUnmap");
    // What could not be unmapped stays; it is no leak of ours.
    CudaRig.begin();
  }

  /** Some systems allow no memory that other processes can map. */
  @Test
  void memoryOfOnesOwn() {
    standIn.inject("cuMemCreate", 1, StandIn.Fault.ERROR, 801);
    CudaRig.device(1).allocate(64 << 20).close();
    assertEquals(2, standIn.calls("cuMemCreate"));
  }

  /** Until there is no more: the message says how much was asked for and is free. */
  @Test
  void memoryRunsOut() {
    CudaDevice device = CudaRig.device(2);
    List<DeviceBuffer> taken = new ArrayList<>();
    StandIn.environment("STANDIN_CUDA_MEMORY", Long.toString(100L << 20));
    try {
      SystemErrorException e =
          assertThrows(
              SystemErrorException.class,
              () -> {
                while (taken.size() < 1000) {
                  taken.add(device.allocate(3 << 20));
                }
              });
      requireText(e, "cuda device 2", "bytes are free", "free device memory");
      // 32 MiB at a time, and the rest in small chunks.
      assertTrue(taken.size() >= 30, () -> taken.size() + " buffers of 3 MiB in 100 MiB");
      taken.removeLast().close();
      taken.add(device.allocate(3 << 20));
    } finally {
      // The large chunk last, which the device keeps.
      taken.reversed().forEach(DeviceBuffer::close);
      StandIn.environment("STANDIN_CUDA_MEMORY", "");
    }
  }

  /** The calls that wait for running kernels, and would deadlock with them, are never made. */
  @Test
  void deadlockingCallsAreNotMade() throws Exception {
    everything();
    for (String function :
        List.of(
            "cudaMalloc",
            "cudaFree",
            "cuIpcGetEventHandle",
            "cuIpcOpenEventHandle",
            "cuMemAlloc_v2",
            "cuMemAllocPitch_v2",
            "cuMemAllocManaged",
            "cuMemAllocAsync",
            "cuMemFree_v2",
            "cuMemFreeAsync",
            "cuMemFreeHost",
            "cuIpcGetMemHandle",
            "cuIpcOpenMemHandle_v2",
            "cuIpcCloseMemHandle",
            "cuCtxSynchronize",
            "cuStreamSynchronize",
            "cuEventSynchronize",
            "cuDevicePrimaryCtxReset_v2")) {
      assertEquals(0, standIn.calls(function), function);
    }
    assertTrue(standIn.calls("cuMemCreate") > 0);
    assertTrue(standIn.calls("cuMulticastBindMem") > 0);
    assertTrue(standIn.calls("cuGraphLaunch") > 0);
    assertTrue(standIn.calls("ncclAllReduce") > 0);
  }

  /** A bit of all that there is. */
  private static void everything() throws Exception {
    try (CudaRig rig = new CudaRig(2);
        PinnedBuffer pinned = CudaRig.device(0).allocatePinned(4L * CudaRig.COUNT);
        DeviceBuffer large = CudaRig.device(0).allocate(40 << 20);
        Event event = CudaRig.device(0).newEvent()) {
      rig.checkSums();
      Stream stream = rig.streams.getFirst();
      stream.fill(large, (byte) 7);
      stream.copy(large.slice(0, 64), rig.in.getFirst().slice(0, 64));
      stream.copy(pinned, large.slice(0, pinned.byteSize()));
      try (MemoryPool pool = MemoryPool.create(CudaRig.device(0))) {
        DeviceBuffer pooled = pool.allocate(1 << 20, stream);
        stream.fill(pooled, (byte) 1);
        pooled.close();
        stream.synchronize();
        pool.trim(0);
      }
      mapAndBind();
      stream.record(event);
      stream.waitFor(event);
      event.toFuture().get(10, TimeUnit.SECONDS);
      event.synchronize();
      for (Throwable thrown :
          CudaRig.outcomes(
              2,
              rank -> {
                try (ExecutableGraph graph = captureSum(rig, rank)) {
                  graph.launch(rig.streams.get(rank));
                  rig.streams.get(rank).synchronize();
                }
                Communicator child = rig.communicators.get(rank).split(0, rank);
                if (child != null) {
                  child.close();
                }
              })) {
        assertInstanceOf(CudaRig.Nothing.class, thrown, thrown::toString);
      }
    }
  }

  private static void mapAndBind() {
    try (VirtualMemory memory = CudaRig.device(0).newVirtualMemory()) {
      long bytes = memory.minimumGranularity();
      AddressRange range = memory.reserve(2 * bytes);
      PhysicalMemory physical = memory.create(bytes, Set.of(MemoryFeature.FILE_DESCRIPTORS));
      range.map(0, physical);
      range.setAccess(0, bytes, DeviceAccess.READ_WRITE, List.of(CudaRig.device(0)));
      range.buffer(0, 64).copyFrom(new int[] {1});
      try (MemoryDescriptor descriptor = physical.exportDescriptor()) {
        memory.importDescriptor(descriptor.number(), bytes).close();
      }
      MulticastMemory multicast = memory.createMulticast(bytes, 2, Set.of());
      multicast.addDevice(CudaRig.device(0));
      multicast.addDevice(CudaRig.device(1));
      multicast.bind(0, physical, 0, bytes);
      range.map(bytes, multicast);
    }
  }

  private static ExecutableGraph captureSum(CudaRig rig, int rank) {
    Stream stream = rig.streams.get(rank);
    stream.beginCapture();
    rig.sum(rank);
    try (Graph graph = stream.endCapture()) {
      return graph.instantiate();
    }
  }

  // ---- buffers in use

  @Test
  void buffersInUseAreFreedLater() {
    CudaDevice device = CudaRig.device(0);
    try (CudaRig rig = new CudaRig(2)) {
      Stream stream = rig.streams.getFirst();
      long before = taken(device, MemoryPlace.DEVICE);
      long pinnedBefore = taken(device, MemoryPlace.PINNED);
      rig.sum(0);
      DeviceBuffer buffer = device.allocate(64);
      PinnedBuffer pinned = device.allocatePinned(64);
      stream.copy(buffer, rig.out.getFirst().slice(0, 64));
      stream.copy(pinned, buffer);
      long inUse = taken(device, MemoryPlace.DEVICE);
      buffer.close();
      pinned.close();
      assertEquals(inUse, taken(device, MemoryPlace.DEVICE));
      assertTrue(taken(device, MemoryPlace.PINNED) > pinnedBefore);
      rig.sum(1);
      stream.synchronize();
      assertEquals(before, taken(device, MemoryPlace.DEVICE));
      assertEquals(pinnedBefore, taken(device, MemoryPlace.PINNED));
    }
  }

  private static long taken(Device device, MemoryPlace place) {
    return MemoryReport.of(device).lines().stream()
        .filter(line -> line.place() == place && line.purpose() == MemoryPurpose.USER)
        .mapToLong(MemoryReport.Line::bytes)
        .sum();
  }

  @Test
  void unknownMemoryIsNotWrapped() {
    InvalidArgumentException e =
        assertThrows(
            InvalidArgumentException.class, () -> CudaRig.device(0).wrap(0x1000, 64).close());
    requireText(e, "0x1000", "does not know the memory", "wrap memory that CUDA allocated");
  }

  @Test
  void memoryOfOthersIsWrapped() {
    CudaDevice device = CudaRig.device(0);
    try (DeviceBuffer own = device.allocate(64);
        DeviceBuffer wrapped = device.wrap(own.address(), 64)) {
      wrapped.copyFrom(new int[] {1, 2, 3});
      int[] read = new int[3];
      own.copyTo(read);
      assertArrayEquals(new int[] {1, 2, 3}, read);
    }
  }

  /** A stream of another library, and the default stream, which both are left alone. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void streamsOfOthersAreWrapped(boolean defaultStream) {
    CudaGpu device = (CudaGpu) CudaRig.device(0);
    long made = defaultStream ? 0 : StreamHandle.newHandle(device.gpu()).address();
    long before = standIn.live("stream");
    try (CudaRig rig = new CudaRig(1);
        Event event = device.newEvent()) {
      DeviceBuffer in = rig.in.getFirst();
      DeviceBuffer out = rig.out.getFirst();
      in.copyFrom(new int[] {4, 5, 6});
      try (Stream stream = device.wrapStream(made);
          Stream second = device.newStream()) {
        standIn.inject("ncclAllReduce", 1, StandIn.Fault.DELAY, 50);
        rig.communicators.get(0).allReduce(in, out, 3, DataType.INT32, ReduceOp.SUM, stream);
        stream.copy(in.slice(0, 8), out.slice(4, 8));
        stream.record(event);
        second.waitFor(event);
        second.fill(out.slice(0, 12), (byte) 0);
        second.synchronize();
        assertTrue(stream.query());
        int[] read = new int[3];
        in.copyTo(read);
        assertArrayEquals(new int[] {5, 6, 6}, read);
        stream.waitFor(event);
        stream.synchronize();
        if (defaultStream) {
          assertThrows(InvalidUsageException.class, stream::beginCapture);
        }
      }
    }
    assertEquals(before, standIn.live("stream"));
    if (!defaultStream) {
      try (Gpu.Scope ignored = device.gpu().enter()) {
        assertEquals(0, Cuda.cuStreamDestroy_v2(MemorySegment.ofAddress(made)));
      }
    }
  }

  @Test
  void streamsOfOtherDevicesAreNotWrapped() {
    CudaGpu other = (CudaGpu) CudaRig.device(1);
    MemorySegment made = StreamHandle.newHandle(other.gpu());
    for (long handle : new long[] {2, made.address()}) {
      InvalidArgumentException e =
          assertThrows(
              InvalidArgumentException.class, () -> CudaRig.device(0).wrapStream(handle).close());
      requireText(e, "wrapStream");
    }
    try (Gpu.Scope ignored = other.gpu().enter()) {
      assertEquals(0, Cuda.cuStreamDestroy_v2(made));
    }
  }

  /** Copies and fills come in the order of the stream, after what is late before them. */
  @Test
  void copiesAreOrdered() {
    try (CudaRig rig = new CudaRig(1)) {
      Stream stream = rig.streams.getFirst();
      DeviceBuffer in = rig.in.getFirst();
      DeviceBuffer out = rig.out.getFirst();
      standIn.inject("ncclAllReduce", 1, StandIn.Fault.DELAY, 50);
      stream.fill(in, (byte) 1);
      rig.sum(0);
      stream.copy(in.slice(0, 4), out.slice(4, 4));
      stream.fill(out, (byte) 2);
      stream.copy(in.slice(4, 4), out.slice(0, 4));
      stream.synchronize();
      int[] read = new int[2];
      in.copyTo(read);
      assertArrayEquals(new int[] {0x01010101, 0x02020202}, read);
    }
  }

  // ---- given up in the middle

  @Test
  void abortInACapture() {
    try (CudaRig rig = new CudaRig(2)) {
      Stream stream = rig.streams.getFirst();
      stream.beginCapture();
      rig.sum(0);
      rig.communicators.get(0).abort();
      assertThrows(InvalidUsageException.class, stream::endCapture);
    }
  }

  /** CUDA says that a capture cannot end while another stream is in it: NCCL is aborted still. */
  @Test
  void abortInAForkedCapture() {
    try (CudaRig rig = new CudaRig(2);
        Stream other = CudaRig.device(0).newStream();
        Event fork = CudaRig.device(0).newEvent()) {
      Stream stream = rig.streams.getFirst();
      stream.beginCapture();
      stream.record(fork);
      other.waitFor(fork);
      rig.sum(0, other);
      rig.communicators.get(0).abort();
      assertTrue(CudaRig.eventually(() -> standIn.live("comm") == 0));
      assertThrows(InvalidUsageException.class, stream::endCapture);
    }
  }

  /** CUDA refuses to destroy the graphs: NCCL is aborted still, and the other rank told. */
  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"cuGraphExecDestroy", "cuGraphDestroy", "cuStreamEndCapture"})
  void abortWithGraphsThatStay(String function) {
    try (CudaRig rig = new CudaRig(2)) {
      Stream stream = rig.streams.getFirst();
      stream.beginCapture();
      rig.sum(0);
      if (!function.equals("cuStreamEndCapture")) {
        Graph graph = stream.endCapture();
        long before = standIn.live("exec");
        ExecutableGraph executable = graph.instantiate();
        assertEquals(before + 1, standIn.live("exec"), executable::toString);
      }
      standIn.inject(function, 1, StandIn.Fault.ERROR, 999);
      rig.communicators.get(0).abort();
      assertEquals(Communicator.State.ABORTED, rig.communicators.get(1).state());
      assertTrue(CudaRig.eventually(() -> standIn.calls("ncclCommAbort") == 2));
      if (function.equals("cuStreamEndCapture")) {
        // The abort's own call is the one that fails.
        assertTrue(CudaRig.eventually(() -> standIn.calls(function) == 1));
        assertThrows(InvalidUsageException.class, stream::endCapture);
      }
    }
    // What CUDA did not destroy stays; it is no leak of ours.
    CudaRig.begin();
  }

  @Test
  void abortWhileAGraphRuns() {
    try (CudaRig rig = new CudaRig(2)) {
      ExecutableGraph graph = captureSum(rig, 0);
      graph.launch(rig.streams.getFirst());
      rig.communicators.get(1).abort();
      AbortedException e =
          assertThrows(AbortedException.class, () -> rig.streams.getFirst().synchronize());
      requireText(e, "aborted by rank 1");
      assertThrows(NcclException.class, () -> graph.launch(rig.streams.getFirst()));
      graph.close();
    }
  }

  /** A thread waits for room for one more launch, another one aborts what it waits for. */
  @Test
  void abortWhileALaunchWaits() {
    try (CudaRig rig = new CudaRig(2)) {
      ExecutableGraph graph = captureSum(rig, 0);
      long start = System.nanoTime();
      List<Throwable> thrown =
          CudaRig.outcomes(
              2,
              rank -> {
                if (rank == 0) {
                  while (true) {
                    graph.launch(rig.streams.getFirst());
                  }
                }
                assertTrue(
                    CudaRig.eventually(
                        () -> standIn.calls("cuGraphLaunch") >= StreamQueue.CAPACITY));
                Thread.sleep(50);
                rig.communicators.get(0).abort();
              });
      assertInstanceOf(NcclException.class, thrown.get(0), thrown.get(0)::toString);
      assertInstanceOf(CudaRig.Nothing.class, thrown.get(1), thrown.get(1)::toString);
      assertTrue(System.nanoTime() - start < 15 * SECOND, "it waited for the deadline");
      graph.close();
    }
  }

  @Test
  void abortInAGroup() {
    try (CudaRig rig = new CudaRig(2)) {
      Throwable thrown =
          CudaRig.outcome(
              ignored -> {
                try (Group group = Group.start()) {
                  rig.sum(0);
                  rig.sum(1);
                  rig.communicators.get(1).abort();
                  group.launch();
                }
              });
      assertInstanceOf(AbortedException.class, thrown);
      requireText(thrown, "has failed", "aborted by rank 1");
      assertEquals(0, rig.communicators.get(0).counters().unfinishedWorks());
      assertEquals(0, standIn.calls("ncclAllReduce"));
    }
  }

  /** Nobody waits but for a future: it ends with the deadline, too. */
  @Test
  void futureHasADeadline() throws Exception {
    try (CudaRig rig = new CudaRig(0, 2, CudaRig.config(300));
        Event event = CudaRig.device(0).newEvent()) {
      rig.sum(0);
      rig.streams.getFirst().record(event);
      CompletableFuture<Void> future = event.toFuture();
      ExecutionException e =
          assertThrows(ExecutionException.class, () -> future.get(5, TimeUnit.SECONDS));
      requireText(e.getCause(), "not complete after 300 ms", "allReduce(64 int32, sum) #1");
    }
  }
}
