package io.nccl4j.internal.host;

import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.schedule.OpKind;
import io.nccl4j.internal.schedule.Padded;
import java.lang.foreign.MemorySegment;

/**
 * What one rank moves or reduces in a direct or staged collective, block by block.
 *
 * <p>Direct and staged differ only in where the blocks lie: in the users' buffers at the users'
 * places, or in the staging areas, where block <i>b</i> of the current piece starts at {@code b ·
 * pieceLength} elements.
 */
final class ShareMover extends Padded {
  private static final long FOLD_BYTES = 1 << 20;
  private static final long SHARE_ALIGNMENT = 128;

  private final CollectiveEngine engine;
  private final ControlBlock control;
  private final int rank;
  private final int nranks;

  /** Whether the blocks that this rank publishes have memory. */
  private boolean published;

  private final MemorySegment[] outs;
  private final MemorySegment[] ins;
  private final long[] inOffsets;
  private final long[] outOffsets;

  private MemorySegment source = MemorySegment.NULL;
  private long sourceOffset;
  private MemorySegment target = MemorySegment.NULL;
  private long targetOffset;
  private long bytes;

  ShareMover(CollectiveEngine engine, ControlBlock control, int rank, int nranks) {
    this.engine = engine;
    this.control = control;
    this.rank = rank;
    this.nranks = nranks;
    outs = new MemorySegment[nranks + REFERENCES];
    ins = new MemorySegment[nranks + REFERENCES];
    inOffsets = new long[nranks + LONGS];
    outOffsets = new long[nranks + LONGS];
  }

  // ---- before the exchange

  /** Elements of this rank's largest block, in or out. */
  long longestBlock(HostWork w) {
    long longest = w.count;
    if (w.kind.hasCountPerRank()) {
      longest =
          Math.max(
              longest(w.sendCounts, hasSendCounts(w)), longest(w.recvCounts, hasRecvCounts(w)));
      longest = Math.max(longest, ownCount(w));
    }
    return longest;
  }

  private static long ownCount(HostWork w) {
    return switch (w.kind) {
      case GATHER_V, SCATTER_V -> w.count;
      default -> 0;
    };
  }

  private boolean hasSendCounts(HostWork w) {
    return switch (w.kind) {
      case ALL_TO_ALL_V -> true;
      case SCATTER_V -> w.root == rank;
      default -> false;
    };
  }

  private boolean hasRecvCounts(HostWork w) {
    return switch (w.kind) {
      case ALL_TO_ALL_V, ALL_GATHER_V, REDUCE_SCATTER_V -> true;
      case GATHER_V -> w.root == rank;
      default -> false;
    };
  }

  private long longest(long[] counts, boolean used) {
    long longest = 0;
    for (int k = 0; used && k < nranks; k++) {
      longest = Math.max(longest, counts[k]);
    }
    return longest;
  }

  /** Tells each peer where its block lies, in operations in which only one side knows. */
  void publishBlocks(HostWork w) {
    switch (w.kind) {
      case ALL_TO_ALL_V -> publish(w, w.sendCounts, w.sendDisplacements);
      case SCATTER_V -> {
        if (w.root == rank) {
          publish(w, w.sendCounts, w.sendDisplacements);
        }
      }
      case GATHER_V -> {
        if (w.root == rank) {
          publish(w, w.recvCounts, w.recvDisplacements);
        }
      }
      default -> {}
    }
  }

  private void publish(HostWork w, long[] counts, long[] displacements) {
    if (!published) {
      control.populate(rank);
      published = true;
    }
    for (int k = 0; k < nranks; k++) {
      control.setPlain(control.block(rank, k), displacements[k] * w.type.byteSize());
      control.setPlain(control.block(rank, k) + Long.BYTES, counts[k]);
    }
  }

  /** After the exchange: what a peer sends must be what this rank expects. */
  void checkBlocks(HostWork w) {
    switch (w.kind) {
      case ALL_TO_ALL_V -> {
        for (int k = 0; k < nranks; k++) {
          checkBlock(w, k, w.recvCounts[k], "sends to");
        }
      }
      case SCATTER_V -> checkBlock(w, w.root, w.count, "sends to");
      case GATHER_V -> checkBlock(w, w.root, w.count, "expects of");
      default -> {}
    }
  }

