package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Carries out one rank's sends and receives. Each ordered pair of ranks has a lane of slots,
 * numbered by its own sequence; operations of one lane begin in order, different lanes
 * independently.
 *
 * <p>Small messages travel in the slot (<b>eager</b>): the sender is done at once. Larger ones
 * leave their address in the slot and the receiver <b>pulls</b> and acknowledges. When the sender's
 * buffer is private to its process, it is <b>chunked</b> through two pieces of the sender's heap.
 */
public final class LaneEngine extends Padded {
  private static final VarHandle COUNTER = MethodHandles.arrayElementVarHandle(long[].class);

  private final RankView view;
  private final ControlBlock control;
  private final int rank;

  /**
   * Per peer: the last message that another one may follow, for one that is sent in chunks when it
   * is done, otherwise when it is shown. Released by whoever moves one and acquired by the next,
   * which may lie on another stream with another owner.
   */
  private final long[] sent;

  /** The same of what was received: the last message that is done. */
  private final long[] received;

  /** Per peer: the last message it was seen to have acknowledged. */
  private final long[] acknowledged;

  private final long[] chunksFilled;
  private final long[] chunksTaken;
  private final HostHeap.@Nullable Block[] bounce;
  private final OwnSegments own;
  private final Tuning tuning;

  /** Bytes up to which a message travels in its slot. */
  private final long eager;

  public LaneEngine(RankView view) {
    this.view = view;
    this.control = view.control;
    this.rank = view.rank;
    this.tuning = view.tuning;
    this.eager = tuning.inline(Operation.SEND);
    int nranks = view.nranks;
    own = Objects.requireNonNull(view.local(rank));
    sent = new long[nranks + LONGS];
    received = new long[nranks + LONGS];
    acknowledged = new long[nranks + LONGS];
    chunksFilled = new long[nranks + LONGS];
    chunksTaken = new long[nranks + LONGS];
    bounce = new HostHeap.Block[nranks];
  }

  /**
   * Gets on with the work until it is complete or must wait.
   *
   * @param patience how often to look for a message before it is said to be waiting
   */
  public int step(EngineWork w, int patience) {
    return w.operation == Operation.SEND ? send(w) : receive(w, patience);
  }

  private static long slotOf(long lane, long seq) {
    return lane + (seq & Layout.LANE_SLOTS - 1) * Layout.LANE_SLOT_BYTES;
  }

  private static int refOf(int peer, long seq) {
    return peer * Layout.LANE_SLOTS + (int) (seq & Layout.LANE_SLOTS - 1);
  }

  private static long word(EngineWork w) {
    return (long) w.signature << 32 | w.seq & 0xffffffffL;
  }

  private static long bytes(EngineWork w) {
    return w.count * w.type.byteSize();
  }

  // ---- sending

  private int send(EngineWork w) {
    int peer = w.root;
    w.blockedOn = peer;
    if (w.stage == EngineWork.QUEUED) {
      if (!isNext(w, peer)) {
        return Step.DEPENDS;
      }
      if (w.seq == 1) {
        view.heap.populate(control, rank, peer, 1);
      }
      if (!hasSlot(w.seq, peer)) {
        return Step.BLOCKED;
      }
      post(w, peer);
    }
    if (w.stage == EngineWork.SHOWN) {
      return Step.DONE;
    }
    if (w.staged) {
      return fillChunks(w, peer);
    }
    return control.getAcquire(control.ack(rank, peer)) < w.seq ? Step.BLOCKED : Step.DONE;
  }

  private boolean isNext(EngineWork w, int peer) {
    return (long) COUNTER.getAcquire(sent, peer) + 1 == w.seq;
  }

  /**
   * Shows a message to its receiver before its turn. Its data is there, in memory that all ranks
   * reach.
   *
   * @return false if that must wait
   */
  public boolean sendEarly(EngineWork w) {
    int peer = w.root;
    boolean isWhole = isEager(w) || !tuning.isStaged();
    if (w.seq == 1 || !isWhole || !isNext(w, peer) || !hasSlot(w.seq, peer)) {
      return false;
    }
    post(w, peer);
    return true;
  }

  /** Whether it is a message that travels in its slot. */
  public boolean isEager(EngineWork w) {
    return bytes(w) <= eager;
  }

  /**
   * Whether a slot is free. The peer's word is looked at only when what it last said is not enough.
   */
  private boolean hasSlot(long seq, int peer) {
    if (seq - acknowledged[peer] <= Layout.LANE_SLOTS) {
      return true;
    }
    acknowledged[peer] = control.getAcquire(control.ack(rank, peer));
    return seq - acknowledged[peer] <= Layout.LANE_SLOTS;
  }

  /** Shows a message; there is a slot for it. The next one may follow unless it is chunked. */
  private void post(EngineWork w, int peer) {
    long slot = slotOf(control.lane(rank, peer), w.seq);
    HostBuffer buffer = w.sendBuffer();
    boolean isEager = isEager(w);
    w.stage = isEager ? EngineWork.SHOWN : EngineWork.POSTED;
    w.staged = false;
    if (isEager) {
      Copies.copy(buffer.segment(), buffer.offset(), control.memory(), slot + Long.BYTES, bytes(w));
    } else {
      boolean local = view.local(peer) != null;
      // An empty message has no chunk whose arrival could be seen.
      w.staged = bytes(w) > 0 && (tuning.isStaged() || !local && !buffer.isShared());
      w.position = 0;
      if (w.staged) {
        control.setPlain(slot + Layout.LANE_OFFSET, bounce(peer).offset());
        control.setPlain(slot + Layout.LANE_MODE, Layout.CHUNKED);
      } else {
        own.sent[refOf(peer, w.seq)] = buffer.segment();
        control.setPlain(slot + Layout.LANE_OFFSET, buffer.offset());
        control.setPlain(slot + Layout.LANE_MODE, Layout.PULLED);
      }
    }
    control.setRelease(slot, word(w));
    if (!w.staged) {
      COUNTER.setRelease(sent, peer, w.seq);
    }
  }

