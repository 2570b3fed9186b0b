package io.nccl4j.internal.host;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.operation.Party;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Memory that ranks of failed communicators may still touch. A peer that was stopped, or is slow,
 * ends the step it is in when it goes on, and that step may write to addresses which it was given
 * before the failure. So the buffers of operations that were given up are noted here until every
 * peer is quiet: it has dropped its own operations, has left, or is dead.
 *
 * <p>Entries are ranges of addresses, so that slices, pools and memory that was wrapped again are
 * covered. Thread-safe; costs one read of a field as long as nothing has failed.
 */
final class Quarantine {
  /**
   * One buffer of one operation.
   *
   * @param written whether peers write to it; otherwise they only read it
   */
  private record Entry(long address, long bytes, HostCommunicator communicator, boolean written) {
    boolean overlaps(long start, long length) {
      return start < address + bytes && address < start + length;
    }

    boolean isOver() {
      return communicator.health().peersAreQuiet();
    }
  }

  private final Set<Entry> entries = new HashSet<>();
  private volatile boolean used;

  /** Notes what peers may still touch of an operation that was given up. */
  void add(HostWork work) {
    HostCommunicator communicator = work.communicator;
    if (work.stage == HostWork.QUEUED || communicator.nranks() == 1) {
      return;
    }
    if (work.send instanceof HostBuffer send) {
      add(send, communicator, false);
    }
    if (work.recv instanceof HostBuffer recv) {
      add(recv, communicator, isWrittenByPeers(work, recv));
    }
  }

  /** Low-latency and staged operations, and messages, leave a rank's buffers to that rank. */
  private static boolean isWrittenByPeers(HostWork work, HostBuffer recv) {
    HostCommunicator communicator = work.communicator;
    boolean staged = communicator.spansProcesses() && !recv.isShared();
    return work.isCollective()
        && !work.lowLatency
        && !staged
        && work.receives(communicator.rank())
        && (work.operation.isShared() || work.operation.receivers() == Party.ROOT);
  }

  private synchronized void add(HostBuffer buffer, HostCommunicator communicator, boolean written) {
    if (buffer.byteSize() > 0 && !communicator.health().peersAreQuiet()) {
      entries.add(new Entry(buffer.address(), buffer.byteSize(), communicator, written));
      used = true;
    }
  }

  /**
   * Refuses a buffer that a peer may still write to.
   *
   * @param call what is refused, for the message
   */
  void requireQuiet(HostBuffer buffer, String call) {
    if (used) {
      HostCommunicator writer = writer(buffer.address(), buffer.byteSize());
      if (writer != null) {
        throw new InvalidUsageException(
            call
                + ": ranks of communicator "
                + writer.name()
                + ", which has failed, may still write to the buffer: "
                + writer.health().restless(),
            "wait for it with DeviceBuffer.awaitQuiet, use another buffer, or end those processes");
      }
    }
  }

  /** Whether no peer can write to this memory any more. */
  boolean isQuiet(long address, long bytes) {
    return !used || writer(address, bytes) == null;
  }

  /** Whether no peer can write to, or read from, this memory any more. */
  boolean isUntouched(long address, long bytes) {
    return !used || touching(address, bytes).isEmpty();
  }

  /** Says when memory, which nobody of this process uses any more, may be used for other things. */
  BooleanSupplier whenUntouched(long address, long bytes) {
    List<Entry> touching = used ? touching(address, bytes) : List.of();
    return () -> touching.stream().allMatch(Entry::isOver);
  }

  private synchronized @Nullable HostCommunicator writer(long address, long bytes) {
    for (Entry entry : touching(address, bytes)) {
      if (entry.written) {
        return entry.communicator;
      }
    }
    return null;
  }

  private synchronized List<Entry> touching(long address, long bytes) {
    for (Iterator<Entry> i = entries.iterator(); i.hasNext(); ) {
      if (i.next().isOver()) {
        i.remove();
      }
    }
    used = !entries.isEmpty();
    return entries.stream().filter(entry -> entry.overlaps(address, bytes)).toList();
  }
}
