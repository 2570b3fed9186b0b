package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.NetworkMeeting;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.join.Joining;
import io.nccl4j.internal.host.join.Place;
import io.nccl4j.internal.host.join.Provisions;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.life.ProcessGroup;
import io.nccl4j.internal.host.memory.ControlBlocks;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.HostMemory;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.machine.LocalAddress;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.spi.BackendRuntime;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.stream.IntStream;

/** The host backend: its devices, and how ranks join as threads or processes. */
final class HostBackend implements BackendRuntime {
  private final Device[] devices = new Device[Device.MAX_HOST_ORDINAL + 1];

  /** A backend; the runtime makes one. */
  HostBackend() {
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

  @Override
  public List<Device> devices() {
    return IntStream.range(0, Math.min(Machine.PROCESSORS, devices.length))
        .mapToObj(this::device)
        .toList();
  }

  @Override
  public byte[] createUniqueId(UniqueId.Reach reach) {
    return switch (reach) {
      case MACHINE -> Rendezvous.createUniqueId();
      case NETWORK ->
          NetworkMeeting.createUniqueId(
                  LocalAddress.wanted(System.getenv()).orElseGet(LocalAddress::ofDefaultRoute))
              .toBytes();
    };
  }

  @Override
  public void placeThread(Device device) {
    Affinity.placeThread(device.ordinal());
  }

  @Override
  public List<Communicator> initAll(List<Device> requested, CommunicatorConfig config) {
    int nranks = requested.size();
    Joining.requireRanks(nranks);
    Tuning.require(config, nranks, false);
    HostMemory.require((HostDevice) requested.getFirst(), nranks, nranks, config);
    HostDevice first = (HostDevice) requested.getFirst();
    ControlBlocks controlBlocks = ProcessMemory.self().controlBlocks();
    long handle = controlBlocks.create(first.account(), nranks);
    HostHeap.Block block = controlBlocks.get(handle);
    ControlBlock control = ControlBlock.find(block.segment(), block.offset(), nranks, 0);
    String name = Joining.nameOf(config, control);
    List<Provisions<HostWork>> provisions = new ArrayList<>();
    List<Place<HostWork>> places = new ArrayList<>();
    List<HostCommunicator> ranks = new ArrayList<>();
    try {
      for (int r = 0; r < nranks; r++) {
        provisions.add(Provisions.take(r, requested.get(r), config, name, false, HostWork::new));
      }
      UUID[] processes = {ProcessMemory.self().id()};
      long[] pids = {ProcessHandle.current().pid()};
      MemorySegment[] heaps = {block.segment()};
      ProcessGroup group = new ProcessGroup(control, processes, pids, heaps, 0, name);
      for (int r = 0; r < nranks; r++) {
        Device device = requested.get(r);
        LocalPart part =
            LocalPart.join(
                control,
                r,
                block,
                () -> new LocalPart(control, new int[nranks], group, handle, block));
        places.add(
            new Place<>(
                r,
                device,
                Objects.requireNonNull(part),
                config,
                name,
                provisions.get(r),
                System.nanoTime(),
                k -> null));
        ranks.add(HostCommunicator.create(places.getLast()));
      }
    } catch (RuntimeException | Error e) {
      // What belongs to a place has its owner: the rank that was made, or else it was given back.
      int placed = places.size();
      for (int rest = placed; rest < nranks; rest++) {
        LocalPart.lost(control, rest);
      }
      provisions.subList(placed, provisions.size()).forEach(Provisions::giveBack);
      ranks.forEach(HostCommunicator::close);
      if (placed == 0) {
        controlBlocks.discard(handle);
      }
      throw e;
    }
    for (int r = 0; r < nranks; r++) {
      ranks.get(r).awaitAll(places.get(r));
    }
    return List.copyOf(ranks);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Rendezvous.isOverNetwork(id)
        ? SpanProvider.find().join(device, nranks, id, rank, config)
        : HostSpan.attach(device, nranks, id, rank, config);
  }

  @Override
  public void checkRanks(int nranks) {
    Joining.requireRanks(nranks);
  }
}
