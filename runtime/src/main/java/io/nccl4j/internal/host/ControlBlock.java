package io.nccl4j.internal.host;

import io.nccl4j.PeerFailedException;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.MemoryAccess;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * The memory layout through which the ranks of a communicator talk, and nothing else. All ranks of
 * it, in all processes, see the same bytes; each line has one writer unless noted, and lines that
 * different ranks write are 128 bytes apart.
 *
 * <pre>
 * header     magic, layout, nranks, uuid                                    creator writes once
 *            epoch: grows whenever a rank fails, leaves or is found dead    anybody, atomically
 * process p  robust mutex (64 B), flags: left or away, dead                 see DeathWatch
 * rank r     state, processor                                               owner
 *            why it failed, before it says so; see Reason                   owner
 *            done    [signature:32 | seq:32], every 8 collectives           owner
 *            sync    count of barriers inside collectives, only grows       owner
 *            outbox  32 slots of 1664 B: word0 = [signature:32 | seq:32]    owner
 *            ledger  number of the last collective, calls; see Ledger       owner
 * pair i→j   lane    8 slots of 512 B: word0 = [signature:32 | laneSeq:32]  i
 *            chunks filled                                                  i
 *            offset and count of i's block for j in a v-form                i
 *            ack, chunks taken                                              j
 * </pre>
 */
final class ControlBlock {
  /** Changes whenever the layout does: processes with another one refuse each other. */
  static final long LAYOUT = 0x6e63636c346a_0005L;

  static final int MAX_RANKS = 256;
  static final int LINE = 128;

  /** Bytes of data, without a scalar, that a slot of an outbox takes. */
  static final int OUTBOX_PAYLOAD = 1536;

  /** No power of two: the first lines of all slots would share two sets of a cache. */
  static final int OUTBOX_SLOT_BYTES = OUTBOX_PAYLOAD + LINE;

  static final int OUTBOX_SLOTS = 32;
  static final int LANE_SLOT_BYTES = 512;
  static final int LANE_PAYLOAD = LANE_SLOT_BYTES - Long.BYTES;
  static final int LANE_SLOTS = 8;

  private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

  /**
   * All memory: where native calls are allowed, no arena closes control blocks, and a constant
   * segment leaves nothing to check at each access.
   */
  private static final @Nullable MemorySegment MEMORY =
      Libc.isAvailable() ? MemoryAccess.everything() : null;

  private static final long HEADER_BYTES = 4096;

  /** A block starts at a page, as all blocks of a heap do. */
  private static final long ALIGNMENT = 4096;

  private static final long EPOCH = 2 * LINE;
  private static final long NRANKS = 8;
  private static final long UUID_HIGH = 24;
  private static final long UUID_LOW = 32;
  private static final long LEFT = 64;
  private static final long AWAY = 2;
  private static final long DEAD = 72;
  private static final long PROCESSOR = 64;
  private static final long DONE = LINE;
  private static final long SYNC = 2 * LINE;
  private static final long STAGING = 3 * LINE;
  private static final long REASON = 4 * LINE;
  private static final long OUTBOX = REASON + Reason.BYTES;
  private static final long LEDGER = OUTBOX + (long) OUTBOX_SLOTS * OUTBOX_SLOT_BYTES;
  private static final long RANK_BYTES = LEDGER + Ledger.BYTES;
  private static final long LANE = 0;
  private static final long FILLED = (long) LANE_SLOTS * LANE_SLOT_BYTES;
  private static final long BLOCK = FILLED + LINE;
  private static final long ACK = BLOCK + LINE;
  private static final long PAIR_BYTES = ACK + LINE;

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
  static ControlBlock find(MemorySegment memory, long base, int nranks, int owner) {
    if (base < 0 || base % ALIGNMENT != 0 || base > memory.byteSize() - bytes(nranks)) {
      throw Explanation.impossible(
          owner,
          "offers a control block that lies at byte "
              + base
              + " of a heap of "
              + memory.byteSize()
              + " B: "
              + bytes(nranks)
              + " B at a multiple of "
              + ALIGNMENT
              + " are needed");
    }
    ControlBlock control = new ControlBlock(memory, base, nranks);
    long layout = control.getAcquire(base);
    long ranks = control.getPlain(base + NRANKS);
    if (layout != LAYOUT || ranks != nranks) {
      throw Explanation.impossible(
          owner,
          "offers a control block that at byte "
              + base
              + " of its heap has layout "
              + Long.toHexString(layout)
              + " for "
              + ranks
              + " ranks, not "
              + Long.toHexString(LAYOUT)
              + " for "
              + nranks);
    }
    control.uuidHigh = control.getPlain(base + UUID_HIGH);
    control.uuidLow = control.getPlain(base + UUID_LOW);
    return control;
  }

  /** A view of a block that lies {@code base} bytes into {@code memory}. */
  ControlBlock(MemorySegment memory, long base, int nranks) {
    this.memory = memory;
    this.address = memory.address();
    this.base = base;
    this.nranks = nranks;
  }

  /** Size of a block for {@code nranks} ranks. */
  static long bytes(int nranks) {
    return HEADER_BYTES
        + (long) nranks * LINE
        + nranks * RANK_BYTES
        + (long) nranks * nranks * PAIR_BYTES;
  }

  /** What of a block is reserved: not its pairs, of which most never talk where ranks are many. */
  static long reservedBytes(int nranks) {
    return bytes(nranks) - (long) nranks * nranks * PAIR_BYTES;
  }

