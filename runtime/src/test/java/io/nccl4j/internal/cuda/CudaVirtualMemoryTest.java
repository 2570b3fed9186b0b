package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.cuda.AddressRange;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.DeviceAccess;
import io.nccl4j.cuda.MemoryDescriptor;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.cuda.MulticastMemory;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.cuda.VirtualMemory;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryReport;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Physical memory, addresses, mappings and multicast, step by step and out of order. */
@SuppressWarnings("try") // closing early is tested
class CudaVirtualMemoryTest {
  private static final Set<MemoryFeature> DESCRIPTOR = Set.of(MemoryFeature.FILE_DESCRIPTORS);
  private static final Set<MemoryFeature> FABRIC = Set.of(MemoryFeature.FABRIC_HANDLES);

  private StandIn standIn = StandIn.require();
  private final CudaDevice device = CudaRig.device(0);
  private final CudaDevice second = CudaRig.device(1);
  private long unit;

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
    try (VirtualMemory memory = device.newVirtualMemory()) {
      unit = memory.minimumGranularity();
      assertEquals(2 << 20, unit);
      assertTrue(memory.recommendedGranularity() >= unit);
      assertEquals(memory.recommendedGranularity(), memory.roundUp(1));
    }
  }

  @AfterEach
  void nothingIsLeft() {
    standIn.reset();
    for (String name : List.of("FABRIC", "MULTICAST", "VMM", "MEMORY")) {
      StandIn.environment("STANDIN_CUDA_" + name, "");
    }
    CudaRig.requireNoLeak();
  }

  private static void refused(Executable call, String... words) {
    check(assertThrows(InvalidUsageException.class, call), words);
  }

  private static void wrong(Executable call, String... words) {
    check(assertThrows(InvalidArgumentException.class, call), words);
  }

  private static void check(Throwable thrown, String... words) {
    for (String word : words) {
      assertTrue(thrown.getMessage().contains(word), () -> word + " not in " + thrown.getMessage());
    }
  }

  private void open(AddressRange range, long offset, long bytes) {
    range.setAccess(offset, bytes, DeviceAccess.READ_WRITE, List.of(device));
  }

  // ---- mapping

  @Test
  void growsInPlace() {
    try (VirtualMemory memory = device.newVirtualMemory();
        Stream stream = device.newStream()) {
      AddressRange range = memory.reserve(4 * unit);
      range.map(0, memory.create(unit));
      open(range, 0, unit);
      DeviceBuffer first = range.buffer(0, unit);
      first.copyFrom(new int[] {1, 2, 3});
      range.map(unit, memory.create(2 * unit));
      open(range, unit, 2 * unit);
      DeviceBuffer all = range.buffer(0, 3 * unit);
      assertEquals(range.address(), all.address());
      assertEquals(3 * unit, range.mappedBytes());
      assertEquals(3 * unit, memory.physicalBytes());
      stream.copy(all.slice(2 * unit, 12), all.slice(0, 12));
      stream.synchronize();
      int[] read = new int[3];
      all.slice(2 * unit).copyTo(read);
      assertArrayEquals(new int[] {1, 2, 3}, read);
      all.close();
      range.unmap(unit, 2 * unit);
      first.copyTo(read);
      assertArrayEquals(new int[] {1, 2, 3}, read);
    }
  }

  /** The same physical memory at two addresses, a part of it at one of them. */
  @Test
  void partsAndAliases() {
    try (VirtualMemory memory = device.newVirtualMemory()) {
      PhysicalMemory physical = memory.create(2 * unit);
      AddressRange whole = memory.reserve(2 * unit);
      AddressRange part = memory.reserve(2 * unit);
      whole.map(0, physical);
      part.map(unit, physical, unit, unit);
      open(whole, 0, 2 * unit);
      open(part, unit, unit);
      whole.buffer(unit, 4).copyFrom(new int[] {42});
      assertEquals(42, part.buffer(unit, 4).toInts()[0]);
      // As real drivers do.
      standIn.inject("cuMemMap", 1, StandIn.Fault.ERROR, 801);
      refused(() -> part.map(0, physical, 0, unit), "as a whole, not 2097152 of its 4194304 bytes");
    }
  }

  @Test
  void accessOfPeers() {
    try (VirtualMemory memory = device.newVirtualMemory();
        Stream stream = second.newStream();
        DeviceBuffer target = second.allocate(16)) {
      AddressRange range = memory.reserve(unit);
      range.map(0, memory.create(unit));
      refused(() -> range.buffer(0, 16), "may not read and write", "setAccess");
      range.setAccess(0, unit, DeviceAccess.READ, List.of(device));
      refused(() -> range.buffer(0, 16), "may not read and write");
      range.setAccess(0, unit, DeviceAccess.READ_WRITE, List.of(device, second));
      range.buffer(0, 16).copyFrom(new int[] {1, 2, 3, 4});
      stream.copy(target, second.wrap(range.address(), 16));
      stream.synchronize();
      assertArrayEquals(new int[] {1, 2, 3, 4}, target.toInts());
      range.setAccess(0, unit, DeviceAccess.NONE, List.of(second, device));
      refused(() -> range.buffer(0, 16), "may not read and write");
    }
  }

  @Test
  void buffersServeOperations() {
    try (CudaRig rig = new CudaRig(1);
        VirtualMemory memory = device.newVirtualMemory()) {
      AddressRange range = memory.reserve(unit);
      range.map(0, memory.create(unit));
      open(range, 0, unit);
      DeviceBuffer buffer = range.buffer(0, unit);
      standIn.inject("ncclAllReduce", 1, StandIn.Fault.DELAY, 100);
      Stream stream = rig.streams.getFirst();
      rig.communicators.get(0).allReduce(buffer, buffer, 4, DataType.INT32, ReduceOp.SUM, stream);
      AddressRange other = memory.reserve(unit);
      other.map(0, memory.create(unit));
      open(other, 0, unit);
      DeviceBuffer closed = other.buffer(0, unit);
      stream.fill(closed, (byte) 1);
      closed.close();
      refused(memory::close, "in use by allReduce");
      refused(() -> other.unmap(0, unit), "is closed, but still in use");
      stream.synchronize();
      other.unmap(0, unit);
      NcclCommunicator nccl = NcclCommunicator.of(rig.communicators.get(0));
      try (NcclCommunicator.Registration registration = nccl.register(buffer)) {
        assertTrue(registration.isActive());
        refused(memory::close, "registered with a communicator");
      }
    }
  }

  // ---- the order of giving back

  @Test
  void wrongOrderIsRefused() {
    try (VirtualMemory memory = device.newVirtualMemory()) {
      PhysicalMemory physical = memory.create(2 * unit);
      AddressRange range = memory.reserve(4 * unit);
      range.map(0, physical);
      refused(physical::close, "mapped or bound 1 times", "unmap");
      refused(range::close, "1 mappings", "unmap");
      refused(() -> range.map(unit, physical, 0, unit), "something is mapped at 0");
      refused(() -> range.unmap(0, unit), "whole mappings", "[0]");
      refused(() -> range.unmap(2 * unit, unit), "whole mappings");
      refused(() -> range.setAccess(unit, unit, DeviceAccess.READ, List.of(device)), "whole");
      refused(() -> range.buffer(unit, 2 * unit), "not mapped");
      open(range, 0, 2 * unit);
      DeviceBuffer buffer = range.buffer(unit, 8);
      refused(() -> range.unmap(0, 2 * unit), "a buffer of 8 bytes", "close buffers");
      buffer.close();
      range.unmap(0, 2 * unit);
      physical.close();
      physical.close();
      assertTrue(physical.isClosed());
      refused(() -> range.map(0, physical), "the physical memory is closed");
      range.close();
      range.close();
      assertTrue(range.isClosed());
      refused(() -> range.map(0, memory.create(unit)), "the address range is closed");
      memory.close();
      refused(() -> memory.create(unit), "the virtual memory is closed");
      refused(() -> memory.reserve(unit), "the virtual memory is closed");
    }
  }

  @Test
  void wrongArguments() {
    try (VirtualMemory memory = device.newVirtualMemory()) {
      for (long bytes : new long[] {0, -unit, 1, unit + 1}) {
        wrong(() -> memory.create(bytes), Long.toString(bytes));
        wrong(() -> memory.reserve(bytes), Long.toString(bytes));
      }
      AddressRange range = memory.reserve(2 * unit);
      PhysicalMemory physical = memory.create(unit);
      wrong(() -> range.map(2 * unit, physical), "inside the whole");
      wrong(() -> range.map(0, physical, unit, unit), "of the memory");
      wrong(() -> range.map(1, physical), "not multiples of");
      wrong(() -> range.map(0, null), "the memory is null");
      wrong(() -> range.buffer(0, 3 * unit), "inside their range");
      wrong(() -> range.setAccess(0, unit, null, List.of(device)), "the access is null");
      wrong(() -> range.setAccess(0, unit, DeviceAccess.READ, List.of()), "at least one device");
      Device host = Device.get(Backend.HOST, 0);
      wrong(() -> range.setAccess(0, unit, DeviceAccess.READ, List.of(host)), "not a cuda device");
      wrong(() -> memory.create(unit, Set.of(MemoryFeature.MULTICAST)), "not a kind of handle");
      wrong(() -> memory.importDescriptor(-1, unit), "the descriptor is -1");
      wrong(() -> memory.importDescriptor(0, unit), "CUDA does not accept it");
      wrong(() -> memory.importFabric(new byte[3], unit), "another size");
      wrong(() -> memory.multicastGranularity(unit, 1, true), "at least 2 devices");
    }
  }

  @Test
  void memoryRunsOut() {
    StandIn.environment("STANDIN_CUDA_MEMORY", Long.toString(100L << 20));
    try (VirtualMemory memory = device.newVirtualMemory()) {
      SystemErrorException e =
          assertThrows(SystemErrorException.class, () -> memory.create(100 * unit));
      check(e, "cuda device 0", "bytes are free");
    }
  }

  // ---- sharing

  @Test
  void descriptors() {
    try (VirtualMemory memory = device.newVirtualMemory();
        VirtualMemory other = device.newVirtualMemory()) {
      AddressRange range = memory.reserve(unit);
      PhysicalMemory physical = memory.create(unit, DESCRIPTOR);
      range.map(0, physical);
      open(range, 0, unit);
      range.buffer(0, 4).copyFrom(new int[] {7});
      AddressRange seen = other.reserve(unit);
      try (MemoryDescriptor descriptor = physical.exportDescriptor()) {
        seen.map(0, other.importDescriptor(descriptor.number(), unit));
        descriptor.close();
        refused(descriptor::number, "the descriptor is closed");
      }
      open(seen, 0, unit);
      assertEquals(7, seen.buffer(0, 4).toInts()[0]);
      assertEquals(0, other.physicalBytes());
      refused(() -> memory.create(unit).exportDescriptor(), "has no file descriptor");
      refused(physical::exportFabric, "has no fabric handle");
    }
  }

  @Test
  void fabricHandles() {
    try (VirtualMemory memory = device.newVirtualMemory()) {
      refused(() -> memory.create(unit, FABRIC), "memory of other machines", "says no", "IMEX");
      StandIn.environment("STANDIN_CUDA_FABRIC", "1");
      PhysicalMemory physical = memory.create(unit, FABRIC);
      byte[] handle = physical.exportFabric();
      assertEquals(PhysicalMemory.FABRIC_BYTES, handle.length);
      AddressRange range = memory.reserve(2 * unit);
      range.map(0, physical);
      range.map(unit, memory.importFabric(handle, unit));
      open(range, 0, 2 * unit);
      range.buffer(0, 4).copyFrom(new int[] {9});
      assertEquals(9, range.buffer(unit, 4).toInts()[0]);
      wrong(() -> memory.importFabric(new byte[64], unit), "CUDA does not accept it");
      // A driver that knows them, on a machine without IMEX.
      standIn.inject("cuMemCreate", 1, StandIn.Fault.ERROR, 800);
      refused(() -> memory.create(unit, FABRIC), "cannot create memory", "IMEX channel");
    }
  }

  /** What another owner has mapped lives until that one lets go. */
  @Test
  void ownersOfTwoDevices() {
    VirtualMemory memory = device.newVirtualMemory();
    long before = standIn.live("memory");
    try (VirtualMemory other = second.newVirtualMemory()) {
      AddressRange range = other.reserve(2 * unit);
      PhysicalMemory physical = memory.create(unit);
      range.map(0, physical);
      range.setAccess(0, unit, DeviceAccess.READ_WRITE, List.of(second));
      DeviceBuffer buffer = range.buffer(0, 4);
      refused(physical::close, "mapped or bound 1 times");
      memory.close();
      memory.close();
      buffer.copyFrom(new int[] {5});
      assertEquals(5, buffer.toInts()[0]);
      refused(() -> range.map(unit, physical), "the physical memory is closed");
      assertEquals(before + unit, standIn.live("memory"));
      buffer.close();
      range.unmap(0, unit);
      assertEquals(before, standIn.live("memory"));
    }
  }

  // ---- multicast

  private MulticastMemory team(VirtualMemory memory, long bytes) {
    MulticastMemory all = memory.createMulticast(bytes, 2, Set.of());
    all.addDevice(device);
    all.addDevice(second);
    return all;
  }

  @Test
  void multicastStepByStep() {
    try (VirtualMemory memory = device.newVirtualMemory();
        VirtualMemory other = second.newVirtualMemory()) {
      assertEquals(unit, memory.multicastGranularity(unit, 2, false));
      assertEquals(512 << 20, memory.multicastGranularity(unit, 2, true));
      MulticastMemory all = memory.createMulticast(2 * unit, 2, Set.of());
      PhysicalMemory mine = memory.create(2 * unit);
      PhysicalMemory theirs = other.create(2 * unit);
      AddressRange range = memory.reserve(2 * unit);
      refused(() -> all.bind(0, mine, 0, unit), "0 of its 2 devices", "add all");
      all.addDevice(device);
      refused(() -> range.map(0, all), "1 of its 2 devices");
      wrong(() -> all.addDevice(device), "was added");
      all.addDevice(second);
      refused(() -> all.addDevice(CudaRig.device(2)), "has its 2 devices");
      all.bind(0, mine, 0, 2 * unit);
      all.bind(0, theirs, 0, unit);
      all.bind(unit, theirs, unit, unit);
      assertEquals(3, standIn.live("binding"));
      refused(() -> all.bind(unit, mine, 0, unit), "has memory bound at 0");
      refused(mine::close, "mapped or bound 1 times");
      refused(all::close, "mapped or bound 3 times");
      wrong(() -> all.bind(0, all, 0, unit), "not physical memory");
      try (VirtualMemory third = CudaRig.device(2).newVirtualMemory()) {
        PhysicalMemory foreign = third.create(unit);
        refused(() -> all.bind(0, foreign, 0, unit), "was not added");
      }
      range.map(0, all);
      open(range, 0, 2 * unit);
      assertEquals(2 * unit, range.buffer(0, 2 * unit).byteSize());
      refused(() -> all.unbind(second, 2 * unit), "has bound nothing at");
      all.unbind(second, unit);
      all.unbind(second, 0);
      theirs.close();
      // Closing the owner gives back the rest.
    }
  }

  @Test
  void multicastOfOtherProcesses() {
    try (VirtualMemory memory = device.newVirtualMemory();
        VirtualMemory other = second.newVirtualMemory()) {
      MulticastMemory all = memory.createMulticast(unit, 2, DESCRIPTOR);
      MulticastMemory same;
      try (MemoryDescriptor descriptor = all.exportDescriptor()) {
        same = other.importMulticast(descriptor.number(), unit, 2);
      }
      assertEquals(2, same.devices());
      all.addDevice(device);
      same.addDevice(second);
      all.bind(0, memory.create(unit), 0, unit);
      same.bind(0, other.create(unit), 0, unit);
      assertEquals(2, standIn.live("binding"));
    }
  }

  @Test
  void supportIsExplained() {
    for (MemoryFeature feature : MemoryFeature.values()) {
      BackendInfo.FeatureInfo found = device.support(feature);
      assertEquals(feature != MemoryFeature.FABRIC_HANDLES, found.isPresent(), found::toString);
      assertEquals(found.isPresent(), found.reason().isEmpty());
    }
    StandIn.environment("STANDIN_CUDA_MULTICAST", "0");
    assertEquals("the device says no", device.support(MemoryFeature.MULTICAST).reason());
    try (VirtualMemory memory = device.newVirtualMemory()) {
      refused(
          () -> memory.createMulticast(unit, 2, Set.of()),
          "cuda device 0 has no multicast (NVLS): the device says no",
          "NVSwitch");
    }
    StandIn.environment("STANDIN_CUDA_VMM", "0");
    refused(device::newVirtualMemory, "has no cuMem virtual memory", "says no");
    wrong(() -> device.support(null), "null");
  }

  // ---- pools and communicators

  /** Chunks are registered once, whatever buffers come and go, and stay as long as that. */
  @Test
  void poolsAreRegisteredByChunks() {
    try (CudaRig rig = new CudaRig(1);
        MemoryPool pool =
            MemoryPool.create(device, MemoryPoolOptions.DEFAULTS.withInitialBytes(unit))) {
      NcclCommunicator nccl = NcclCommunicator.of(rig.communicators.get(0));
      Stream stream = rig.streams.getFirst();
      assertEquals(1, nccl.register(pool).size());
      for (int i = 0; i < 100; i++) {
        DeviceBuffer buffer = pool.allocate(1000 + i, stream);
        nccl.allReduce(buffer, buffer, 100, DataType.INT32, ReduceOp.SUM, stream);
        buffer.close();
      }
      stream.synchronize();
      assertEquals(1, nccl.register(pool).size());
      assertEquals(1, standIn.calls("ncclCommRegister"));
      assertEquals(0, pool.trim(0));
      refused(pool::close, "registered with a communicator", "close their registrations");
      String book = MemoryReport.of(device).toString();
      assertTrue(book.contains("window"), book);
      // What it grows by is registered at the next call.
      pool.allocate(40 << 20, stream).close();
      List<NcclCommunicator.Registration> both = nccl.register(pool);
      assertEquals(2, both.size());
      assertTrue(both.getFirst().isActive() && both.getLast().isActive());
      assertEquals(2, standIn.calls("ncclCommRegister"));
      both.getLast().close();
      assertEquals(40 << 20, pool.trim(0));
      both.getFirst().close();
      wrong(() -> nccl.register(MemoryPool.create(CudaRig.device(1))), "not of cuda device 0");
      wrong(() -> nccl.register((MemoryPool) null), "the pool is null");
    }
  }

  /** Two ranks put into each other's buffers, which lie in windows over their pools' chunks. */
  @Test
  void buffersOfPoolsLieInWindows() {
    MemoryPoolOptions options = MemoryPoolOptions.DEFAULTS.withInitialBytes(unit);
    try (CudaRig rig = new CudaRig(2)) {
      List<Throwable> thrown =
          CudaRig.outcomes(
              2,
              rank -> {
                NcclCommunicator nccl = NcclCommunicator.of(rig.communicators.get(rank));
                Stream stream = rig.streams.get(rank);
                try (MemoryPool pool = MemoryPool.create(nccl.device(), options)) {
                  NcclCommunicator.Window window =
                      nccl.registerWindows(pool, true, false).getFirst();
                  assertTrue(window.isSupported());
                  DeviceBuffer mine = pool.allocate(4096, stream);
                  DeviceBuffer theirs = pool.allocate(4096, stream);
                  long offset = theirs.address() - window.buffer().address();
                  stream.fill(mine, (byte) (rank + 1));
                  nccl.putSignal(mine, 4096, DataType.INT8, 1 - rank, window, offset, stream);
                  nccl.waitSignals(rank == 0 ? new int[] {0, 1} : new int[] {1, 0}, stream);
                  stream.synchronize();
                  assertEquals((2 - rank) * 0x01010101, theirs.toInts()[1023]);
                  mine.close();
                  theirs.close();
                  assertEquals(window, nccl.registerWindows(pool, true, false).getFirst());
                  nccl.barrier(stream);
                  stream.synchronize();
                  window.close();
                }
              });
      for (Throwable one : thrown) {
        assertTrue(one instanceof CudaRig.Nothing, one::toString);
      }
      assertEquals(2, standIn.calls("ncclCommWindowRegister"));
    }
  }

  // ---- failures

  /** All there is: memory of two devices, mapped, open, bound. */
  private void everything(VirtualMemory memory, VirtualMemory other) {
    AddressRange range = memory.reserve(4 * unit);
    PhysicalMemory mine = memory.create(unit, DESCRIPTOR);
    range.map(0, mine);
    open(range, 0, unit);
    range.buffer(0, unit).close();
    MulticastMemory all = team(memory, unit);
    PhysicalMemory theirs = other.create(unit);
    all.bind(0, mine, 0, unit);
    all.bind(0, theirs, 0, unit);
    range.map(unit, all);
    open(range, unit, unit);
    try (MemoryDescriptor descriptor = mine.exportDescriptor()) {
      range.map(2 * unit, memory.importDescriptor(descriptor.number(), unit));
    }
    all.unbind(second, 0);
  }

  private void everything() {
    try (VirtualMemory memory = device.newVirtualMemory();
        VirtualMemory other = second.newVirtualMemory()) {
      everything(memory, other);
    }
  }

  private void pool() {
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      pool.allocate(1000, stream).close();
      pool.allocate(40 << 20, stream).close();
    }
  }

  /** A call fails once, at each of its turns: nothing is left. */
  private void failAtEachTurn(String step, Runnable all) {
    all.run();
    Map<String, Long> before = standIn.live();
    standIn.reset();
    all.run();
    long turns = standIn.calls(step);
    assertTrue(turns > 0, step + " is never called");
    for (int turn = 1; turn <= turns; turn++) {
      standIn.reset();
      standIn.inject(step, turn, StandIn.Fault.ERROR, 999);
      assertThrows(NcclException.class, all::run, step + " " + turn);
      assertEquals(before, standIn.live(), "after failure " + turn + " of " + step);
    }
    standIn.reset();
    all.run();
  }

  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        "cuMemGetAllocationGranularity",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMulticastGetGranularity",
        "cuMulticastCreate",
        "cuMulticastAddDevice",
        "cuMulticastBindMem"
      })
  void eachStepFails(String step) {
    failAtEachTurn(step, this::everything);
  }

  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        "cuMemGetAllocationGranularity",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess"
      })
  void eachStepOfAPoolFails(String step) {
    failAtEachTurn(step, this::pool);
  }

  /** CUDA does not let us in, even to give it back: that can be done again. */
  @Test
  void contextFails() {
    Map<String, Long> before = standIn.live();
    for (int turn = 1; turn < 30; turn++) {
      VirtualMemory memory = device.newVirtualMemory();
      VirtualMemory other = second.newVirtualMemory();
      standIn.inject("cuCtxPushCurrent_v2", turn, StandIn.Fault.ERROR, 999);
      try {
        everything(memory, other);
        memory.close();
        other.close();
      } catch (NcclException e) {
        check(e, "cuCtxPushCurrent");
      }
      standIn.reset();
      memory.close();
      other.close();
      assertEquals(before, standIn.live(), "after failure " + turn);
    }
  }

  /** What CUDA does not take back is said; the rest is given back all the same. */
  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"cuMemUnmap", "cuMemAddressFree", "cuMemRelease", "cuMulticastUnbind"})
  void givingBackFails(String step) {
    Map<String, Long> before = standIn.live();
    VirtualMemory memory = device.newVirtualMemory();
    AddressRange range = memory.reserve(2 * unit);
    range.map(0, memory.create(unit));
    PhysicalMemory bound = memory.create(unit);
    MulticastMemory all = team(memory, unit);
    all.bind(0, bound, 0, unit);
    standIn.inject(step, 1, StandIn.Fault.ERROR, 999);
    check(assertThrows(NcclException.class, memory::close), step);
    memory.close();
    Map<String, Long> after = standIn.live();
    long kept =
        after.values().stream().mapToLong(count -> count < 1 << 20 ? count : 0).sum()
            - before.values().stream().mapToLong(count -> count < 1 << 20 ? count : 0).sum();
    // One thing, and for a mapping its addresses.
    assertTrue(kept >= 0 && kept <= 2, () -> before + " became " + after);
    CudaRig.begin();
  }

  @Test
  void threads() {
    try (VirtualMemory memory = device.newVirtualMemory()) {
      List<CompletableFuture<Void>> threads = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        threads.add(
            CompletableFuture.runAsync(
                () -> {
                  for (int k = 0; k < 50; k++) {
                    AddressRange range = memory.reserve(unit);
                    PhysicalMemory physical = memory.create(unit);
                    range.map(0, physical);
                    open(range, 0, unit);
                    range.buffer(0, 64).close();
                    range.unmap(0, unit);
                    physical.close();
                    range.close();
                  }
                }));
      }
      threads.forEach(CompletableFuture::join);
      assertEquals(0, memory.physicalBytes());
    }
  }
}
