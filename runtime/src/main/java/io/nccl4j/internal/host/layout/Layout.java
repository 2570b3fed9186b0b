package io.nccl4j.internal.host.layout;

import io.nccl4j.internal.liveness.DeathWatch;

/**
 * Where everything lies in the memory through which the ranks of a communicator talk, how large it
 * is, and what its flags are. All ranks of it, in all processes, see the same bytes; each line has
 * one writer unless noted, and lines that different ranks write are 128 bytes apart.
 *
 * <pre>
 * header     version, nranks, uuid                                          creator writes once
 *            epoch: grows whenever a rank fails, leaves or is found dead    anybody, atomically
 *            decided: who says which ranks go on after a failure, from 1    anybody, once, atomically
 * process p  robust mutex (64 B), flags: left or away, dead                 see DeathWatch
 * rank r     state, processor                                               owner
 *            why it failed, before it says so; see Reason                   owner
 *            done    [signature:32 | seq:32], every 8 collectives           owner
 *            sync    count of barriers inside collectives, only grows       owner
 *            goes on: whether it does, and who else in its opinion          owner
 *            outbox  32 slots of 2304 B: word0 = [signature:32 | seq:32]    owner
 *            ledger  number of the last collective, calls; see Ledger       owner
 * pair i→j   lane    16 slots of 1152 B: word0 = [signature:32 | seq:32]    i
 *            chunks filled                                                  i
 *            offset and count of i's block for j in a v-form                i
 *            ack, chunks taken                                              j
 * </pre>
 *
 * <p>Each part is recorded as it is placed, and the {@link #VERSION} is computed of these records:
 * it changes with the layout, and nobody has to remember that.
 */
public final class Layout {
  public static final int LINE = 128;

  /** A block starts at a page, as all blocks of a heap do. */
  static final long PAGE = 4096;

  // What is a size or a meaning and no place.

  private static final Struct VALUES = new Struct("values");
  public static final int MAX_RANKS = VALUES.value("max ranks", 256);

  /** Bytes of data, without a scalar, that a slot of an outbox takes. */
  public static final int OUTBOX_PAYLOAD = VALUES.value("outbox payload", 1536);

  public static final int OUTBOX_SLOTS = VALUES.value("outbox slots", 32);

  /** Collectives from one word that says what is done to the next. */
  public static final int DONE_INTERVAL = VALUES.value("done interval", 8);

  /** Bytes of data that a slot of a lane takes. */
  public static final int LANE_PAYLOAD = VALUES.value("lane payload", 1144);

  public static final int LANE_SLOTS = VALUES.value("lane slots", 16);

  /** Small messages from one acknowledgement to the next. */
  public static final int ACK_INTERVAL = VALUES.value("ack interval", 8);

  /** Bytes of a piece of a message from memory that is private to the sender's process. */
  public static final int CHUNK_BYTES = VALUES.value("chunk", 256 << 10);

  /** What sends of private buffers to one peer take. */
  public static final long MESSAGE_BYTES = 2L * CHUNK_BYTES;

  /** Bytes of a rank's staging area, half for input and half for output. */
  public static final long STAGING_BYTES = VALUES.value("staging", 1 << 20);

  static final int LEDGER_COLLECTIVES = VALUES.value("ledger collectives", 1024);
  static final int LEDGER_MESSAGES = VALUES.value("ledger messages", 512);

  /** Collectives of a graph that are written before their numbers are shown. */
  static final int LEDGER_RUN = VALUES.value("ledger run", 256);

  /** Flags of a descriptor in an outbox: the memory is private to its process. */
  public static final int PRIVATE_IN = VALUES.value("private in", 1);

  public static final int PRIVATE_OUT = VALUES.value("private out", 2);

  /**
   * How a message travels that does not fit into its slot: pulled by the receiver, or in chunks.
   */
  public static final int PULLED = VALUES.value("pulled", 0);

  public static final int CHUNKED = VALUES.value("chunked", 1);

