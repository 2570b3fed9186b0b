package io.nccl4j.host;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryQuery;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bootstrap.Joiner;
import io.nccl4j.bootstrap.Member;
import io.nccl4j.bootstrap.Membership;
import io.nccl4j.bootstrap.Rendezvous;
import io.nccl4j.spi.BackendRuntime;
import io.nccl4j.spi.Interrupts;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
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
    return new MemoryPrediction(query, HostMemory.lines(query));
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
  public List<Communicator> initAll(List<Device> requested, CommunicatorConfig config) {
    int nranks = requested.size();
    checkRanks(nranks);
    HostMemory.require((HostDevice) requested.getFirst(), nranks, nranks, config);
    long handle = newControlBlock((HostDevice) requested.getFirst(), nranks);
    HostHeap.Block block = published(handle);
    ControlBlock control = ControlBlock.find(block.segment(), block.offset(), nranks, 0);
    UUID[] processes = {HostProcess.self().id()};
    long[] pids = {ProcessHandle.current().pid()};
    MemorySegment[] heaps = {block.segment()};
    String name = nameOf(config, control);
    ProcessGroup group = new ProcessGroup(control, processes, pids, heaps, 0, name);
    List<HostCommunicator> ranks = new ArrayList<>();
    for (int r = 0; r < nranks; r++) {
      LocalPart part =
          LocalPart.join(
              control, () -> new LocalPart(control, new int[nranks], group, handle, block));
      try {
        ranks.add(create(r, (HostDevice) requested.get(r), part, config, name));
      } catch (RuntimeException | Error e) {
        IntStream.range(r + 1, nranks).forEach(part::lost);
        ranks.forEach(HostCommunicator::close);
        throw e;
      }
    }
    for (HostCommunicator rank : ranks) {
      rank.awaitAll(System.nanoTime());
    }
    return List.copyOf(ranks);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    checkRanks(nranks);
    if (rank < 0 || rank >= nranks) {
      throw new InvalidArgumentException("rank is " + rank, "the ranks are 0 to " + (nranks - 1));
    }
    HostMemory.require((HostDevice) device, nranks, 1, config);
    HostProcess self = HostProcess.self();
    long start = System.nanoTime();
    long handle = rank == 0 ? newControlBlock((HostDevice) device, nranks) : -1;
    Joiner joiner =
        new Joiner(
            rank,
            nranks,
            self.id(),
            ControlBlock.LAYOUT,
            self.heap().fd(),
            self.heap().size(),
            handle);
    LocalPart part;
    try (Membership membership = Rendezvous.join(id, joiner, config.initTimeout())) {
      part = part(membership);
    } catch (NcclException e) {
      if (handle >= 0) {
        HostHeap.Block unused = published(handle);
        self.unpublish(handle);
        self.heap().free(unused, () -> true);
      }
      throw e;
    }
    return attach(rank, (HostDevice) device, part, config, nameOf(config, part.control()), start);
  }

  /**
   * Makes this process's view of the communicator, or takes the one that another local rank made.
   */
  private static LocalPart part(Membership membership) {
    HostProcess self = HostProcess.self();
    List<Member> members = membership.members();
    List<UUID> processes = members.stream().map(Member::process).distinct().toList();
    int[] processOf = members.stream().mapToInt(m -> processes.indexOf(m.process())).toArray();
    int own = processes.indexOf(self.id());
    long[] pids = new long[processes.size()];
    MemorySegment[] heaps = new MemorySegment[processes.size()];
    for (Member member : members) {
      int p = processes.indexOf(member.process());
      pids[p] = member.pid();
      if (heaps[p] == null && p != own) {
        int file = membership.takeHeapFd(member.process());
        try {
          heaps[p] = self.mapPeer(member, file);
        } finally {
          Descriptors.close(file);
        }
      }
    }
    HostHeap.Block block = processOf[0] == own ? published(membership.controlOffset()) : null;
    if (self.heap().isShareable()) {
      heaps[own] = self.heap().mapping();
    }
    MemorySegment memory = block == null ? heaps[processOf[0]] : block.segment();
    long offset = block == null ? membership.controlOffset() : block.offset();
    ControlBlock control = ControlBlock.find(memory, offset, members.size(), 0);
    boolean[] first = new boolean[1];
    LocalPart part =
        LocalPart.join(
            control,
            () -> {
              first[0] = true;
              ProcessGroup group =
                  new ProcessGroup(
                      control, processes.toArray(UUID[]::new), pids, heaps, own, control.name());
              return new LocalPart(control, processOf, group, membership.controlOffset(), block);
            });
    if (!first[0]) {
      // The mappings belong to the group; this rank's count was one too many.
      IntStream.range(0, heaps.length)
          .filter(p -> p != own)
          .forEach(p -> self.unmapPeer(processes.get(p)));
    }
    return part;
  }

  /** Creates a rank in a part it has joined, and waits for the others. */
  static HostCommunicator attach(
      int rank, HostDevice device, LocalPart part, CommunicatorConfig config, String name) {
    return attach(rank, device, part, config, name, System.nanoTime());
  }

  private static HostCommunicator attach(
      int rank,
      HostDevice device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      long start) {
    HostCommunicator communicator = create(rank, device, part, config, name);
    try {
      communicator.awaitAll(deadline(start, config.initTimeout()));
      return communicator;
    } catch (NcclException e) {
      communicator.health().fail(Interrupts.asFailure(e));
      communicator.close();
      throw e;
    }
  }

  /** Creates a rank in a part it has joined, which it leaves again if that fails. */
  private static HostCommunicator create(
      int rank, HostDevice device, LocalPart part, CommunicatorConfig config, String name) {
    try {
      return HostCommunicator.create(rank, device, part, config, name);
    } catch (RuntimeException | Error e) {
      part.lost(rank);
      part.leave();
      throw e;
    }
  }

  private static long deadline(long start, Duration timeout) {
    // Half the range of the clock is 146 years, and differences stay right.
    return start + Math.min(timeout.toNanos(), Long.MAX_VALUE / 2);
  }

  /**
   * Allocates and formats a control block in this process's heap, and publishes it.
   *
   * @param device has it until there is a communicator
   */
  static long newControlBlock(HostDevice device, int nranks) {
    HostProcess self = HostProcess.self();
    HostHeap.Block block =
        self.heap()
            .allocate(
                device.account(),
                MemoryPurpose.CONTROL,
                ControlBlock.bytes(nranks),
                ControlBlock.reservedBytes(nranks));
    ControlBlock control = new ControlBlock(block.segment(), block.offset(), nranks);
    UUID id = UUID.randomUUID();
    control.format(id.getMostSignificantBits(), id.getLeastSignificantBits());
    return self.publish(block);
  }

  private static HostHeap.Block published(long handle) {
    HostHeap.@Nullable Block block = HostProcess.self().published(handle);
    if (block == null) {
      throw new InternalErrorException("a control block is gone", "please report this");
    }
    return block;
  }

  private static void checkRanks(int nranks) {
    if (nranks < 1 || nranks > ControlBlock.MAX_RANKS) {
      throw new InvalidArgumentException(
          "nranks is " + nranks,
          "the host backend has communicators of 1 to " + ControlBlock.MAX_RANKS + " ranks");
    }
  }

  private static String nameOf(CommunicatorConfig config, ControlBlock control) {
    String given = config.name();
    return given == null ? control.name() : given;
  }
}
