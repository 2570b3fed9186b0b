package io.nccl4j.internal.host.memory;

import io.nccl4j.InternalErrorException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Memory;
import io.nccl4j.internal.bootstrap.HeapFile;
import io.nccl4j.internal.bootstrap.Member;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * What all ranks of this process share: its heap, its mappings of peers' heaps, and who uses which
 * buffer. Thread-safe.
 */
public final class ProcessMemory {
  private static final class Holder {
    static final ProcessMemory SELF = new ProcessMemory();
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
  private final ControlBlocks controlBlocks = new ControlBlocks(heap);
  private final Map<UUID, PeerHeap> peers = new HashMap<>();
  private final List<BufferUser> users = new CopyOnWriteArrayList<>();
  private final Quarantine quarantine = new Quarantine();

  private ProcessMemory() {}

  /** That of this process. */
  public static ProcessMemory self() {
    return Holder.SELF;
  }

  /** Names this process to others; random. */
  public UUID id() {
    return id;
  }

  /** The heap. */
  public HostHeap heap() {
    return heap;
  }

  /** Who has taken which memory. */
  public MemoryBook book() {
    return book;
  }

  /** The control blocks in the heap. */
  public ControlBlocks controlBlocks() {
    return controlBlocks;
  }

  /** What ranks of failed communicators may still touch. */
  public Quarantine quarantine() {
    return quarantine;
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
  public synchronized MemorySegment mapPeer(Member peer, int file) {
    String flaw = HeapFile.flaw(file, peer.heapBytes());
    long inode = Descriptors.fstat(file).inode();
    PeerHeap known = peers.get(peer.process());
    if (flaw == null && known != null && known.inode != inode) {
      flaw = "is not the one that a process of the same name has offered before";
    }
    if (flaw != null) {
      throw ControlBlock.impossible(peer.rank(), "offers a heap that " + flaw);
    }
    if (known == null) {
      known = new PeerHeap(HostHeap.map(file, peer.heapBytes()), inode);
      peers.put(peer.process(), known);
    }
    known.users++;
    return known.mapping;
  }

  /** One user less; the last one unmaps. */
  public synchronized void unmapPeer(UUID process) {
    PeerHeap peer = peers.get(process);
    if (peer == null) {
      throw new InternalErrorException("a peer's heap was released twice", "please report this");
    }
    if (--peer.users == 0) {
      peers.remove(process);
      Memory.munmap(peer.mapping);
    }
  }

  /** Somebody works with buffers from now on. */
  public void add(BufferUser user) {
    users.add(user);
  }

  /** Somebody does not any more. */
  public void remove(BufferUser user) {
    users.remove(user);
  }

  /** The unfinished work that uses a buffer or slices of it. */
  Uses usesOf(Object buffer) {
    Uses uses = new Uses();
    users.forEach(user -> user.addUses(buffer, uses));
    return uses;
  }

  /**
   * When the memory of a closed buffer may be used for something else: no work uses it any more,
   * and no rank of a failed communicator can reach it. Whether one could is known when the works
   * are over.
   */
  BooleanSupplier whenUnused(Object buffer, long address, long bytes) {
    Uses uses = usesOf(buffer);
    return new BooleanSupplier() {
      private @Nullable BooleanSupplier outOfReach;

      @Override
      public boolean getAsBoolean() {
        if (outOfReach == null) {
          if (!uses.areOver()) {
            return false;
          }
          outOfReach = quarantine.whenUntouched(address, bytes);
        }
        return outOfReach.getAsBoolean();
      }
    };
  }
}
