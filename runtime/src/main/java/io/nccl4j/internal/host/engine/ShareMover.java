package io.nccl4j.internal.host.engine;

import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * What one rank moves or reduces in a direct or staged collective, block by block.
 *
 * <p>Direct and staged differ only in where the blocks lie: in the users' buffers at the users'
 * places, or in the staging areas, where block <i>b</i> of the current piece starts at {@code b ·
 * pieceLength} elements.
 */
final class ShareMover extends Padded {
  private static final Logger LOG = LogManager.getLogger(ShareMover.class);
  private static final long SHARE_ALIGNMENT = 128;

  private final CollectiveEngine engine;
  private final RankView view;
  private final ControlBlock control;
  private final int rank;
  private final int place;
  private final int[] here;
  private final int nranks;
  private final @Nullable Outside outside;
  private final Tuning tuning;

  /** Where results are made that are then copied past the caches; null until there are some. */
  private HostHeap.@Nullable Block results;

  /** Whether there was no memory for it. */
  private boolean lacksResults;

  /** Whether the blocks that this rank publishes have memory. */
  private boolean published;

  private final MemorySegment[] outs;
  private final MemorySegment[] ins;
  private final long[] inOffsets;
  private final long[] outOffsets;
  private final MemorySegment[] resultSegment = new MemorySegment[1];
  private final long[] resultOffset = new long[1];

  private MemorySegment source = MemorySegment.NULL;
  private long sourceOffset;
  private MemorySegment target = MemorySegment.NULL;
  private long targetOffset;
  private long bytes;

  ShareMover(CollectiveEngine engine, RankView view, @Nullable Outside outside) {
    this.engine = engine;
    this.view = view;
    this.control = view.control;
    this.rank = view.rank;
    this.place = view.placeOf[rank];
    this.here = view.here;
    this.nranks = here.length;
    this.outside = outside;
    this.tuning = view.tuning;
    outs = new MemorySegment[nranks + REFERENCES];
    ins = new MemorySegment[nranks + REFERENCES];
    inOffsets = new long[nranks + LONGS];
    outOffsets = new long[nranks + LONGS];
  }

  // ---- before the exchange

  /** Elements of this rank's largest block, in or out. */
  long longestBlock(EngineWork w) {
    if (!w.operation.varies()) {
      return w.count;
    }
    long longest = 0;
    boolean sends = w.sends(rank);
    boolean receives = w.receives(rank);
    int blocks = blocks(w);
    for (int b = 0; b < blocks; b++) {
      int k = block(w, b);
      longest = sends ? Math.max(longest, w.sendCount(k)) : longest;
      longest = receives ? Math.max(longest, w.recvCount(k)) : longest;
    }
    return longest;
  }

  /** How many ranks' blocks concern this host: all, unless each rank carries its own elsewhere. */
  private int blocks(EngineWork w) {
    return outside == null || outside.isCarried(w) ? view.nranks : nranks;
  }

  /** Whose block is the {@code b}-th of those. */
  private int block(EngineWork w, int b) {
    return outside == null || outside.isCarried(w) ? b : here[b];
  }

  /** Tells each peer where its block lies, in operations in which only one side knows. */
  void publishBlocks(EngineWork w) {
    if (!w.operation.hasPairCounts()) {
      return;
    }
    if (w.operation.sent() == Shape.VARYING) {
      if (w.sends(rank)) {
        publish(w, w.sendCounts, w.sendDisplacements);
      }
    } else if (w.receives(rank)) {
      publish(w, w.recvCounts, w.recvDisplacements);
    }
  }

  private void publish(EngineWork w, long[] counts, long[] displacements) {
    if (!published) {
      view.heap.populate(control, rank, 0, view.nranks);
      published = true;
    }
    for (int k : here) {
      control.setPlain(control.block(rank, k), displacements[k] * w.type.byteSize());
      control.setPlain(control.block(rank, k) + Long.BYTES, counts[k]);
    }
  }

  /** After the exchange: what a peer sends must be what this rank expects. */
  void checkBlocks(EngineWork w) {
    if (!w.operation.hasPairCounts()) {
      return;
    }
    boolean sends = w.operation.sent() == Shape.VARYING;
    for (int k : here) {
      if (!w.operation.isRooted() || k == w.root) {
        checkBlock(w, k, sends ? w.recvCount(k) : w.count, sends ? "sends to" : "expects of");
      }
    }
  }

  private void checkBlock(EngineWork w, int k, long own, String verb) {
    long theirs = control.getPlain(control.block(k, rank) + Long.BYTES);
    if (theirs != own) {
      throw view.accord.countMismatch(w, k, theirs, own, verb);
    }
  }

  /** Elements per block that fit into a staging area, the same on every rank. */
  long pieceLength(EngineWork w) {
    long half = Layout.STAGING_BYTES / 2;
    long blocks = w.operation.isShared() ? 1 : view.nranks;
    long elements = half / blocks / w.type.byteSize();
    return Math.max(1, elements & -SHARE_ALIGNMENT);
  }

