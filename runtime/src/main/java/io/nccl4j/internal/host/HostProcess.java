package io.nccl4j.internal.host;

import io.nccl4j.InternalErrorException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Memory;
import io.nccl4j.internal.bootstrap.HeapFile;
import io.nccl4j.internal.bootstrap.Member;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * What all ranks of this process share: its heap, its mappings of peers' heaps, and who uses which
 * buffer. Thread-safe.
 */
final class HostProcess {
  private static final class Holder {
    static final HostProcess SELF = new HostProcess();
  }

  /** A peer's heap in this address space, shared by all communicators with that peer. */
  private static final class PeerHeap {
    final MemorySegment mapping;
    final long inode;
    int users;

    PeerHeap(MemorySegment mapping, long inode) {
      this.mapping = mapping;
      this.inode = inode;
    }
  }

  private final UUID id = UUID.randomUUID();
  private final MemoryBook book = new MemoryBook();
  private final HostHeap heap = HostHeap.create(book.open("this process", null));
  private final Map<UUID, PeerHeap> peers = new HashMap<>();
  private final Map<Long, HostHeap.Block> blocks = new ConcurrentHashMap<>();
  private final AtomicLong handles = new AtomicLong();
  private final List<HostCommunicator> communicators = new CopyOnWriteArrayList<>();
  private final List<HostExecutableGraph> graphs = new CopyOnWriteArrayList<>();
  private final Quarantine quarantine = new Quarantine();

  private HostProcess() {}

  static HostProcess self() {
    return Holder.SELF;
  }

  /** Names this process to others; random. */
  UUID id() {
    return id;
  }

  HostHeap heap() {
    return heap;
  }

  /** Who has taken which memory. */
  MemoryBook book() {
    return book;
  }

  /**
   * Maps a peer's heap, or counts one more user of it.
   *
   * @param peer one of its ranks
   * @param file its heap, which stays the caller's
   * @throws PeerFailedException if it cannot be mapped without danger, or is another one than
   *     before
   * @throws LibcException if the system refuses it
   */
  synchronized MemorySegment mapPeer(Member peer, int file) {
    String flaw = HeapFile.flaw(file, peer.heapBytes());
    long inode = Descriptors.fstat(file).inode();
    PeerHeap known = peers.get(peer.process());
    if (flaw == null && known != null && known.inode != inode) {
      flaw = "is not the one that a process of the same name has offered before";
    }
    if (flaw != null) {
      throw Explanation.impossible(peer.rank(), "offers a heap that " + flaw);
    }
    if (known == null) {
      known = new PeerHeap(HostHeap.map(file, peer.heapBytes()), inode);
      peers.put(peer.process(), known);
    }
    known.users++;
    return known.mapping;
  }

  /** One user less; the last one unmaps. */
  synchronized void unmapPeer(UUID process) {
    PeerHeap peer = peers.get(process);
    if (peer == null) {
      throw new InternalErrorException("a peer's heap was released twice", "please report this");
    }
    if (--peer.users == 0) {
      peers.remove(process);
      Memory.munmap(peer.mapping);
    }
  }

  /**
   * A number by which ranks find a control block: its heap offset, or for threads only any unused
   * number.
   */
  long publish(HostHeap.Block block) {
    long handle = heap.isShareable() ? block.offset() : handles.incrementAndGet();
    blocks.put(handle, block);
    return handle;
  }

  /** A control block of this process; null if there is none. */
  HostHeap.@Nullable Block published(long handle) {
    return blocks.get(handle);
  }

  /** Whether a control block can be found here. */
  boolean isPublished(HostHeap.Block block) {
    return blocks.containsValue(block);
  }

  void unpublish(long handle) {
    blocks.remove(handle);
  }

  void add(HostCommunicator communicator) {
    communicators.add(communicator);
    Progress.setRanks(mostRanks());
  }

  void remove(HostCommunicator communicator) {
    communicators.remove(communicator);
    Progress.setRanks(mostRanks());
  }

  /** Fails communicators because a thread of this process that they rely on is of no use. */
  void failAll(Predicate<HostCommunicator> which, String problem, Throwable cause) {
    for (HostCommunicator communicator : communicators) {
      if (which.test(communicator)) {
        communicator.failUnlessClosed(
            new InternalErrorException(problem + ": " + cause, "restart the process")
                .causedBy(cause),
            RankState.ERROR);
      }
    }
  }

  void add(HostExecutableGraph graph) {
    graphs.add(graph);
  }

  void remove(HostExecutableGraph graph) {
    graphs.remove(graph);
  }

  private int mostRanks() {
    return communicators.stream().mapToInt(HostCommunicator::nranks).max().orElse(1);
  }

  /** The unfinished work that uses a buffer or slices of it. */
  Uses usesOf(Object buffer) {
    Uses uses = new Uses();
    communicators.forEach(communicator -> communicator.addUses(buffer, uses));
    graphs.forEach(graph -> graph.addUses(buffer, uses));
    for (HostQueue stream : Progress.streams()) {
      stream.addUses(buffer, uses);
    }
    return uses;
  }

  /**
   * When the memory of a closed buffer may be used for something else: no work uses it any more,
   * and no rank of a failed communicator can reach it. Whether one could is known when the works
   * are over.
   */
  BooleanSupplier unused(HostBuffer root) {
    Uses uses = usesOf(root);
    return new BooleanSupplier() {
      private @Nullable BooleanSupplier outOfReach;

      @Override
      public boolean getAsBoolean() {
        if (outOfReach == null) {
          if (!uses.areOver()) {
            return false;
          }
          outOfReach = quarantine.whenUntouched(root.address(), root.byteSize());
        }
        return outOfReach.getAsBoolean();
      }
    };
  }

  /** How long a stream with these works may take to close: as long as their communicators. */
  Duration closeTimeout(HostStream stream, Duration otherwise) {
    Duration longest = Duration.ZERO;
    for (HostCommunicator communicator : communicators) {
      if (communicator.hasWorkIn(stream)) {
        longest = Collections.max(List.of(longest, communicator.config().closeTimeout()));
      }
    }
    for (HostExecutableGraph graph : graphs) {
      if (graph.isQueuedIn(stream)) {
        longest = Collections.max(List.of(longest, graph.closeTimeout(otherwise)));
      }
    }
    return longest.isZero() ? otherwise : longest;
  }

  /** What ranks of failed communicators may still touch. */
  Quarantine quarantine() {
    return quarantine;
  }

  /**
   * Lets ranks that are in no call learn that their communicator has failed. Until they have, their
   * peers must not use the buffers of what was given up.
   */
  void lookAtPeers() {
    for (HostCommunicator communicator : communicators) {
      if (communicator.health().hasNews()) {
        communicator.lookAtPeers();
      }
    }
  }
}
