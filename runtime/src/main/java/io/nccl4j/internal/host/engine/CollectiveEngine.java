package io.nccl4j.internal.host.engine;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.kernel.FoldKernel;
import io.nccl4j.internal.host.kernel.Kernels;
import io.nccl4j.internal.host.kernel.Scratch;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.spi.Scalars;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Carries out one rank's collectives, one at a time in the order they were issued.
 *
 * <p>Every rank writes a slot of its outbox for every collective; its first word, signature and
 * sequence number together, is what peers poll. <b>Low latency:</b> the slot holds the data, and
 * each rank computes its own result, or a share of it that it shows to all. <b>Direct:</b> the slot
 * holds addresses; each rank moves or reduces its share straight between the user's buffers, and a
 * barrier ends the operation. <b>Staged:</b> as direct, but piece by piece through the staging
 * areas, when some buffer is private to its process. Which one is chosen depends only on what all
 * ranks know.
 *
 * <p>The fields belong to whoever drives the current collective; ownership of its stream, and
 * {@link #completed} between streams, hand them over.
 */
public final class CollectiveEngine extends Padded {
  private static final VarHandle COMPLETED;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      COMPLETED = lookup.findVarHandle(CollectiveEngine.class, "completed", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final MemorySegment[] in;
  final MemorySegment[] out;
  final long[] inOffset;
  final long[] outOffset;
  final long[] scalars;
  final Scratch scratch = new Scratch();

  private final RankView view;
  private final ControlBlock control;
  private final Accord accord;
  private final int rank;

  /** The ranks that share the control block: those of this host, by their places. */
  private final int[] here;

  private final int place;
  private final int nranks;
  private final @Nullable Outside outside;
  private final Tuning tuning;
  private final long[] outbox;
  private final long[] done;
  private final long[] sync;
  private final OwnSegments own;
  private final MemorySegment[] foldIn;
  private final long[] foldInOffset;
  private final MemorySegment[] foldOut = new MemorySegment[1 + REFERENCES];
  private final long[] foldOutOffset = new long[1 + LONGS];
  private final ShareMover mover;
  private final Comparison comparison;

  private int patience;
  private long syncs;
  private long safeUntil = Layout.OUTBOX_SLOTS;

  @SuppressWarnings("unused") // by VarHandle
  private long completed;

  /**
   * Creates the engine of a rank that has not completed anything yet.
   *
   * @param outside reaches the ranks of other hosts; null if there are none
   */
  public CollectiveEngine(RankView view, @Nullable Outside outside) {
    this.view = view;
    this.control = view.control;
    this.accord = view.accord;
    this.rank = view.rank;
    this.here = view.here;
    this.place = view.placeOf[rank];
    this.nranks = here.length;
    this.outside = outside;
    this.tuning = view.tuning;
    own = Objects.requireNonNull(view.local(rank));
    outbox = new long[nranks];
    done = new long[nranks];
    sync = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      outbox[k] = control.outbox(here[k]);
      done[k] = control.done(here[k]);
      sync[k] = control.sync(here[k]);
    }
    in = new MemorySegment[nranks + REFERENCES];
    out = new MemorySegment[nranks + REFERENCES];
    inOffset = new long[nranks + LONGS];
    outOffset = new long[nranks + LONGS];
    scalars = new long[nranks + LONGS];
    foldIn = new MemorySegment[nranks + REFERENCES];
    foldInOffset = new long[nranks + LONGS];
    for (int k = 0; k < nranks; k++) {
      foldIn[k] = control.memory();
    }
    mover = new ShareMover(this, view, outside);
    comparison = new Comparison(this, view);
  }

  /** Number of the last completed collective. Any thread may ask. */
  public long completed() {
    return (long) COMPLETED.getAcquire(this);
  }

  /**
   * Gets on with the work until it is complete or must wait.
   *
   * @param behind the next work of the stream if it is another collective of this rank, else null;
   *     where there are other hosts, only if it is stepped as soon as this one is done
   * @param patience how often to look before it is said to be waiting
   */
  public int step(EngineWork w, @Nullable EngineWork behind, int patience) {
    this.patience = patience;
    if (w.stage == EngineWork.SHOWN) {
      return finishLowLatency(w);
    }
    if (w.stage == EngineWork.SHARED) {
      return takeShares(w);
    }
    if (w.stage == EngineWork.QUEUED) {
      if (completed() + 1 != w.seq) {
        return Step.DEPENDS;
      }
      if (w.seq > safeUntil && !refreshSafeUntil(w)) {
        return Step.BLOCKED;
      }
      long payload = payload(w);
      w.lowLatency = payload <= tuning.inline(w.operation);
      w.shared = w.lowLatency && tuning.shares(w.operation, payload);
      if (w.lowLatency && nranks == 1) {
        return finishLowLatency(w);
      }
      post(w);
      w.stage = EngineWork.POSTED;
    }
    if (w.stage == EngineWork.POSTED) {
      if (!peersPosted(w)) {
        return Step.BLOCKED;
      }
      if (w.lowLatency) {
        return finishLowLatency(w);
      }
      w.met();
      resolve(w);
      beginPiece(w);
    }
    return stepDirect(w, behind);
  }

  /**
   * Shows a small work's data to its peers before it is stepped.
   *
   * @param first whether it must be its turn; otherwise the one before was shown
   * @return false if that must wait
   */
  boolean postEarly(EngineWork w, boolean first) {
    if (outside != null && nranks == 1) {
      return accord.isGood() && outside.sendEarly(w, this, first);
    }
    if (!accord.isGood()
        || first && (w.stage != EngineWork.QUEUED || completed() + 1 != w.seq)
        || w.seq > safeUntil && !refreshSafeUntil(w)) {
      return false;
    }
    w.lowLatency = outside == null;
    w.shared = w.lowLatency && tuning.shares(w.operation, payload(w));
    post(w);
    w.stage = EngineWork.POSTED;
    return true;
  }

  /**
   * Looks once whether all peers have posted a work that was posted early. If so, it can be
   * finished, or what this host's ranks have shown is sent to other hosts.
   */
  boolean look(EngineWork w) {
    if (w.stage != EngineWork.POSTED) {
      return true;
    }
    long expected = word(w);
    for (int k = 0; k < nranks; k++) {
      if (k != place && control.getAcquire(slot(k, w.seq)) != expected) {
        return false;
      }
    }
    if (outside != null) {
      return flags(w) == 0
          && accord.isGoodForAll()
          && outside.sendEarly(w, this, completed() + 1 == w.seq);
    }
    w.stage = EngineWork.SHOWN;
    return true;
  }

  /** What all ranks of this host have shown of their buffers: 0 if those lie in their heaps. */
  private int flags(EngineWork w) {
    int flags = 0;
    for (int k = 0; k < nranks; k++) {
      flags |= (int) control.getPlain(slot(k, w.seq) + Layout.FLAGS);
    }
    return flags;
  }

  /**
   * Whether a collective, in which each rank waits for all others, is so small that its data may be
   * shown before its turn.
   */
  boolean canPostEarly(EngineWork w) {
    return outside == null
        ? nranks > 1 && isLowLatency(w)
        : (nranks == 1 || !w.operation.varies())
            && w.count <= mover.pieceLength(w)
            && outside.canSendEarly(w);
  }

  private int stepDirect(EngineWork w, @Nullable EngineWork behind) {
    while (true) {
      switch (w.stage) {
        case EngineWork.COPY_IN -> {
          mover.copyIn(w);
          arrive(w, EngineWork.ENTER);
        }
        case EngineWork.ENTER -> {
          if (!allArrived(w)) {
            return Step.BLOCKED;
          }
          w.stage = EngineWork.MOVE;
        }
        case EngineWork.MOVE -> {
          // To a rank that has failed its buffers may mean something else by now.
          if (!accord.isGoodForAll()) {
            return Step.MOVED;
          }
          // A rank that is alone on its host goes straight on to the next one.
          boolean isFollowed = nranks == 1 && behind != null;
          int moved = outside == null ? mover.move(w) : outside.move(w, this, isFollowed);
          if (moved != Step.DONE) {
            return moved;
          }
          if (!accord.isGoodForAll()) {
            return Step.MOVED;
          }
          arrive(w, EngineWork.LEAVE);
          if (behind != null && !w.staged) {
            postBehind(w, behind);
          }
        }
        case EngineWork.LEAVE -> {
          if (!allArrived(w)) {
            return Step.BLOCKED;
          }
          if (!w.staged) {
            return complete(w);
          }
          w.stage = EngineWork.COPY_OUT;
        }
        default -> {
          mover.copyOut(w);
          w.piece += w.pieceLength;
          if (w.piece >= w.longest) {
            return complete(w);
          }
          beginPiece(w);
          return Step.MOVED;
        }
      }
    }
  }

  /**
   * Shows where the buffers of a direct work lie as soon as this rank has done its share of the one
   * before. When all ranks have shown it, all shares of the one before are done, whichever buffers
   * the two have in common: so a rank waits once between the two, not twice.
   */
  private void postBehind(EngineWork before, EngineWork w) {
    if (w.stage == EngineWork.QUEUED
        && w.seq == before.seq + 1
        && w.seq <= safeUntil
        && outside == null
        && !isLowLatency(w)
        && w.operation.sent() != Shape.NOTHING
        && !w.operation.varies()
        && w.op.deviceScalar() == null) {
      w.lowLatency = false;
      w.shared = false;
      post(w);
      w.stage = EngineWork.POSTED;
    }
  }

  private static void beginPiece(EngineWork w) {
    w.item = 0;
    w.position = 0;
    w.stage = w.staged ? EngineWork.COPY_IN : EngineWork.MOVE;
  }

  /** The same on every rank: it looks only at what the signature covers. */
  private boolean isLowLatency(EngineWork w) {
    return payload(w) <= tuning.inline(w.operation);
  }

  /** Bytes that each sending rank contributes. */
  private long payload(EngineWork w) {
    return sendElements(w) * w.type.byteSize();
  }

  private static boolean isScaled(EngineWork w) {
    return w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM;
  }

  /** Where the data lies in a slot: as near to the word as it can, or at the start of a line. */
  private static long payloadOffset(EngineWork w) {
    return w.shared ? Layout.LINES : isScaled(w) ? 2 * Long.BYTES : Long.BYTES;
  }

  /** Where the rank at a place shows a collective. */
  long slot(int k, long seq) {
    return outbox[k] + (seq & Layout.OUTBOX_SLOTS - 1) * Layout.OUTBOX_SLOT_BYTES;
  }

  private static long word(EngineWork w) {
    return (long) w.signature << 32 | w.seq & 0xffffffffL;
  }

  // ---- outbox

  private void post(EngineWork w) {
    long slot = slot(place, w.seq);
    if (!w.lowLatency) {
      describe(w, slot);
    } else if (contributes(w)) {
      if (isScaled(w)) {
        control.setPlain(slot + Long.BYTES, scalarBits(w));
      }
      HostBuffer send = w.sendBuffer();
      Copies.copy(
          send.segment(), send.offset(), control.memory(), slot + payloadOffset(w), payload(w));
    }
    control.setRelease(slot, word(w));
  }

  /** Whether others need this rank's data. */
  private boolean contributes(EngineWork w) {
    Operation operation = w.operation;
    return operation.sent() != Shape.NOTHING
        && w.sends(rank)
        && (operation.receivers() == Party.ALL || w.root != rank);
  }

  /** Elements that each sending rank contributes: a block for every rank, or one. */
  private long sendElements(EngineWork w) {
    return w.operation.sent() == Shape.EACH ? w.count * nranks : w.count;
  }

  /**
   * Addresses instead of data. Offsets are of the heap, or of the segment that same-process peers
   * find in our refs.
   */
  private void describe(EngineWork w, long slot) {
    int index = (int) w.seq & Layout.OUTBOX_SLOTS - 1;
    int flags = 0;
    if (w.send != null) {
      HostBuffer send = w.sendBuffer();
      control.setPlain(slot + Layout.IN_OFFSET, send.offset());
      if (!send.isShared()) {
        flags |= Layout.PRIVATE_IN;
        own.send[index] = send.segment();
      }
    }
    if (w.recv != null) {
      HostBuffer recv = w.recvBuffer();
      control.setPlain(slot + Layout.OUT_OFFSET, recv.offset());
      if (!recv.isShared()) {
        flags |= Layout.PRIVATE_OUT;
        own.recv[index] = recv.segment();
      }
    }
    control.setPlain(slot + Layout.FLAGS, flags);
    control.setPlain(slot + Layout.SCALAR, isScaled(w) ? scalarBits(w) : 0);
    control.setPlain(slot + Layout.LONGEST, mover.longestBlock(w));
    mover.publishBlocks(w);
    if (w.operation.hasCommonCounts()) {
      showCounts(w, slot);
    }
  }

  /** For messages only: the signature has them, but tells nothing of them. */
  private void showCounts(EngineWork w, long slot) {
    long at = slot + Layout.COUNTS;
    long[] counts = w.commonCounts();
    for (int k = 0; k < view.nranks; k++) {
      control.memory().set(ValueLayout.JAVA_LONG_UNALIGNED, at, counts[k]);
      at += Layout.COUNT_BYTES;
    }
  }

  private static long scalarBits(EngineWork w) {
    DeviceBuffer scalar = w.op.deviceScalar();
    if (scalar == null) {
      return Scalars.of(w.type, w.op);
    }
    HostBuffer buffer = (HostBuffer) scalar;
    return Scalars.read(buffer.segment(), buffer.offset(), w.type);
  }

  private boolean peersPosted(EngineWork w) {
    if (w.lowLatency && !reads(w)) {
      comparison.noteOneWay(w);
      return true;
    }
    long expected = word(w);
    boolean onlyRoot = w.lowLatency && w.operation.senders() == Party.ROOT;
    for (int k = onlyRoot ? w.root : w.cursor; k < nranks; k++) {
      if (k != place) {
        long found = control.poll(slot(k, w.seq), expected, patience);
        if (found != expected) {
          if ((int) found == (int) expected) {
            throw accord.mismatch(w, here[k]);
          }
          w.cursor = k;
          w.blockedOn = here[k];
          return false;
        }
      }
      if (onlyRoot) {
        comparison.noteOneWay(w);
        break;
      }
    }
    return true;
  }

  /** Whether this rank needs the others' data to finish a low-latency operation. */
  private boolean reads(EngineWork w) {
    return w.receives(rank) && (w.operation.senders() == Party.ALL || w.root != rank);
  }

  /**
   * A slot may be written again once every rank has completed the collective that used it before.
   */
  private boolean refreshSafeUntil(EngineWork w) {
    int worst = Integer.MIN_VALUE;
    for (int k = 0; k < nranks; k++) {
      if (k == place) {
        continue;
      }
      long word = control.getAcquire(done[k]);
      comparison.check(w, k, word);
      int lag = (int) w.seq - (int) word;
      if (lag > worst) {
        worst = lag;
        w.blockedOn = here[k];
      }
    }
    safeUntil = w.seq + Layout.OUTBOX_SLOTS - Math.max(worst, 0);
    return safeUntil >= w.seq;
  }

  private int complete(EngineWork w) {
    if ((w.seq & Layout.DONE_INTERVAL - 1) == 0) {
      comparison.remember(w);
      control.setRelease(done[place], word(w));
    }
    COMPLETED.setRelease(this, w.seq);
    return Step.DONE;
  }

  // ---- low latency

  /** All data that it needs is here. */
  private int finishLowLatency(EngineWork w) {
    w.met();
    if (w.shared) {
      showShare(w);
      return takeShares(w);
    }
    takeSlots(w);
    return complete(w);
  }

  private void takeSlots(EngineWork w) {
    Operation operation = w.operation;
    if (operation.sent() == Shape.NOTHING || !w.receives(rank)) {
      return;
    }
    long from = w.sendStart(rank) * w.type.byteSize();
    if (operation.reducing()) {
      HostBuffer recv = w.recvBuffer();
      foldSlots(w, from, w.count, recv.segment(), recv.offset());
    } else if (operation.senders() == Party.ROOT) {
      copySlot(w, w.root, from, 0);
    } else {
      copySlots(w, from);
    }
  }

  private void copySlots(EngineWork w, long from) {
    long block = w.count * w.type.byteSize();
    for (int k = 0; k < nranks; k++) {
      copySlot(w, k, from, k * block);
    }
  }

  private void copySlot(EngineWork w, int k, long from, long to) {
    HostBuffer recv = w.recvBuffer();
    MemorySegment source = control.memory();
    long offset = slot(k, w.seq) + payloadOffset(w);
    if (k == rank) {
      source = w.sendBuffer().segment();
      offset = w.sendBuffer().offset();
    }
    Copies.copy(
        source, offset + from, recv.segment(), recv.offset() + to, w.count * w.type.byteSize());
  }

  private void foldSlots(
      EngineWork w, long from, long elements, MemorySegment result, long resultOffset) {
    long offset = payloadOffset(w);
    boolean scaled = isScaled(w);
    if (nranks == 1 && !scaled) {
      copySlot(w, rank, from, 0);
      return;
    }
    for (int k = 0; k < nranks; k++) {
      long slot = slot(k, w.seq);
      foldInOffset[k] = slot + offset + from;
      if (scaled) {
        scalars[k] = k == rank ? scalarBits(w) : control.getPlain(slot + Long.BYTES);
      }
    }
    // The others' inputs always lie in the control block.
    HostBuffer send = w.sendBuffer();
    set(foldIn, rank, send.segment());
    foldInOffset[rank] = send.offset() + from;
    set(foldOut, 0, result);
    foldOutOffset[0] = resultOffset;
    kernel(w)
        .fold(
            foldIn,
            foldInOffset,
            nranks,
            foldOut,
            foldOutOffset,
            1,
            elements,
            scaled ? scalars : null,
            scratch);
  }

  // ---- low latency, by shares: whole lines, of the first ranks where there are fewer lines

  /** Bytes of each share but the last. */
  private long shareBytes(EngineWork w) {
    long lines = (payload(w) + Layout.LINES - 1) / Layout.LINES;
    return (lines + nranks - 1) / nranks * Layout.LINES;
  }

  /** Folds this rank's share, if there is one, and shows it. */
  private void showShare(EngineWork w) {
    long share = shareBytes(w);
    long from = place * share;
    long bytes = Math.min(share, payload(w) - from);
    if (bytes > 0) {
      long slot = slot(place, w.seq);
      foldSlots(w, from, bytes / w.type.byteSize(), control.memory(), slot + Layout.SHARE);
      control.setRelease(slot + Layout.SHARE_WORD, word(w));
    }
    w.stage = EngineWork.SHARED;
    w.cursor = 0;
  }

  /** Takes the shares in the order of the ranks, as far as they are shown. */
  private int takeShares(EngineWork w) {
    long expected = word(w);
    long share = shareBytes(w);
    long payload = payload(w);
    HostBuffer recv = w.recvBuffer();
    for (int k = w.cursor; k * share < payload; k++) {
      long slot = slot(k, w.seq);
      if (control.poll(slot + Layout.SHARE_WORD, expected, patience) != expected) {
        w.cursor = k;
        w.blockedOn = here[k];
        return Step.BLOCKED;
      }
      long from = k * share;
      Copies.copy(
          control.memory(),
          slot + Layout.SHARE,
          recv.segment(),
          recv.offset() + from,
          Math.min(share, payload - from));
    }
    return complete(w);
  }

  // ---- for low latency and direct

  /** Writes a reference only where it differs, because of the garbage collector's barrier. */
  @SuppressWarnings("MemorySegmentReferenceEquality")
  private static void set(MemorySegment[] segments, int k, MemorySegment segment) {
    if (segments[k] != segment) {
      segments[k] = segment;
    }
  }

  static FoldKernel kernel(EngineWork w) {
    DataType type = w.type;
    return Kernels.get(type, w.op.kind());
  }

  // ---- direct and staged

  private void resolve(EngineWork w) {
    long longest = 0;
    for (int k = 0; k < nranks; k++) {
      long slot = slot(k, w.seq);
      longest = Math.max(longest, control.getPlain(slot + Layout.LONGEST));
      scalars[k] = control.getPlain(slot + Layout.SCALAR);
    }
    w.longest = longest;
    w.staged = tuning.isStaged() || view.spansProcesses && flags(w) != 0;
    w.piece = 0;
    w.pieceLength = w.staged ? mover.pieceLength(w) : Long.MAX_VALUE;
    for (int k = 0; k < nranks; k++) {
      if (w.staged) {
        in[k] = view.heapOf(here[k]);
        inOffset[k] = view.stagingOf(here[k]);
        out[k] = in[k];
        outOffset[k] = inOffset[k] + Layout.STAGING_BYTES / 2;
      } else {
        resolvePeer(w, k);
      }
    }
    mover.checkBlocks(w);
  }

  private void resolvePeer(EngineWork w, int k) {
    long slot = slot(k, w.seq);
    int index = (int) w.seq & Layout.OUTBOX_SLOTS - 1;
    inOffset[k] = control.getPlain(slot + Layout.IN_OFFSET);
    outOffset[k] = control.getPlain(slot + Layout.OUT_OFFSET);
    int flags = (int) control.getPlain(slot + Layout.FLAGS);
    in[k] = view.heapOf(here[k]);
    out[k] = in[k];
    if (flags != 0) {
      // Only ranks of one process get here with private memory.
      OwnSegments local = Objects.requireNonNull(view.local(here[k]));
      in[k] = (flags & Layout.PRIVATE_IN) == 0 ? in[k] : local.send[index];
      out[k] = (flags & Layout.PRIVATE_OUT) == 0 ? out[k] : local.recv[index];
    }
  }

  private void arrive(EngineWork w, int next) {
    w.target = ++syncs;
    w.cursor = 0;
    w.stage = next;
    control.setRelease(sync[place], w.target);
  }

  private boolean allArrived(EngineWork w) {
    for (int k = w.cursor; k < nranks; k++) {
      long arrived = control.getAcquire(sync[k]);
      for (int i = patience; arrived < w.target && i > 0; i--) {
        Thread.onSpinWait();
        arrived = control.getAcquire(sync[k]);
      }
      if (arrived < w.target) {
        w.cursor = k;
        w.blockedOn = here[k];
        return false;
      }
    }
    return true;
  }

  // ---- for what reaches other hosts

  /** How many ranks this host has. */
  public int places() {
    return nranks;
  }

  /** This rank's place among them. */
  public int place() {
    return place;
  }

  /** Finds calls that contradict each other where not all ranks look at all others. */
  public Comparison comparison() {
    return comparison;
  }

  /** Moves what goes from one rank of this host to another; see {@link Step}. */
  public int moveHere(EngineWork w) {
    return mover.move(w);
  }

  /** Where the input lies that the rank at a place has shown of a work before its turn. */
  public MemorySegment shown(EngineWork w, int k) {
    return k == place ? w.sendBuffer().segment() : view.heapOf(here[k]);
  }

  /** See {@link #shown}, in bytes. */
  public long shownOffset(EngineWork w, int k) {
    return k == place
        ? w.sendBuffer().offset()
        : control.getPlain(slot(k, w.seq) + Layout.IN_OFFSET);
  }

  /** Where the input of the rank at a place begins, or the current piece of it. */
  public MemorySegment in(int k) {
    return in[k];
  }

  /** See {@link #in}, in bytes. */
  public long inOffset(int k) {
    return inOffset[k];
  }

  /** Where the output of the rank at a place begins, or the current piece of it. */
  public MemorySegment out(int k) {
    return out[k];
  }

  /** See {@link #out}, in bytes. */
  public long outOffset(int k) {
    return outOffset[k];
  }

  /** What the rank at a place scales its input with, as {@link Scalars} writes it. */
  public long scalar(int k) {
    return scalars[k];
  }

  /** Elements of a piece of each block, where it is staged; the same on every rank. */
  public long stagedLength(EngineWork w) {
    return mover.pieceLength(w);
  }

  /** The memory that reductions need besides. */
  public Scratch scratch() {
    return scratch;
  }

  /** Frees what it has taken; when the communicator is closed. */
  public void close() {
    mover.close();
  }
}