  // ---- staging

  void copyIn(EngineWork w) {
    if (w.sends(rank)) {
      boolean many = w.operation.sent().isMany();
      int blocks = many ? blocks(w) : 1;
      for (int b = 0; b < blocks; b++) {
        int k = many ? block(w, b) : 0;
        stage(w, true, w.sendBuffer(), w.sendStart(k), w.sendCount(k), k);
      }
    }
  }

  void copyOut(EngineWork w) {
    if (w.receives(rank) && !comesFromElsewhere(w)) {
      boolean many = w.operation.received().isMany();
      int blocks = many ? blocks(w) : 1;
      for (int b = 0; b < blocks; b++) {
        int k = many ? block(w, b) : 0;
        stage(w, false, w.recvBuffer(), w.recvStart(k), w.recvCount(k), k);
      }
    }
  }

  /** Whether all that this rank receives comes from another host, straight into its buffer. */
  private boolean comesFromElsewhere(EngineWork w) {
    return outside != null
        && !outside.isCarried(w)
        && w.operation.senders() == Party.ROOT
        && view.placeOf[w.root] < 0;
  }

  /**
   * Moves the current piece of one block between the user's buffer and this rank's staging area.
   */
  private void stage(
      EngineWork w, boolean inwards, HostBuffer buffer, long start, long count, int block) {
    int size = w.type.byteSize();
    long length = Math.min(w.pieceLength, count - w.piece) * size;
    if (length <= 0) {
      return;
    }
    long own = buffer.offset() + (start + w.piece) * size;
    long staged = block * w.pieceLength * size;
    if (inwards) {
      Copies.copy(buffer.segment(), own, engine.in[place], engine.inOffset[place] + staged, length);
    } else {
      Copies.copy(
          engine.out[place], engine.outOffset[place] + staged, buffer.segment(), own, length);
    }
  }

  // ---- moving

  /** Moves the next part of this rank's share; done when all of the current piece is moved. */
  int move(EngineWork w) {
    return (w.operation.reducing() && !isAlone(w) ? fold(w) : copy(w)) ? Step.DONE : Step.MOVED;
  }

  /** Whether there is nothing to reduce: what one rank has is the result. */
  private boolean isAlone(EngineWork w) {
    return nranks == 1 && w.op.kind() != ReduceOp.Kind.PRE_MUL_SUM;
  }

  private boolean fold(EngineWork w) {
    int size = w.type.byteSize();
    boolean scatter = w.operation.sent().isMany();
    long from;
    long to;
    if (scatter) {
      from = 0;
      to = Math.min(w.pieceLength, w.count - w.piece);
    } else {
      long all = Math.min(w.pieceLength, w.count - w.piece);
      from = shareStart(all, rank, size);
      to = shareStart(all, rank + 1, size);
    }
    long at = from + w.position;
    if (at >= to) {
      return true;
    }
    long inBase = (scatter ? scatterStart(w) : 0) + at * size;
    for (int k = 0; k < nranks; k++) {
      ins[k] = engine.in[k];
      inOffsets[k] = engine.inOffset[k] + inBase;
    }
    int targets = foldTargets(w, scatter, at * size);
    HostHeap.Block block = null;
    if (tuning.streams(w.operation, (to - from) * size) && !w.staged) {
      block = results();
    }
    long elements;
    if (block == null) {
      elements = Math.min(TuningTable.FOLD_CHUNK / size, to - at);
      fold(w, outs, outOffsets, targets, elements);
    } else {
      elements = Math.min(TuningTable.STREAM_CHUNK / size, to - at);
      stream(w, block, targets, elements);
    }
    w.position += elements;
    return at + elements >= to;
  }

  private void fold(
      EngineWork w, MemorySegment[] to, long[] toOffsets, int targets, long elements) {
    CollectiveEngine.kernel(w)
        .fold(
            ins,
            inOffsets,
            nranks,
            to,
            toOffsets,
            targets,
            elements,
            w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM ? engine.scalars : null,
            engine.scratch);
  }

  /** Folds into own memory, which the caches hold, and copies that past them. */
  private void stream(EngineWork w, HostHeap.Block block, int targets, long elements) {
    resultSegment[0] = block.segment();
    resultOffset[0] = block.offset();
    fold(w, resultSegment, resultOffset, 1, elements);
    long length = elements * w.type.byteSize();
    for (int k = 0; k < targets; k++) {
      Copies.copyPart(block.segment(), block.offset(), outs[k], outOffsets[k], length, true);
    }
  }

