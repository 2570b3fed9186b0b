package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Memory;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.UUID;

/** A heap of one page that begins with the name of its process. */
final class TestHeap implements AutoCloseable {
  static final long BYTES = 65536;

  final UUID process = UUID.randomUUID();
  final int fd;

  TestHeap() {
    fd = Memory.memfdCreate("test-heap", Memory.MFD_CLOEXEC | Memory.MFD_ALLOW_SEALING);
    Memory.ftruncate(fd, BYTES);
    Memory.addSeals(fd, Memory.F_SEAL_SHRINK | Memory.F_SEAL_GROW | Memory.F_SEAL_SEAL);
    MemorySegment memory = map(fd);
    memory.set(ValueLayout.JAVA_LONG, 0, process.getMostSignificantBits());
    memory.set(ValueLayout.JAVA_LONG, 8, process.getLeastSignificantBits());
    Memory.munmap(memory);
  }

  /** Joins as one rank of this heap's process, and checks every other heap. */
  Membership join(byte[] id, int rank, int nranks, java.time.Duration timeout) {
    return Rendezvous.join(id, joiner(rank, nranks), timeout);
  }

  Joiner joiner(int rank, int nranks) {
    return new Joiner(rank, nranks, process, 77, fd, BYTES, rank == 0 ? 4096 : -1);
  }

  /** Takes and checks the heaps of all other processes; returns their number. */
  int checkPeers(Membership membership) {
    java.util.Set<UUID> peers = new java.util.HashSet<>();
    membership.members().forEach(member -> peers.add(member.process()));
    peers.remove(process);
    for (UUID peer : peers) {
      int heap = membership.takeHeapFd(peer);
      UUID found = nameIn(heap);
      Descriptors.close(heap);
      if (!found.equals(peer)) {
        throw new AssertionError("heap of " + found + " under the name " + peer);
      }
    }
    membership.close();
    return peers.size();
  }

  private static UUID nameIn(int fd) {
    MemorySegment memory = map(fd);
    UUID found =
        new UUID(memory.get(ValueLayout.JAVA_LONG, 0), memory.get(ValueLayout.JAVA_LONG, 8));
    Memory.munmap(memory);
    return found;
  }

  private static MemorySegment map(int fd) {
    return Memory.mmap(BYTES, Memory.PROT_READ | Memory.PROT_WRITE, Memory.MAP_SHARED, fd, 0);
  }

  @Override
  public void close() {
    Descriptors.close(fd);
  }
}
