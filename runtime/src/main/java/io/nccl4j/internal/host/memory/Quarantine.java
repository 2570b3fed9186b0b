package io.nccl4j.internal.host.memory;

import io.nccl4j.InvalidUsageException;
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
public final class Quarantine {
  /** The other ranks of a communicator, which may have failed. */
  public interface Peers {
    /** Name of the communicator. */
    String name();

    /** Whether they can touch nothing of this rank any more. */
    boolean peersAreQuiet();

    /** Those that can, for messages; empty if there are none any more. */
    String restless();
  }

  /**
   * One buffer of one operation.
   *
   * @param written whether peers write to it; otherwise they only read it
   */
  private record Entry(long address, long bytes, Peers peers, boolean written) {
    boolean overlaps(long start, long length) {
      return start < address + bytes && address < start + length;
    }
  }

  private final Set<Entry> entries = new HashSet<>();
  private volatile boolean used;

  /**
   * Notes what peers may still touch of an operation that was given up.
   *
   * @param written whether they write to it
   */
  public synchronized void add(HostBuffer buffer, Peers peers, boolean written) {
    if (buffer.byteSize() > 0 && !peers.peersAreQuiet()) {
      entries.add(new Entry(buffer.address(), buffer.byteSize(), peers, written));
      used = true;
    }
  }

  /**
   * Refuses a buffer that a peer may still write to.
   *
   * @param call what is refused, for the message
   */
  public void requireQuiet(HostBuffer buffer, String call) {
    if (!used) {
      return;
    }
    for (Peers writer = writer(buffer); writer != null; writer = writer(buffer)) {
      String restless = writer.restless();
      // Empty if they have become quiet since; then look again.
      if (!restless.isEmpty()) {
        throw new InvalidUsageException(
            call
                + ": ranks of communicator "
                + writer.name()
                + ", which has failed, may still write to the buffer: "
                + restless,
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
    return () -> touching.stream().allMatch(entry -> entry.peers.peersAreQuiet());
  }

  private @Nullable Peers writer(HostBuffer buffer) {
    return writer(buffer.address(), buffer.byteSize());
  }

  private synchronized @Nullable Peers writer(long address, long bytes) {
    for (Entry entry : touching(address, bytes)) {
      if (entry.written) {
        return entry.peers;
      }
    }
    return null;
  }

  private synchronized List<Entry> touching(long address, long bytes) {
    for (Iterator<Entry> i = entries.iterator(); i.hasNext(); ) {
      if (i.next().peers.peersAreQuiet()) {
        i.remove();
      }
    }
    used = !entries.isEmpty();
    return entries.stream().filter(entry -> entry.overlaps(address, bytes)).toList();
  }
}
