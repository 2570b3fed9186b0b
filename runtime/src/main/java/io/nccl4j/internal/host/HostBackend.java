package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryQuery;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.ControlBlocks;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.HostMemory;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.spi.BackendRuntime;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** The host backend: its devices, and how ranks join as threads or processes. */
public final class HostBackend implements BackendRuntime {
  private final Device[] devices = new Device[Device.MAX_HOST_ORDINAL + 1];

  /** A backend; the runtime makes one. */
  public HostBackend() {
    for (int i = 0; i < devices.length; i++) {
      devices[i] = new HostDevice(i);
    }
  }

  @Override
  public Backend backend() {
    return Backend.HOST;
  }

  @Override
  public Device device(int ordinal) {
    if (ordinal < 0 || ordinal > Device.MAX_HOST_ORDINAL) {
      throw new InvalidArgumentException(
          "there is no host device " + ordinal, "host devices are 0 to " + Device.MAX_HOST_ORDINAL);
    }
    return devices[ordinal];
  }

  /** What it found on this machine; creates nothing. */
  public BackendInfo info() {
    return HostInfo.collect();
  }

  /** What rank 0 of a communicator will take. */
  public static MemoryPrediction predictMemory(MemoryQuery query) {
    return HostMemory.predict(query);
  }

  @Override
  public List<Device> devices() {
    return IntStream.range(0, Math.min(Machine.PROCESSORS, devices.length))
        .mapToObj(this::device)
        .toList();
  }

  @Override
  public byte[] createUniqueId() {
    return Rendezvous.createUniqueId();
  }

  @Override
  public void placeThread(Device device) {
    Affinity.placeThread(device.ordinal());
  }

  @Override
  public List<Communicator> initAll(List<Device> requested, CommunicatorConfig config) {
    int nranks = requested.size();
    requireRanks(nranks);
    HostMemory.require((HostDevice) requested.getFirst(), nranks, nranks, config);
    HostDevice first = (HostDevice) requested.getFirst();
    ControlBlocks controlBlocks = ProcessMemory.self().controlBlocks();
    long handle = controlBlocks.create(first.account(), nranks);
    HostHeap.Block block = controlBlocks.get(handle);
    ControlBlock control = ControlBlock.find(block.segment(), block.offset(), nranks, 0);
    String name = nameOf(config, control);
    List<Provisions> provisions = new ArrayList<>();
    try {
      for (int r = 0; r < nranks; r++) {
        HostDevice device = (HostDevice) requested.get(r);
        provisions.add(Provisions.take(r, device, config, name, false));
      }
    } catch (RuntimeException | Error e) {
      provisions.forEach(Provisions::giveBack);
      controlBlocks.discard(handle);
      throw e;
    }
    UUID[] processes = {ProcessMemory.self().id()};
    long[] pids = {ProcessHandle.current().pid()};
    MemorySegment[] heaps = {block.segment()};
    ProcessGroup group = new ProcessGroup(control, processes, pids, heaps, 0, name);
    List<HostCommunicator> ranks = new ArrayList<>();
    for (int r = 0; r < nranks; r++) {
      try {
        LocalPart part =
            LocalPart.join(
                control,
                r,
                block,
                () -> new LocalPart(control, new int[nranks], group, handle, block));
        HostDevice device = (HostDevice) requested.get(r);
        ranks.add(create(r, device, Objects.requireNonNull(part), config, name, provisions.get(r)));
      } catch (RuntimeException | Error e) {
        for (int rest = r + 1; rest < nranks; rest++) {
          LocalPart.lost(control, rest);
          provisions.get(rest).giveBack();
        }
        ranks.forEach(HostCommunicator::close);
        throw e;
      }
    }
    for (HostCommunicator rank : ranks) {
      rank.awaitAll(System.nanoTime(), k -> null);
    }
    return List.copyOf(ranks);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Joining.join((HostDevice) device, nranks, id, rank, config);
  }

  /**
   * Creates a rank in a part that it has joined, and waits until the others have. All of them have
   * agreed to come.
   *
   * @param start when the call began, which the init timeout counts from
   * @param whyNever says why a rank that has not come will not come any more; null if it may
   */
  static HostCommunicator attach(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      Provisions provisions,
      long start,
      IntFunction<@Nullable NcclException> whyNever) {
    HostCommunicator communicator = create(rank, device, part, config, name, provisions);
    try {
      communicator.awaitAll(deadline(start, config.initTimeout()), whyNever);
      return communicator;
    } catch (NcclException e) {
      communicator.health().fail(Interrupts.asFailure(e));
      communicator.close();
      throw e;
    }
  }

  /** Creates a rank in a part it has joined, which it leaves again if that fails. */
  private static HostCommunicator create(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      Provisions provisions) {
    try {
      return HostCommunicator.create(rank, device, part, config, name, provisions);
    } catch (RuntimeException | Error e) {
      LocalPart.lost(part.control(), rank);
      part.leave();
      provisions.giveBack();
      throw e;
    }
  }

  private static long deadline(long start, Duration timeout) {
    // Half the range of the clock is 146 years, and differences stay right.
    return start + Math.min(timeout.toNanos(), Long.MAX_VALUE / 2);
  }

  @Override
  public void checkRanks(int nranks) {
    requireRanks(nranks);
  }

  static void requireRanks(int nranks) {
    if (nranks < 1 || nranks > Layout.MAX_RANKS) {
      throw new InvalidArgumentException(
          "nranks is " + nranks,
          "the host backend has communicators of 1 to " + Layout.MAX_RANKS + " ranks");
    }
  }

  /** The name that was asked for, or one that all ranks come to by themselves. */
  static String nameOf(CommunicatorConfig config, ControlBlock control) {
    String given = config.name();
    return given == null ? control.name() : given;
  }
}