  private void checkBlock(HostWork w, int k, long own, String verb) {
    long theirs = control.getPlain(control.block(k, rank) + Long.BYTES);
    if (theirs != own) {
      throw engine.communicator().countMismatch(w, k, theirs, own, verb);
    }
  }

  /** Elements per block that fit into a staging area, the same on every rank. */
  long pieceLength(HostWork w) {
    long half = CollectiveEngine.STAGING_BYTES / 2;
    long blocks =
        switch (w.kind) {
          case ALL_REDUCE, REDUCE, BROADCAST -> 1;
          default -> nranks;
        };
    long elements = half / blocks / w.type.byteSize();
    return Math.max(1, elements & -SHARE_ALIGNMENT);
  }

  // ---- staging

  void copyIn(HostWork w) {
    switch (w.kind) {
      case REDUCE_SCATTER, ALL_TO_ALL ->
          stageBlocks(w, true, w.sendBuffer(), w.sendCounts, w.sendDisplacements);
      case REDUCE_SCATTER_V ->
          stageBlocks(w, true, w.sendBuffer(), w.recvCounts, w.recvDisplacements);
      case ALL_TO_ALL_V -> stageBlocks(w, true, w.sendBuffer(), w.sendCounts, w.sendDisplacements);
      case SCATTER, SCATTER_V -> {
        if (w.root == rank) {
          stageBlocks(w, true, w.sendBuffer(), w.sendCounts, w.sendDisplacements);
        }
      }
      case BROADCAST -> {
        if (w.root == rank) {
          stage(w, true, w.sendBuffer(), 0, w.count, 0);
        }
      }
      default -> stage(w, true, w.sendBuffer(), 0, w.count, 0);
    }
  }

  void copyOut(HostWork w) {
    switch (w.kind) {
      case ALL_GATHER, ALL_TO_ALL, ALL_GATHER_V, ALL_TO_ALL_V ->
          stageBlocks(w, false, w.recvBuffer(), w.recvCounts, w.recvDisplacements);
      case GATHER, GATHER_V -> {
        if (w.root == rank) {
          stageBlocks(w, false, w.recvBuffer(), w.recvCounts, w.recvDisplacements);
        }
      }
      case REDUCE -> {
        if (w.root == rank) {
          stage(w, false, w.recvBuffer(), 0, w.count, 0);
        }
      }
      default -> stage(w, false, w.recvBuffer(), 0, w.count, 0);
    }
  }

  private void stageBlocks(
      HostWork w, boolean inwards, HostBuffer buffer, long[] counts, long[] displacements) {
    boolean vector = w.kind.hasCountPerRank();
    long start = 0;
    for (int b = 0; b < nranks; b++) {
      long count = vector ? counts[b] : w.count;
      if (vector && w.kind != OpKind.REDUCE_SCATTER_V) {
        start = displacements[b];
      }
      stage(w, inwards, buffer, start, count, b);
      start += count;
    }
  }

  /**
   * Moves the current piece of one block between the user's buffer and this rank's staging area.
   */
  private void stage(
      HostWork w, boolean inwards, HostBuffer buffer, long start, long count, int block) {
    int size = w.type.byteSize();
    long length = Math.min(w.pieceLength, count - w.piece) * size;
    if (length <= 0) {
      return;
    }
    long own = buffer.offset() + (start + w.piece) * size;
    long staged = block * w.pieceLength * size;
    if (inwards) {
      Copies.copy(buffer.segment(), own, engine.in[rank], engine.inOffset[rank] + staged, length);
    } else {
      Copies.copy(engine.out[rank], engine.outOffset[rank] + staged, buffer.segment(), own, length);
    }
  }

  // ---- moving

  /** Moves the next part of this rank's share; true when all of the current piece is moved. */
  boolean move(HostWork w) {
    return w.kind.isReducing() && !isAlone(w) ? fold(w) : copy(w);
  }

  /** Whether there is nothing to reduce: what one rank has is the result. */
  private boolean isAlone(HostWork w) {
    return nranks == 1 && w.op.kind() != ReduceOp.Kind.PRE_MUL_SUM;
  }

