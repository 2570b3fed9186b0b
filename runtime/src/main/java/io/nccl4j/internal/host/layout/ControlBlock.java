package io.nccl4j.internal.host.layout;

import io.nccl4j.PeerFailedException;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.internal.liveness.DeathWatch;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * The memory through which the ranks of a communicator talk, as one of them sees it: the way to
 * each part of the {@link Layout}, and the kinds of access. All offsets that it takes and gives are
 * offsets into {@link #memory()}.
 */
public final class ControlBlock {
  private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

  /**
   * All memory: where native calls are allowed, no arena closes control blocks, and a constant
   * segment leaves nothing to check at each access.
   */
  private static final @Nullable MemorySegment MEMORY =
      Libc.isAvailable() ? MemoryAccess.everything() : null;

  private final MemorySegment memory;

  /** What to add to an offset for {@link #MEMORY}. */
  private final long address;

  private final long base;
  private final int nranks;

  // Copies of what the header says, taken once: whoever can write there cannot change them later.
  private long uuidHigh;
  private long uuidLow;

  /**
   * A view of the block that another rank has made.
   *
   * @param base where it says that the block lies in {@code memory}: not to be believed
   * @param owner that rank
   * @throws PeerFailedException if there is no such block
   */
  public static ControlBlock find(MemorySegment memory, long base, int nranks, int owner) {
    if (base < 0 || base % Layout.PAGE != 0 || base > memory.byteSize() - bytes(nranks)) {
      throw impossible(
          owner,
          "offers a control block that lies at byte "
              + base
              + " of a heap of "
              + memory.byteSize()
              + " B: "
              + bytes(nranks)
              + " B at a multiple of "
              + Layout.PAGE
              + " are needed");
    }
    ControlBlock control = new ControlBlock(memory, base, nranks);
    long layout = control.getAcquire(base + Layout.HEADER_VERSION);
    long ranks = control.getPlain(base + Layout.NRANKS);
    if (layout != Layout.VERSION || ranks != nranks) {
      throw impossible(
          owner,
          "offers a control block that at byte "
              + base
              + " of its heap has layout "
              + Long.toHexString(layout)
              + " for "
              + ranks
              + " ranks, not "
              + Long.toHexString(Layout.VERSION)
              + " for "
              + nranks);
    }
    control.uuidHigh = control.getPlain(base + Layout.UUID_HIGH);
    control.uuidLow = control.getPlain(base + Layout.UUID_LOW);
    return control;
  }

  /** A view of a block that lies {@code base} bytes into {@code memory}. */
  public ControlBlock(MemorySegment memory, long base, int nranks) {
    this.memory = memory;
    this.address = memory.address();
    this.base = base;
    this.nranks = nranks;
  }

  /** Size of a block for {@code nranks} ranks. */
  public static long bytes(int nranks) {
    return reservedBytes(nranks) + (long) nranks * nranks * Layout.PAIR_BYTES;
  }

  /** What of a block is reserved: not its pairs, of which most never talk where ranks are many. */
  public static long reservedBytes(int nranks) {
    return Layout.HEADER_BYTES + nranks * (Layout.PROCESS_BYTES + Layout.RANK_BYTES);
  }

  /** Its size. */
  public long bytes() {
    return bytes(nranks);
  }

  /** What a rank says of itself cannot be, whatever rank of this library it were. */
  public static PeerFailedException impossible(int k, String what) {
    return new PeerFailedException(
        k, "rank " + k + " " + what, "check what that rank's process runs: nccl4j never does this");
  }

  /**
   * Fills in a new block.
   *
   * @param zeroed whether its memory is
   */
  public void format(long uuidHigh, long uuidLow, boolean zeroed) {
    this.uuidHigh = uuidHigh;
    this.uuidLow = uuidLow;
    if (!zeroed) {
      memory.asSlice(base, bytes()).fill((byte) 0);
    }
    memory.set(ValueLayout.JAVA_LONG, base + Layout.NRANKS, nranks);
    memory.set(ValueLayout.JAVA_LONG, base + Layout.UUID_HIGH, uuidHigh);
    memory.set(ValueLayout.JAVA_LONG, base + Layout.UUID_LOW, uuidLow);
    setRelease(base + Layout.HEADER_VERSION, Layout.VERSION);
  }

  public long uuidHigh() {
    return uuidHigh;
  }

  public long uuidLow() {
    return uuidLow;
  }

  /** A name that all ranks come to by themselves. */
  public String name() {
    return nameOf(new UUID(uuidHigh, uuidLow));
  }

  /** What a communicator is called that ranks know by this. */
  public static String nameOf(UUID common) {
    return "comm-" + common.toString().substring(0, 6);
  }

  /** The segment all offsets of this class are offsets into. */
  public MemorySegment memory() {
    return memory;
  }

  // Methods of at most 35 bytecodes, which the compiler inlines wherever they are called.

  /** {@link #MEMORY}, if there is one: it folds to a constant. */
  private MemorySegment segment() {
    return MEMORY == null ? memory : MEMORY;
  }

  /** An offset into {@link #segment()}. */
  private long at(long offset) {
    return MEMORY == null ? offset : address + offset;
  }

  public long getAcquire(long offset) {
    return (long) LONG.getAcquire(segment(), at(offset));
  }

  /**
   * Reads a word and, until it has the expected value, reads it again up to {@code patience} times.
   *
   * @return the last value read
   */
  public long poll(long offset, long expected, int patience) {
    long found = getAcquire(offset);
    for (int i = patience; found != expected && i > 0; i--) {
      Thread.onSpinWait();
      found = getAcquire(offset);
    }
    return found;
  }

  public void setRelease(long offset, long value) {
    LONG.setRelease(segment(), at(offset), value);
  }

  public long getPlain(long offset) {
    return segment().get(ValueLayout.JAVA_LONG, at(offset));
  }

  public void setPlain(long offset, long value) {
    segment().set(ValueLayout.JAVA_LONG, at(offset), value);
  }

  public long getOpaque(long offset) {
    return (long) LONG.getOpaque(segment(), at(offset));
  }

  public void setOpaque(long offset, long value) {
    LONG.setOpaque(segment(), at(offset), value);
  }

  /** Copies longs of an array, which a release store makes visible. */
  public void setPlain(long offset, long[] from, int start, int length) {
    MemorySegment.copy(from, start, memory, ValueLayout.JAVA_LONG, offset, length);
  }

  public boolean compareAndSet(long offset, long expected, long value) {
    return LONG.compareAndSet(memory, offset, expected, value);
  }

  /** Whoever sees that it has grown sees in the states what it has grown for. */
  public long epoch() {
    return getAcquire(base + Layout.EPOCH);
  }

  public void advanceEpoch() {
    long ignored = (long) LONG.getAndAdd(memory, base + Layout.EPOCH, 1L);
  }

  /** Where it stands whose proposal of who goes on counts, from 1; 0 as long as none does. */
  public long decided() {
    return base + Layout.DECIDED;
  }

  public MemorySegment mutex(int process) {
    return memory.asSlice(process(process) + Layout.MUTEX, DeathWatch.MUTEX_BYTES);
  }

  public boolean hasLeft(int process) {
    return getAcquire(process(process) + Layout.GONE) != 0;
  }

  public void setLeft(int process) {
    setRelease(process(process) + Layout.GONE, Layout.LEFT);
  }

  /** Whether the process has left and does not touch its mutex, or this memory, any more. */
  public boolean isAway(int process) {
    return getAcquire(process(process) + Layout.GONE) == Layout.AWAY;
  }

  public void setAway(int process) {
    setRelease(process(process) + Layout.GONE, Layout.AWAY);
  }

  public boolean isDead(int process) {
    return getAcquire(process(process) + Layout.DEAD) != 0;
  }

  public void setDead(int process) {
    setRelease(process(process) + Layout.DEAD, 1);
  }

  private long process(int process) {
    return base + Layout.HEADER_BYTES + process * Layout.PROCESS_BYTES;
  }

  private long rank(int rank) {
    return process(nranks) + rank * Layout.RANK_BYTES;
  }

  public long state(int rank) {
    return rank(rank);
  }

  /** Where the rank's processor stands, from 1; 0 if it has never waited for long. */
  public long processor(int rank) {
    return rank(rank) + Layout.PROCESSOR;
  }

  public long done(int rank) {
    return rank(rank) + Layout.DONE;
  }

  public long sync(int rank) {
    return rank(rank) + Layout.SYNC;
  }

  /** Offset, in the rank's heap, of its staging area; written before the rank is alive. */
  public long staging(int rank) {
    return rank(rank) + Layout.STAGING;
  }

  /** How the rank's settings force operations to be done; written before the rank is alive. */
  public long tuning(int rank) {
    return rank(rank) + Layout.TUNING;
  }

  /** Where that starts what the rank says of who goes on after a failure. */
  public long survivor(int rank) {
    return rank(rank) + Layout.RANK_SURVIVOR;
  }

  /** What the rank's failure is, for the others. */
  long reason(int rank) {
    return rank(rank) + Layout.RANK_REASON;
  }

  public long outbox(int rank) {
    return rank(rank) + Layout.OUTBOX;
  }

  public long ledger(int rank) {
    return rank(rank) + Layout.RANK_LEDGER;
  }

  /**
   * The elements that a rank has called a collective with for rank {@code of}, if all ranks pass
   * the counts of all; −1 if it has not shown that collective, or not any more.
   */
  public long shownCount(int k, long seq, int of) {
    long slot = outbox(k) + (seq & Layout.OUTBOX_SLOTS - 1) * Layout.OUTBOX_SLOT_BYTES;
    long at = slot + Layout.COUNTS + (long) of * Layout.COUNT_BYTES;
    if ((int) getAcquire(slot) != (int) seq) {
      return -1;
    }
    long count = memory.get(ValueLayout.JAVA_LONG_UNALIGNED, at);
    VarHandle.loadLoadFence();
    return (int) getAcquire(slot) == (int) seq
        ? count & (1L << Layout.COUNT_BYTES * Byte.SIZE) - 1
        : -1;
  }

  /** Where that starts, up to the next pair, what one rank writes to another, and back. */
  public long pair(int from, int to) {
    return rank(nranks) + ((long) from * nranks + to) * Layout.PAIR_BYTES;
  }

  public long lane(int from, int to) {
    return pair(from, to) + Layout.LANE;
  }

  public long filled(int from, int to) {
    return pair(from, to) + Layout.FILLED;
  }

  public long block(int from, int to) {
    return pair(from, to) + Layout.BLOCK;
  }

  public long ack(int from, int to) {
    return pair(from, to) + Layout.ACK;
  }

  public long taken(int from, int to) {
    return pair(from, to) + Layout.TAKEN;
  }
}