  /** What a process says of itself when it has left; and when it touches nothing any more. */
  static final int LEFT = VALUES.value("left", 1);

  static final int AWAY = VALUES.value("away", 2);

  /**
   * Bytes of a count: an address space has 48 bits, and so the counts of all ranks fit in a slot.
   */
  public static final int COUNT_BYTES = VALUES.value("count", 6);

  // The header.

  private static final Struct HEADER = new Struct("header");
  static final long HEADER_VERSION = HEADER.word("version");
  static final long NRANKS = HEADER.word("nranks");
  static final long UUID_HIGH = HEADER.word("uuid high");
  static final long UUID_LOW = HEADER.word("uuid low");
  static final long EPOCH = HEADER.add("epoch", LINE, LINE);
  static final long DECIDED = HEADER.add("decided", Long.BYTES, LINE);
  static final long HEADER_BYTES = HEADER.bytes(PAGE);

  // What each process has.

  private static final Struct PROCESS = new Struct("process");
  static final long MUTEX = PROCESS.add("mutex", DeathWatch.MUTEX_BYTES, LINE);
  static final long GONE = PROCESS.word("left or away");
  static final long DEAD = PROCESS.word("dead");
  static final long PROCESS_BYTES = PROCESS.bytes(LINE);

  // A slot of an outbox: a word of signature and number, then the data; or a descriptor.

  private static final Struct OUTBOX_SLOT = new Struct("outbox slot");
  public static final long OUTBOX_WORD = OUTBOX_SLOT.word("word");
  public static final long FLAGS = OUTBOX_SLOT.word("flags");
  public static final long IN_OFFSET = OUTBOX_SLOT.word("in");
  public static final long OUT_OFFSET = OUTBOX_SLOT.word("out");
  public static final long SCALAR = OUTBOX_SLOT.word("scalar");
  public static final long LONGEST = OUTBOX_SLOT.word("longest");
  public static final long COUNTS =
      OUTBOX_SLOT.add("counts", (long) MAX_RANKS * COUNT_BYTES, Long.BYTES);

  /** Where data starts in a slot from which each rank reads whole lines: after the word's line. */
  public static final int LINES = VALUES.value("lines", LINE / 2);

  /** The same word once the rank has folded its share of the data, and then the share. */
  public static final long SHARE_WORD = OUTBOX_SLOT.add("share word", Long.BYTES, LINE);

  public static final int SHARE_BYTES = 512;
  public static final long SHARE = OUTBOX_SLOT.add("share", SHARE_BYTES, LINE / 2);

  /** No power of two: the first lines of all slots would share two sets of a cache. */
  public static final int OUTBOX_SLOT_BYTES = (int) OUTBOX_SLOT.bytes(LINE);

  // What a rank's failure is, for the others.

  private static final Struct REASON = new Struct("reason");
  static final long BLAMED = REASON.add("blamed", MAX_RANKS / Byte.SIZE, Long.BYTES);
  static final long TEXT_LENGTH = REASON.word("length");
  static final int TEXT_BYTES = 984;
  static final long TEXT = REASON.add("text", TEXT_BYTES, Long.BYTES);
  static final long REASON_BYTES = REASON.bytes(LINE);

  /** What ranks of other hosts hear of a rank: its state, its last collective, its reason. */
  public static final int NEWS_BYTES = (int) (8 * Long.BYTES + REASON_BYTES);

  // What a rank has called.

  private static final Struct CALL = new Struct("collective");
  static final long CALL_CODE = CALL.word("code");
  static final long CALL_COUNT = CALL.word("count");
  static final long CALL_BYTES = CALL.bytes(Long.BYTES);

  private static final Struct MESSAGE = new Struct("message");
  static final long MESSAGE_SEQ = MESSAGE.word("number");
  static final long MESSAGE_CODE = MESSAGE.word("code");
  static final long MESSAGE_COUNT = MESSAGE.word("count");
  static final long MESSAGE_CALL_BYTES = MESSAGE.bytes(4L * Long.BYTES);