  private boolean fold(HostWork w) {
    int size = w.type.byteSize();
    boolean scatter =
        switch (w.kind) {
          case REDUCE_SCATTER, REDUCE_SCATTER_V -> true;
          default -> false;
        };
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
    long elements = Math.min(FOLD_BYTES / size, to - at);
    if (elements <= 0) {
      return true;
    }
    long inBase = (scatter ? scatterStart(w) : 0) + at * size;
    for (int k = 0; k < nranks; k++) {
      ins[k] = engine.in[k];
      inOffsets[k] = engine.inOffset[k] + inBase;
    }
    int targets = foldTargets(w, scatter, at * size);
    CollectiveEngine.kernel(w)
        .fold(
            ins,
            inOffsets,
            nranks,
            outs,
            outOffsets,
            targets,
            elements,
            w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM ? engine.scalars : null,
            engine.scratch);
    w.position += elements;
    return at + elements >= to;
  }

  private int foldTargets(HostWork w, boolean scatter, long at) {
    if (scatter || w.kind == OpKind.REDUCE) {
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
  private long scatterStart(HostWork w) {
    int size = w.type.byteSize();
    if (w.staged) {
      return rank * w.pieceLength * size;
    }
    if (w.kind == OpKind.REDUCE_SCATTER) {
      return rank * w.count * size;
    }
    long before = 0;
    for (int k = 0; k < rank; k++) {
      before += w.recvCounts[k];
    }
    return before * size;
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

  private boolean copy(HostWork w) {
    int items = items(w);
    while (w.item < items) {
      block(w, (rank + w.item) % items);
      long rest = bytes - w.position;
      if (rest > 0) {
        long length = Math.min(rest, Copies.STEP);
        Copies.copyPart(
            source, sourceOffset + w.position, target, targetOffset + w.position, length, bytes);
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

  private int items(HostWork w) {
    return switch (w.kind) {
      case GATHER, GATHER_V, SCATTER, SCATTER_V -> 1;
      default -> nranks;
    };
  }

  /** Sets source, target and size of one block that this rank moves. */
  private void block(HostWork w, int item) {
    int size = w.type.byteSize();
    switch (w.kind) {
      case BROADCAST -> {
        long all = Math.min(w.pieceLength, w.count - w.piece);
        long start = shareStart(all, rank, size) * size;
        set(w.root, start, item, start, shareStart(all, rank + 1, size) * size - start);
      }
      case ALL_GATHER -> pull(w, item, 0, item * w.count * size, w.count);
      case ALL_GATHER_V -> pull(w, item, 0, w.recvDisplacements[item] * size, w.recvCounts[item]);
      case ALL_TO_ALL -> pull(w, item, rank * w.count * size, item * w.count * size, w.count);
      case ALL_TO_ALL_V ->
          pull(
              w,
              item,
              control.getPlain(control.block(item, rank)),
              w.recvDisplacements[item] * size,
              w.recvCounts[item]);
      case ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V ->
          set(rank, 0, rank, 0, length(w, w.count));
      case GATHER -> push(w, rank * w.count * size);
      case GATHER_V -> push(w, control.getPlain(control.block(w.root, rank)));
      case SCATTER -> pullOne(w, rank * w.count * size);
      default -> pullOne(w, control.getPlain(control.block(w.root, rank)));
    }
  }

  /** A block of rank {@code from}, in its input for this rank, to this rank's output. */
  private void pull(HostWork w, int from, long directSource, long directTarget, long count) {
    long piece = pieceBytes(w);
    boolean manyIn =
        switch (w.kind) {
          case ALL_TO_ALL, ALL_TO_ALL_V -> true;
          default -> false;
        };
    long stagedSource = manyIn ? rank * piece : 0;
    set(
        from,
        w.staged ? stagedSource : directSource,
        rank,
        w.staged ? from * piece : directTarget,
        length(w, count));
  }

  private void pullOne(HostWork w, long directSource) {
    set(w.root, w.staged ? rank * pieceBytes(w) : directSource, rank, 0, length(w, w.count));
  }

  private void push(HostWork w, long directTarget) {
    set(rank, 0, w.root, w.staged ? rank * pieceBytes(w) : directTarget, length(w, w.count));
  }

  private static long pieceBytes(HostWork w) {
    return w.staged ? w.pieceLength * w.type.byteSize() : 0;
  }

  private static long length(HostWork w, long count) {
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