  private HostHeap.Block bounce(int peer) {
    HostHeap.Block block = bounce[peer];
    if (block == null) {
      block = view.heap.allocate(view.account, MemoryPurpose.MESSAGE, Layout.MESSAGE_BYTES);
      bounce[peer] = block;
    }
    return block;
  }

  private int fillChunks(EngineWork w, int peer) {
    HostBuffer buffer = w.sendBuffer();
    HostHeap.Block block = bounce(peer);
    boolean moved = false;
    long taken = control.getAcquire(control.taken(rank, peer));
    while (w.position < bytes(w)) {
      if (chunksFilled[peer] - taken == 2) {
        return moved ? Step.MOVED : Step.BLOCKED;
      }
      long length = Math.min(Layout.CHUNK_BYTES, bytes(w) - w.position);
      long to = block.offset() + (chunksFilled[peer] & 1) * Layout.CHUNK_BYTES;
      Copies.copy(buffer.segment(), buffer.offset() + w.position, block.segment(), to, length);
      w.position += length;
      control.setRelease(control.filled(rank, peer), ++chunksFilled[peer]);
      moved = true;
    }
    if (control.getAcquire(control.ack(rank, peer)) < w.seq) {
      return moved ? Step.MOVED : Step.BLOCKED;
    }
    COUNTER.setRelease(sent, peer, w.seq);
    return Step.DONE;
  }

  // ---- receiving

  private int receive(EngineWork w, int patience) {
    int peer = w.root;
    w.blockedOn = peer;
    if (w.stage == EngineWork.QUEUED) {
      if ((long) COUNTER.getAcquire(received, peer) + 1 != w.seq) {
        return Step.DEPENDS;
      }
      if (w.seq == 1) {
        view.heap.populate(control, peer, rank, 1);
      }
      w.stage = EngineWork.POSTED;
    }
    long slot = slotOf(control.lane(peer, rank), w.seq);
    if (w.stage == EngineWork.POSTED) {
      long found = control.poll(slot, word(w), patience);
      if (found != word(w)) {
        if ((int) found == (int) w.seq) {
          throw view.accord.mismatch(w, peer);
        }
        return Step.BLOCKED;
      }
      if (isEager(w)) {
        HostBuffer buffer = w.recvBuffer();
        Copies.copy(
            control.memory(), slot + Long.BYTES, buffer.segment(), buffer.offset(), bytes(w));
        return finishReceive(w, peer, (w.seq & Layout.ACK_INTERVAL - 1) == 0);
      }
      w.staged = control.getPlain(slot + Layout.LANE_MODE) == Layout.CHUNKED;
      w.position = 0;
      w.stage = EngineWork.MOVE;
    }
    return w.staged ? takeChunks(w, peer, slot) : pull(w, peer, slot);
  }

  private int pull(EngineWork w, int peer, long slot) {
    Accord accord = view.accord;
    if (!accord.isGoodForAll()) {
      return Step.MOVED;
    }
    HostBuffer buffer = w.recvBuffer();
    long length = Math.min(Copies.STEP, bytes(w) - w.position);
    OwnSegments local = view.local(peer);
    MemorySegment source = local == null ? view.heapOf(peer) : local.sent[refOf(rank, w.seq)];
    long from = control.getPlain(slot + Layout.LANE_OFFSET) + w.position;
    Copies.copyPart(
        source,
        from,
        buffer.segment(),
        buffer.offset() + w.position,
        length,
        tuning.streams(Operation.SEND, bytes(w)));
    w.position += length;
    // A sender that has failed may have changed what was read.
    return w.position < bytes(w) || !accord.isGoodForAll()
        ? Step.MOVED
        : finishReceive(w, peer, true);
  }

  private int takeChunks(EngineWork w, int peer, long slot) {
    HostBuffer buffer = w.recvBuffer();
    long filled = control.getAcquire(control.filled(peer, rank));
    if (chunksTaken[peer] == filled) {
      return Step.BLOCKED;
    }
    long length = Math.min(Layout.CHUNK_BYTES, bytes(w) - w.position);
    long from =
        control.getPlain(slot + Layout.LANE_OFFSET) + (chunksTaken[peer] & 1) * Layout.CHUNK_BYTES;
    Copies.copy(view.heapOf(peer), from, buffer.segment(), buffer.offset() + w.position, length);
    w.position += length;
    control.setRelease(control.taken(peer, rank), ++chunksTaken[peer]);
    return w.position < bytes(w) ? Step.MOVED : finishReceive(w, peer, true);
  }

  private int finishReceive(EngineWork w, int peer, boolean acknowledge) {
    if (acknowledge) {
      control.setRelease(control.ack(peer, rank), w.seq);
    }
    COUNTER.setRelease(received, peer, w.seq);
    return Step.DONE;
  }

  /** Frees what chunked sends took; when the communicator is closed. */
  public void close() {
    for (HostHeap.Block block : bounce) {
      if (block != null) {
        view.heap.free(block, view.accord::peersAreQuiet);
      }
    }
  }
}
