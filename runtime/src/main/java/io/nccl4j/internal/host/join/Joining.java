package io.nccl4j.internal.host.join;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.internal.bootstrap.Joiner;
import io.nccl4j.internal.bootstrap.Member;
import io.nccl4j.internal.bootstrap.Membership;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.life.ProcessGroup;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.HostMemory;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.observe.Recorder.ConnectEvent;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank's way into a communicator whose ranks meet by a unique id.
 *
 * <p>Whatever can be refused to this rank, the others hear at once: before it comes, by declining;
 * after all have come, in the verdict, for which each rank takes its memory and maps its peers'
 * heaps first. Nobody but its maker touches the control block before all are ready, so that it can
 * be given back at once where they are not.
 *
 * @param <W> the works
 */
public final class Joining<W extends Work> {
  private final Device device;
  private final MemoryBook.Account account;
  private final Supplier<W> works;
  private final int nranks;
  private final int rank;
  private final int[] here;
  private final int place;
  private final @Nullable Outside outside;

  /** The name that all hosts know it by; null if there is one host. */
  private final @Nullable UUID common;

  private final CommunicatorConfig config;
  private final long start = System.nanoTime();

  /** The handle of the control block that rank 0 creates; -1 for other ranks. */
  private long handle = -1;

  private List<UUID> processes = List.of();
  private int[] processOf = {};
  private int own;
  private long[] pids = {};
  private @Nullable MemorySegment[] heaps = {};
  private @Nullable ControlBlock control;
  private HostHeap.@Nullable Block block;
  private long offset;
  private @Nullable Provisions<W> provisions;

  private Joining(
      Device device,
      MemoryBook.Account account,
      int nranks,
      int[] here,
      int rank,
      @Nullable Outside outside,
      @Nullable UUID common,
      CommunicatorConfig config,
      Supplier<W> works) {
    this.device = device;
    this.account = account;
    this.nranks = nranks;
    this.here = here;
    this.rank = rank;
    place = Arrays.binarySearch(here, rank);
    this.outside = outside;
    this.common = common;
    this.config = config;
    this.works = works;
  }

  /**
   * As {@link io.nccl4j.Communicator#initRank}, up to the others' arrival.
   *
   * @param account has the control block until there is a communicator
   * @param works makes one
   */
  public static <W extends Work> Place<W> join(
      Device device,
      MemoryBook.Account account,
      int nranks,
      UniqueId id,
      int rank,
      CommunicatorConfig config,
      Supplier<W> works) {
    int[] all = IntStream.range(0, nranks).toArray();
    return join(new Joining<>(device, account, nranks, all, rank, null, null, config, works), id);
  }

  /**
   * The same where not all ranks are on this host.
   *
   * @param nranks of all hosts
   * @param id by which the ranks of this host meet
   * @param here those ranks, ascending
   * @param outside the way to the others
   * @param common name that all hosts know it by
   */
  public static <W extends Work> Place<W> join(
      Device device,
      MemoryBook.Account account,
      int nranks,
      UniqueId id,
      int[] here,
      int rank,
      Outside outside,
      UUID common,
      CommunicatorConfig config,
      Supplier<W> works) {
    return join(
        new Joining<>(device, account, nranks, here, rank, outside, common, config, works), id);
  }

  private static <W extends Work> Place<W> join(Joining<W> joining, UniqueId id) {
    CommunicatorConfig config = joining.config;
    try {
      joining.begin();
    } catch (RuntimeException | Error e) {
      Rendezvous.decline(id, joining.place, e);
      throw e;
    }
    try (Membership membership = Rendezvous.join(id, joining.joiner(), config.initTimeout())) {
      Recorder.HERE.met();
      joining.prepare(membership);
      joining.agree(membership);
    } catch (RuntimeException | Error e) {
      joining.giveBack();
      throw e;
    }
    return joining.place();
  }

  /** What can be refused to this rank before it comes. */
  private void begin() {
    requireRanks(nranks);
    if (rank < 0 || rank >= nranks) {
      throw new InvalidArgumentException("rank is " + rank, "the ranks are 0 to " + (nranks - 1));
    }
    Tuning.require(config, nranks, outside != null);
    HostMemory.require(device, nranks, 1, config);
    if (place == 0) {
      handle = ProcessMemory.self().controlBlocks().create(account, nranks);
    }
  }

  private Joiner joiner() {
    ProcessMemory self = ProcessMemory.self();
    HostHeap heap = self.heap();
    return new Joiner(
        place,
        here.length,
        self.id(),
        Layout.VERSION,
        heap.fd(),
        heap.size(),
        heap.restriction(),
        handle,
        "");
  }

  /** What can be refused to it when all have come. */
  private void prepare(Membership membership) {
    try {
      find(membership);
      ControlBlock found = found();
      boolean spansProcesses = processes.size() > 1;
      String name = nameOf(found);
      provisions = Provisions.take(rank, device, config, name, spansProcesses, works);
    } catch (RuntimeException | Error e) {
      membership.refuse(place, e);
      throw e;
    }
  }

