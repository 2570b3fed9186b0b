package io.nccl4j.internal.spi;

import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import io.nccl4j.memory.MemoryReport.Line;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Who has taken which memory for what: allocators book each allocation on an account, once, and
 * release the booking when they free it. What outlives its owner, such as a buffer that a peer may
 * still touch, stays on the owner's account until it is freed.
 *
 * <p>Thread-safe; no call waits for anything but other calls.
 */
public final class MemoryBook {
  private record Kind(MemoryPurpose purpose, MemoryPlace place) {}

  private static final class Sum {
    long bytes;
    long peak;
  }

  private final Set<Account> accounts = new LinkedHashSet<>();

  /**
   * An account.
   *
   * @param owner for people: a device, or a rank of a communicator
   * @param device where the owner is; null for what belongs to the process
   */
  public synchronized Account open(String owner, @Nullable Object device) {
    Account account = new Account(owner, device);
    accounts.add(account);
    return account;
  }

  /** What is taken on a device, by whomever, and by the process as a whole. */
  public MemoryReport report(String title, Object device) {
    return new MemoryReport(title, lines(device), List.of());
  }

  private synchronized List<Line> lines(Object device) {
    List<Line> lines = new ArrayList<>();
    for (Account account : accounts) {
      if (account.device == null || account.device == device) {
        account.addTo(lines);
      }
    }
    return lines;
  }

  /** What is taken on a device in one place, by whomever, and by the process as a whole. */
  public long bytes(Object device, MemoryPlace place) {
    return report("", device).bytes(place);
  }

  /** The memory of one owner. */
  public final class Account {
    private final String owner;
    private final @Nullable Object device;
    private final Map<Kind, Sum> sums = new LinkedHashMap<>();
    private int bookings;
    private boolean closed;

    private Account(String owner, @Nullable Object device) {
      this.owner = owner;
      this.device = device;
    }

    /** Books an allocation. */
    public Booking book(MemoryPurpose purpose, MemoryPlace place, long bytes) {
      Kind kind = new Kind(purpose, place);
      record(kind, bytes);
      synchronized (MemoryBook.this) {
        Booking booking = new Booking(this, kind);
        bookings++;
        booking.set(bytes);
        return booking;
      }
    }

    /** What it has taken now; an account without any has no lines. */
    public List<Line> lines() {
      synchronized (MemoryBook.this) {
        List<Line> lines = new ArrayList<>();
        addTo(lines);
        return lines;
      }
    }

    /** The owner is gone: the account is forgotten as soon as nothing is booked on it any more. */
    public void close() {
      synchronized (MemoryBook.this) {
        closed = true;
        forgetIfOver();
      }
    }

    private void addTo(List<Line> lines) {
      String name = closed ? owner + " (closed)" : owner;
      sums.forEach(
          (kind, sum) -> {
            if (sum.peak > 0) {
              lines.add(new Line(name, kind.purpose, kind.place, sum.bytes, sum.peak, "booked"));
            }
          });
    }

    private void record(Kind kind, long taken) {
      if (taken > 0 && Recorder.HERE.wantsAllocations()) {
        Recorder.HERE.allocated(owner, kind.purpose.label(), kind.place.label(), taken);
      }
    }

    private void add(Kind kind, long bytes) {
      Sum sum = sums.computeIfAbsent(kind, ignored -> new Sum());
      sum.bytes += bytes;
      sum.peak = Math.max(sum.peak, sum.bytes);
    }

    private void forgetIfOver() {
      if (closed && bookings == 0) {
        accounts.remove(this);
      }
    }
  }

  /** One allocation. */
  public final class Booking {
    private Account account;
    private Kind kind;
    private long bytes;
    private boolean released;

    private Booking(Account account, Kind kind) {
      this.account = account;
      this.kind = kind;
    }

    private void set(long newBytes) {
      account.add(kind, newBytes - bytes);
      bytes = newBytes;
    }

    /** Its size has changed. */
    public void resize(long newBytes) {
      synchronized (MemoryBook.this) {
        requireOpen();
        account.record(kind, newBytes - bytes);
        set(newBytes);
      }
    }

    /** It belongs to another owner, or serves another purpose, from now on. */
    public void move(Account to, MemoryPurpose purpose) {
      synchronized (MemoryBook.this) {
        requireOpen();
        long size = bytes;
        set(0);
        leave();
        account = to;
        kind = new Kind(purpose, kind.place);
        account.bookings++;
        set(size);
      }
    }

    /** The allocation was freed. */
    public void release() {
      synchronized (MemoryBook.this) {
        requireOpen();
        set(0);
        released = true;
        leave();
      }
    }

    private void leave() {
      account.bookings--;
      account.forgetIfOver();
    }

    private void requireOpen() {
      if (released) {
        throw new IllegalStateException("memory of " + account.owner + " was freed twice");
      }
    }
  }
}