  private static final Struct LEDGER = new Struct("ledger");
  static final long LAST = LEDGER.word("last");
  static final long CALLS = LEDGER.add("calls", LEDGER_COLLECTIVES * CALL_BYTES, LINE);
  static final long MESSAGES = LEDGER.add("messages", LEDGER_MESSAGES * MESSAGE_CALL_BYTES, LINE);
  static final long LEDGER_BYTES = LEDGER.bytes(LINE);

  // Who goes on after a failure, as a rank says: whether it does itself, and what it proposes.

  private static final Struct SURVIVOR = new Struct("survivor");
  public static final long GOES_ON = SURVIVOR.word("goes on");
  public static final long NEW_CONTROL = SURVIVOR.word("control block");
  public static final int MEMBERS_LONGS = MAX_RANKS / Long.SIZE;
  public static final long MEMBERS =
      SURVIVOR.add("members", (long) MEMBERS_LONGS * Long.BYTES, Long.BYTES);
  static final long SURVIVOR_BYTES = SURVIVOR.bytes(LINE);

  // What each rank has.

  private static final Struct RANK = new Struct("rank");
  static final long STATE = RANK.word("state");
  static final long PROCESSOR = RANK.add("processor", Long.BYTES, LINE / 2);
  static final long DONE = RANK.add("done", Long.BYTES, LINE);
  static final long SYNC = RANK.add("sync", Long.BYTES, LINE);
  static final long STAGING = RANK.add("staging", Long.BYTES, LINE);
  static final long TUNING = RANK.word("tuning");
  static final long RANK_REASON = RANK.add("reason", REASON_BYTES, LINE);
  static final long RANK_SURVIVOR = RANK.add("survivor", SURVIVOR_BYTES, LINE);
  static final long OUTBOX = RANK.add("outbox", (long) OUTBOX_SLOTS * OUTBOX_SLOT_BYTES, LINE);
  static final long RANK_LEDGER = RANK.add("ledger", LEDGER_BYTES, LINE);
  static final long RANK_BYTES = RANK.bytes(LINE);

  // A slot of a lane: a word of signature and number, then the data; or a descriptor.

  private static final Struct LANE_SLOT = new Struct("lane slot");
  public static final long LANE_WORD = LANE_SLOT.word("word");
  public static final long LANE_OFFSET = LANE_SLOT.word("offset");
  public static final long LANE_MODE = LANE_SLOT.word("mode");

  /** The rest of the data, which begins at {@link #LANE_OFFSET} if there is no descriptor. */
  static final long LANE_REST = LANE_SLOT.add("rest", LANE_PAYLOAD - 2L * Long.BYTES, Long.BYTES);

  public static final int LANE_SLOT_BYTES = (int) LANE_SLOT.bytes(LINE);

  // What each pair of ranks has, for each direction.

  private static final Struct PAIR = new Struct("pair");
  static final long LANE = PAIR.add("lane", (long) LANE_SLOTS * LANE_SLOT_BYTES, LINE);
  static final long FILLED = PAIR.add("filled", Long.BYTES, LINE);
  static final long BLOCK = PAIR.add("block", 2L * Long.BYTES, LINE);
  static final long ACK = PAIR.add("ack", Long.BYTES, LINE);
  static final long TAKEN = PAIR.word("taken");
  static final long PAIR_BYTES = PAIR.bytes(LINE);

  /** The version of this layout; processes whose versions differ refuse each other. */
  public static final long VERSION =
      0x6e63636cL << Integer.SIZE
          | Integer.toUnsignedLong(
              Struct.version(
                  VALUES,
                  RankState.CODES,
                  HEADER,
                  PROCESS,
                  OUTBOX_SLOT,
                  REASON,
                  CALL,
                  MESSAGE,
                  LEDGER,
                  SURVIVOR,
                  RANK,
                  LANE_SLOT,
                  PAIR));

  private Layout() {}
}