  /** Maps the other processes' heaps, and finds the control block in rank 0's. */
  private void find(Membership membership) {
    ProcessMemory self = ProcessMemory.self();
    List<Member> members = membership.members();
    processes = members.stream().map(Member::process).distinct().toList();
    processOf = new int[nranks];
    Arrays.fill(processOf, LocalPart.ELSEWHERE);
    for (int i = 0; i < here.length; i++) {
      processOf[here[i]] = processes.indexOf(members.get(i).process());
    }
    own = processes.indexOf(self.id());
    pids = new long[processes.size()];
    heaps = new MemorySegment[processes.size()];
    for (Member member : members) {
      int p = processes.indexOf(member.process());
      pids[p] = member.pid();
      if (heaps[p] == null && p != own) {
        heaps[p] = map(member, membership);
      }
    }
    if (self.heap().isShareable()) {
      heaps[own] = self.heap().mapping();
    }
    offset = membership.controlOffset();
    int maker = processOf[here[0]];
    block = maker == own ? ProcessMemory.self().controlBlocks().get(offset) : null;
    control =
        block == null
            ? ControlBlock.find(heaps[maker], offset, nranks, here[0])
            : ControlBlock.find(block.segment(), block.offset(), nranks, here[0]);
  }

  private MemorySegment map(Member member, Membership membership) {
    int file = membership.takeHeapFd(member.process());
    ConnectEvent event = Recorder.HERE.connect("shared memory", "process " + member.pid(), true);
    try {
      MemorySegment heap = ProcessMemory.self().mapPeer(member, file);
      event.ended("");
      return heap;
    } catch (LibcException e) {
      event.ended(String.valueOf(e.getMessage()));
      throw new SystemErrorException(
              "rank "
                  + rank
                  + " cannot map the heap of rank "
                  + member.rank()
                  + " ("
                  + (member.heapBytes() >> 20)
                  + " MiB of addresses): "
                  + e.getMessage(),
              "raise ulimit -v, or the container's limits")
          .causedBy(e);
    } finally {
      Descriptors.close(file);
    }
  }

  private ControlBlock found() {
    return Objects.requireNonNull(control);
  }

  private void agree(Membership membership) {
    try {
      membership.agree();
    } catch (NcclException e) {
      if (membership.isUndecided() && place == 0) {
        // The others may have heard that all go on: their control block must not go before them.
        LocalPart part = enter();
        LocalPart.lost(found(), rank);
        part.leave();
        handle = -1;
      }
      throw e;
    }
  }

  private Place<W> place() {
    Provisions<W> taken = Objects.requireNonNull(provisions);
    try {
      String name = nameOf(found());
      return new Place<>(rank, device, enter(), config, name, taken, start, k -> null, outside);
    } catch (RuntimeException | Error e) {
      taken.giveBack();
      throw e;
    }
  }

  /**
   * Makes this process's view of the communicator, or takes the one that another local rank made.
   */
  private LocalPart enter() {
    ControlBlock at = found();
    String name = nameOf(at);
    boolean[] first = new boolean[1];
    LocalPart part;
    try {
      part =
          LocalPart.join(
              at,
              rank,
              block,
              () -> {
                ProcessGroup group =
                    new ProcessGroup(
                        at, processes.toArray(UUID[]::new), pids, heaps, own, at.name());
                first[0] = true;
                return new LocalPart(at, processOf, group, offset, block);
              });
    } finally {
      if (!first[0]) {
        // The mappings belong to the group; this rank's count was one too many.
        unmap();
      }
      heaps = new MemorySegment[0];
    }
    if (part == null) {
      throw Arrival.failed(name, here[0]);
    }
    return part;
  }

  private String nameOf(ControlBlock at) {
    return common != null && config.name() == null
        ? ControlBlock.nameOf(common)
        : nameOf(config, at);
  }

  private void unmap() {
    for (int p = 0; p < heaps.length; p++) {
      if (heaps[p] != null && p != own) {
        ProcessMemory.self().unmapPeer(processes.get(p));
      }
    }
  }

  /** Undoes what was done: no rank goes on, and none has touched the control block. */
  private void giveBack() {
    unmap();
    if (provisions != null) {
      provisions.giveBack();
    }
    if (handle >= 0) {
      ProcessMemory.self().controlBlocks().discard(handle);
    }
  }

  /** Refuses what is too many. */
  public static void requireRanks(int nranks) {
    if (nranks < 1 || nranks > Layout.MAX_RANKS) {
      throw new InvalidArgumentException(
          "nranks is " + nranks,
          "the host backend has communicators of 1 to " + Layout.MAX_RANKS + " ranks");
    }
  }

  /** The name that was asked for, or one that all ranks come to by themselves. */
  public static String nameOf(CommunicatorConfig config, ControlBlock control) {
    String given = config.name();
    return given == null ? control.name() : given;
  }
}