  /** The block that results are made in; null where there is no memory for one. */
  private HostHeap.@Nullable Block results() {
    if (results == null && !lacksResults) {
      try {
        results = view.heap.allocate(view.account, MemoryPurpose.STAGING, TuningTable.STREAM_CHUNK);
      } catch (NcclException e) {
        // It is no failure: results go straight to the outputs then.
        LOG.info("no {} B to make results in: {}", TuningTable.STREAM_CHUNK, e.getMessage());
        lacksResults = true;
      }
    }
    return results;
  }

  /** Frees that block. */
  void close() {
    if (results != null) {
      view.heap.free(results);
      results = null;
      lacksResults = true;
    }
  }

  private int foldTargets(EngineWork w, boolean scatter, long at) {
    if (scatter || w.operation.receivers() == Party.ROOT) {
      int k = scatter ? rank : w.root;
      outs[0] = engine.out[k];
      outOffsets[0] = engine.outOffset[k] + at;
      return 1;
    }
    for (int k = 0; k < nranks; k++) {
      outs[k] = engine.out[k];
      outOffsets[k] = engine.outOffset[k] + at;
    }
    return nranks;
  }

  /** Where, in bytes, this rank's block starts in every rank's input. */
  private long scatterStart(EngineWork w) {
    long start = w.staged ? rank * w.pieceLength : w.sendStart(rank);
    return start * w.type.byteSize();
  }

  /**
   * First element of a rank's share; shares start at cache-line boundaries of the element index.
   */
  private long shareStart(long all, int k, int size) {
    long unit = SHARE_ALIGNMENT / size;
    long share = (all + nranks - 1) / nranks;
    share = (share + unit - 1) / unit * unit;
    return Math.min(all, k * share);
  }

  private boolean copy(EngineWork w) {
    int items = items(w);
    while (w.item < items) {
      find(w, (place + w.item) % items);
      long rest = bytes - w.position;
      if (rest > 0) {
        long length = Math.min(rest, Copies.STEP);
        Copies.copyPart(
            source,
            sourceOffset + w.position,
            target,
            targetOffset + w.position,
            length,
            tuning.streams(w.operation, bytes));
        w.position += length;
        if (length < rest) {
          return false;
        }
      }
      w.item++;
      w.position = 0;
    }
    return true;
  }

  /** How many blocks this rank moves: one if the root has a block for each rank. */
  private int items(EngineWork w) {
    if (w.operation.isRooted() && !w.operation.isShared()) {
      return view.placeOf[w.root] < 0 ? 0 : 1;
    }
    return nranks;
  }

  /** Sets source, target and size of one block that this rank moves. */
  private void find(EngineWork w, int item) {
    if (w.operation.reducing()) {
      set(rank, 0, rank, 0, length(w, w.count));
    } else if (w.operation.isShared()) {
      int size = w.type.byteSize();
      long all = Math.min(w.pieceLength, w.count - w.piece);
      long start = shareStart(all, rank, size) * size;
      set(w.root, start, item, start, shareStart(all, rank + 1, size) * size - start);
    } else if (w.operation.receivers() == Party.ROOT) {
      push(w);
    } else {
      pull(w, w.operation.senders() == Party.ROOT ? view.placeOf[w.root] : item);
    }
  }

  /**
   * A block of the rank at place {@code from}, in its input for this rank, to this rank's output.
   */
  private void pull(EngineWork w, int from) {
    int size = w.type.byteSize();
    boolean many = w.operation.sent().isMany();
    int sender = here[from];
    long source;
    long target;
    if (w.staged) {
      source = many ? rank * pieceBytes(w) : 0;
      target = w.operation.received().isMany() ? sender * pieceBytes(w) : 0;
    } else {
      // What varies, only its sender knows.
      boolean told = w.operation.sent() == Shape.VARYING;
      source = told ? control.getPlain(control.block(sender, rank)) : w.sendStart(rank) * size;
      target = w.recvStart(sender) * size;
    }
    set(from, source, place, target, length(w, w.recvCount(sender)));
  }

  /** This rank's block to its place in the root's output. */
  private void push(EngineWork w) {
    long target;
    if (w.staged) {
      target = rank * pieceBytes(w);
    } else {
      boolean told = w.operation.received() == Shape.VARYING;
      target =
          told
              ? control.getPlain(control.block(w.root, rank))
              : w.recvStart(rank) * w.type.byteSize();
    }
    set(place, 0, view.placeOf[w.root], target, length(w, w.count));
  }

  private static long pieceBytes(EngineWork w) {
    return w.staged ? w.pieceLength * w.type.byteSize() : 0;
  }

  private static long length(EngineWork w, long count) {
    return Math.min(w.pieceLength, count - w.piece) * w.type.byteSize();
  }

  private void set(int from, long fromOffset, int to, long toOffset, long length) {
    source = engine.in[from];
    sourceOffset = engine.inOffset[from] + fromOffset;
    target = engine.out[to];
    targetOffset = engine.outOffset[to] + toOffset;
    bytes = length;
  }
}