  /** Fills in a new block. */
  void format(long uuidHigh, long uuidLow) {
    this.uuidHigh = uuidHigh;
    this.uuidLow = uuidLow;
    if (!HostHeap.isFresh(bytes(nranks))) {
      memory.asSlice(base, bytes(nranks)).fill((byte) 0);
    }
    memory.set(ValueLayout.JAVA_LONG, base + NRANKS, nranks);
    memory.set(ValueLayout.JAVA_LONG, base + UUID_HIGH, uuidHigh);
    memory.set(ValueLayout.JAVA_LONG, base + UUID_LOW, uuidLow);
    setRelease(base, LAYOUT);
  }

  long uuidHigh() {
    return uuidHigh;
  }

  long uuidLow() {
    return uuidLow;
  }

  /** A name that all ranks come to by themselves. */
  String name() {
    return "comm-" + new UUID(uuidHigh, uuidLow).toString().substring(0, 6);
  }

  /** The segment all offsets of this class are offsets into. */
  MemorySegment memory() {
    return memory;
  }

  long getAcquire(long offset) {
    return MEMORY == null
        ? (long) LONG.getAcquire(memory, offset)
        : (long) LONG.getAcquire(MEMORY, address + offset);
  }

  void setRelease(long offset, long value) {
    if (MEMORY == null) {
      LONG.setRelease(memory, offset, value);
    } else {
      LONG.setRelease(MEMORY, address + offset, value);
    }
  }

  long getPlain(long offset) {
    return MEMORY == null
        ? memory.get(ValueLayout.JAVA_LONG, offset)
        : MEMORY.get(ValueLayout.JAVA_LONG, address + offset);
  }

  void setPlain(long offset, long value) {
    if (MEMORY == null) {
      memory.set(ValueLayout.JAVA_LONG, offset, value);
    } else {
      MEMORY.set(ValueLayout.JAVA_LONG, address + offset, value);
    }
  }

  long getOpaque(long offset) {
    return MEMORY == null
        ? (long) LONG.getOpaque(memory, offset)
        : (long) LONG.getOpaque(MEMORY, address + offset);
  }

  void setOpaque(long offset, long value) {
    if (MEMORY == null) {
      LONG.setOpaque(memory, offset, value);
    } else {
      LONG.setOpaque(MEMORY, address + offset, value);
    }
  }

  /** Copies longs of an array, which a release store makes visible. */
  void setPlain(long offset, long[] from, int start, int length) {
    MemorySegment.copy(from, start, memory, ValueLayout.JAVA_LONG, offset, length);
  }

  boolean compareAndSet(long offset, long expected, long value) {
    return LONG.compareAndSet(memory, offset, expected, value);
  }

  long epoch() {
    return getOpaque(base + EPOCH);
  }

  void advanceEpoch() {
    long ignored = (long) LONG.getAndAdd(memory, base + EPOCH, 1L);
  }

  MemorySegment mutex(int process) {
    return memory.asSlice(process(process), DeathWatch.MUTEX_BYTES);
  }

  boolean hasLeft(int process) {
    return getAcquire(process(process) + LEFT) != 0;
  }

  void setLeft(int process) {
    setRelease(process(process) + LEFT, 1);
  }

  /** Whether the process has left and does not touch its mutex, or this memory, any more. */
  boolean isAway(int process) {
    return getAcquire(process(process) + LEFT) == AWAY;
  }

  void setAway(int process) {
    setRelease(process(process) + LEFT, AWAY);
  }

  boolean isDead(int process) {
    return getAcquire(process(process) + DEAD) != 0;
  }

  void setDead(int process) {
    setRelease(process(process) + DEAD, 1);
  }

  private long process(int process) {
    return base + HEADER_BYTES + (long) process * LINE;
  }

  private long rank(int rank) {
    return base + HEADER_BYTES + (long) nranks * LINE + rank * RANK_BYTES;
  }

  long state(int rank) {
    return rank(rank);
  }

  /** Where the rank's processor stands, from 1; 0 if it has never waited for long. */
  long processor(int rank) {
    return rank(rank) + PROCESSOR;
  }

  long done(int rank) {
    return rank(rank) + DONE;
  }

  long sync(int rank) {
    return rank(rank) + SYNC;
  }

  /** Offset, in the rank's heap, of its staging area; written before the rank is alive. */
  long staging(int rank) {
    return rank(rank) + STAGING;
  }

  /** What the rank's failure is, for the others. */
  long reason(int rank) {
    return rank(rank) + REASON;
  }

  long outbox(int rank) {
    return rank(rank) + OUTBOX;
  }

  long ledger(int rank) {
    return rank(rank) + LEDGER;
  }

  private long pair(int from, int to) {
    return base
        + HEADER_BYTES
        + (long) nranks * LINE
        + nranks * RANK_BYTES
        + ((long) from * nranks + to) * PAIR_BYTES;
  }

  /** Gives memory to what one rank writes to another, and back; before they first do. */
  void populate(int from, int to) {
    populate(pair(from, to), PAIR_BYTES);
  }

  /** The same for all that one rank writes to. */
  void populate(int from) {
    populate(pair(from, 0), nranks * PAIR_BYTES);
  }

  private void populate(long offset, long bytes) {
    if (MEMORY != null && HostHeap.isFresh(bytes(nranks))) {
      HostProcess.self().heap().populate(memory, offset, bytes);
    }
  }

  long lane(int from, int to) {
    return pair(from, to) + LANE;
  }

  long filled(int from, int to) {
    return pair(from, to) + FILLED;
  }

  long block(int from, int to) {
    return pair(from, to) + BLOCK;
  }

  long ack(int from, int to) {
    return pair(from, to) + ACK;
  }

  long taken(int from, int to) {
    return pair(from, to) + ACK + Long.BYTES;
  }
}
