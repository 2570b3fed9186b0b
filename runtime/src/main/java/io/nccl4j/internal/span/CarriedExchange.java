package io.nccl4j.internal.span;

import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.kernel.Kernels;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * A collective whose data the leader of each host carries for all its ranks, a window of a block
 * after the other, a few at a time. A leader sends what its ranks contribute to the leaders whose
 * ranks need it; what it has got it folds, in the order of the ranks, or copies, straight from and
 * into its ranks' buffers.
 */
final class CarriedExchange {
  private static final int DEPTH = 4;
  private static final long MOST_WINDOW_BYTES = 512 << 10;
  private static final long LEAST_WINDOW_BYTES = 4 << 10;
  private static final long ALL_WINDOWS_BYTES = 2 << 20;
  private static final int ALL = -1;

  private final Wire wire;
  private final Hosts hosts;
  private final int host;
  private final int nranks;
  private final long windowBytes;
  private final Wire.Frames scratch;
  private final Wire.Frames scalarRoom;
  private final Window[] windows = new Window[DEPTH];
  private final long[] scalars;
  private final Transfer[] scalarTransfers;
  private final MemorySegment[] ins;
  private final long[] inOffsets;
  private final MemorySegment[] outs;
  private final long[] outOffsets;

  // Where the current collective is.
  private long begun;
  private long begunPiece;
  private int scalarsUnderWay;
  private long issued;
  private long finished;
  private boolean isOut;
  private boolean isStaged;
  private long piece;
  private long pieceLength;
  private long end;
  private int block;
  private int blocks;
  private long at;

  /** A range of one block on its way. */
  private static final class Window {
    private final Transfer[] transfers;
    private int underWay;
    private int block;
    private long at;
    private long inPiece;
    private long elements;

    /** Whose input it takes, or {@link #ALL}; which hosts need it, or {@link #ALL}. */
    private int contributor;

    private int needing;

    /** How many of its sends and receives have begun. */
    private int sends;

    private int receives;

    private Window(int most) {
      transfers = new Transfer[most];
    }
  }

  CarriedExchange(Span span, Wire wire, Hosts hosts, int rank) {
    this.wire = wire;
    this.hosts = hosts;
    host = hosts.of(rank);
    nranks = hosts.nranks();
    int here = hosts.size(host);
    int elsewhere = nranks - here;
    windowBytes =
        Math.clamp(
            Long.highestOneBit(ALL_WINDOWS_BYTES / nranks), LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES);
    scratch = span.memory((long) DEPTH * elsewhere * windowBytes);
    scalarRoom = span.memory((long) nranks * Long.BYTES);
    for (int i = 0; i < DEPTH; i++) {
      windows[i] = new Window(here * (hosts.count() - 1) + elsewhere);
    }
    scalars = new long[nranks];
    scalarTransfers = new Transfer[2 * hosts.count()];
    ins = new MemorySegment[nranks];
    inOffsets = new long[nranks];
    outs = new MemorySegment[here];
    outOffsets = new long[here];
  }

  /** As {@link io.nccl4j.internal.host.engine.Outside#move}, by the leader. */
  int step(EngineWork w, CollectiveEngine engine, long from, boolean staged) {
    if (begun != w.seq || begunPiece != from) {
      begin(w, engine, from, staged);
    }
    boolean moved = false;
    while (!isOut && issued - finished < DEPTH) {
      find(windows[(int) issued % DEPTH], w);
      issued++;
      next(w);
    }
    if (!haveScalars(w, engine)) {
      return Step.BLOCKED;
    }
    boolean inOrder = true;
    for (long i = finished; i < issued; i++) {
      Window window = windows[(int) i % DEPTH];
      // What follows may go only when all of this has begun: peers count.
      inOrder = inOrder && issue(window, w, engine, (int) i % DEPTH);
      moved |= advance(window, w);
      if (i == finished && inOrder && window.underWay == 0) {
        finish(window, w, engine, (int) i % DEPTH);
        finished++;
        moved = true;
      }
    }
    return isOut && finished == issued ? Step.DONE : moved ? Step.MOVED : Step.BLOCKED;
  }

  /** The direction in which no data goes hears at least what is called. */
  private void mention(EngineWork w) {
    int root = hosts.of(w.root);
    boolean toRoot = w.operation.senders() == Party.ROOT;
    for (int h = 0; h < hosts.count(); h++) {
      if (h != host && (toRoot ? h == root : host == root)) {
        wire.mention(hosts.leader(h), w);
      }
    }
  }

  // ---- which windows there are: the same on every host

  private void begin(EngineWork w, CollectiveEngine engine, long from, boolean staged) {
    boolean first = begun != w.seq;
    begun = w.seq;
    begunPiece = from;
    issued = 0;
    finished = 0;
    blocks = w.operation.sent().isMany() || w.operation.received().isMany() ? nranks : 1;
    long longest = 0;
    for (int b = 0; b < blocks; b++) {
      longest = Math.max(longest, length(w, b));
    }
    pieceLength = engine.stagedLength(w);
    isStaged = staged;
    piece = from;
    end = staged ? Math.min(longest, from + pieceLength) : longest;
    block = 0;
    at = from;
    // Even if there is nothing to move, leaders meet.
    isOut = longest > 0 && piece >= end;
    if (longest > 0) {
      skipEmpty(w);
    }
    if (first && w.operation.isRooted()) {
      mention(w);
    }
    if (first && w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      exchangeScalars(w, engine);
    }
  }

  private static long length(EngineWork w, int b) {
    return w.operation.sent() == Shape.VARYING ? w.sendCounts[b] : w.count;
  }

  private long windowEnd(EngineWork w) {
    long most = Math.max(1, windowBytes / w.type.byteSize());
    return Math.min(Math.min(at + most, piece + pieceLength), length(w, block));
  }

  private void next(EngineWork w) {
    if (end == 0) {
      isOut = true;
      return;
    }
    at = windowEnd(w);
    skipEmpty(w);
  }

  private void skipEmpty(EngineWork w) {
    while (!isOut && at >= Math.min(piece + pieceLength, length(w, block))) {
      block++;
      if (block == blocks) {
        block = 0;
        piece += pieceLength;
        isOut = piece >= end;
      }
      at = piece;
    }
  }

  private void find(Window window, EngineWork w) {
    window.block = block;
    window.at = at;
    window.inPiece = at - piece;
    window.elements = end == 0 ? 0 : windowEnd(w) - at;
    window.underWay = 0;
    window.sends = 0;
    window.receives = 0;
    boolean moves = !w.operation.reducing();
    window.contributor =
        w.operation.senders() == Party.ROOT
            ? w.root
            : moves && w.operation.received() == Shape.EACH ? block : ALL;
    window.needing =
        w.operation.receivers() == Party.ROOT
            ? hosts.of(w.root)
            : w.operation.reducing() && w.operation.sent().isMany() ? hosts.of(block) : ALL;
    if (end == 0) {
      window.contributor = ALL;
      window.needing = ALL;
    }
  }

  // ---- what is sent and received

  /** Begins what has not begun; false if that must wait. */
  private boolean issue(Window window, EngineWork w, CollectiveEngine engine, int slot) {
    return issueReceives(window, w, engine, slot) & issueSends(window, w, engine);
  }

  private boolean isNeeded(Window window, int byHost) {
    return window.needing == ALL || window.needing == byHost;
  }

  /** How many ranks of a host contribute. */
  private int contributors(Window window, int of) {
    if (window.elements == 0) {
      return 1;
    }
    return window.contributor == ALL ? hosts.size(of) : hosts.of(window.contributor) == of ? 1 : 0;
  }

  /** The place of the {@code i}-th of them. */
  private int contributor(Window window, int i) {
    return window.contributor == ALL ? i : hosts.place(window.contributor);
  }

  private boolean issueReceives(Window window, EngineWork w, CollectiveEngine engine, int slot) {
    if (!isNeeded(window, host)) {
      return true;
    }
    int number = 0;
    for (int h = 0; h < hosts.count(); h++) {
      int count = h == host ? 0 : contributors(window, h);
      for (int i = 0; i < count; i++, number++) {
        if (number < window.receives) {
          continue;
        }
        if (!wire.canReceive(hosts.leader(h), Wire.COLLECTIVES)) {
          return false;
        }
        Transfer t = wire.nextReceive(hosts.leader(h), Wire.COLLECTIVES);
        if (w.operation.reducing() || window.elements == 0) {
          t.memory = scratch.segment();
          t.offset = scratchOffset(slot, number);
        } else {
          t.memory = engine.out(0);
          t.offset = engine.outOffset(0) + outStart(window, w);
        }
        begin(window, t, w);
        window.receives++;
      }
    }
    return true;
  }

  private boolean issueSends(Window window, EngineWork w, CollectiveEngine engine) {
    int count = contributors(window, host);
    int number = 0;
    for (int h = 0; h < hosts.count() && count > 0; h++) {
      if (h == host || !isNeeded(window, h)) {
        continue;
      }
      for (int i = 0; i < count; i++, number++) {
        if (number < window.sends) {
          continue;
        }
        if (!wire.canSend(hosts.leader(h), Wire.COLLECTIVES)) {
          return false;
        }
        Transfer t = wire.nextSend(hosts.leader(h), Wire.COLLECTIVES);
        if (window.elements == 0) {
          t.memory = scratch.segment();
          t.offset = scratch.offset();
        } else {
          int place = contributor(window, i);
          t.memory = engine.in(place);
          t.offset = engine.inOffset(place) + inStart(window, w);
        }
        begin(window, t, w);
        window.sends++;
      }
    }
    return true;
  }

  private void begin(Window window, Transfer t, EngineWork w) {
    t.bytes = window.elements * w.type.byteSize();
    Span.sign(t, w);
    wire.begin(t);
    window.transfers[window.underWay++] = t;
  }

  private long scratchOffset(int slot, int number) {
    return scratch.offset() + ((long) slot * (nranks - hosts.size(host)) + number) * windowBytes;
  }

  private boolean advance(Window window, EngineWork w) {
    boolean moved = false;
    for (int i = 0; i < window.underWay; ) {
      Transfer t = window.transfers[i];
      if (wire.isDone(t)) {
        window.transfers[i] = window.transfers[--window.underWay];
        moved = true;
      } else {
        w.blockedOn = t.link.peer;
        i++;
      }
    }
    return moved;
  }

  /** Where a window starts in an input, in bytes. */
  private long inStart(Window window, EngineWork w) {
    boolean many = w.operation.sent().isMany();
    long start =
        isStaged
            ? (many ? window.block * pieceLength : 0) + window.inPiece
            : (many ? w.sendStart(window.block) : 0) + window.at;
    return start * w.type.byteSize();
  }

  /** The same in an output. */
  private long outStart(Window window, EngineWork w) {
    boolean many = w.operation.received().isMany();
    long start =
        isStaged
            ? (many ? window.block * pieceLength : 0) + window.inPiece
            : (many ? w.recvStart(window.block) : 0) + window.at;
    return start * w.type.byteSize();
  }

  // ---- what becomes of it

  private void finish(Window window, EngineWork w, CollectiveEngine engine, int slot) {
    if (window.elements == 0 || !isNeeded(window, host)) {
      return;
    }
    int targets = targets(window, w, engine);
    if (w.operation.reducing()) {
      fold(window, w, engine, slot, targets);
    } else {
      copy(window, w, engine, targets);
    }
  }

  private int targets(Window window, EngineWork w, CollectiveEngine engine) {
    int only =
        w.operation.receivers() == Party.ROOT
            ? hosts.place(w.root)
            : w.operation.reducing() && w.operation.sent().isMany()
                ? hosts.place(window.block)
                : ALL;
    int count = only == ALL ? engine.places() : 1;
    for (int i = 0; i < count; i++) {
      int place = only == ALL ? i : only;
      outs[i] = engine.out(place);
      outOffsets[i] = engine.outOffset(place) + outStart(window, w);
    }
    return count;
  }

  private void fold(Window window, EngineWork w, CollectiveEngine engine, int slot, int targets) {
    int number = 0;
    for (int h = 0; h < hosts.count(); h++) {
      for (int i = 0; i < hosts.size(h); i++) {
        int rank = hosts.rank(h, i);
        if (h == host) {
          ins[rank] = engine.in(i);
          inOffsets[rank] = engine.inOffset(i) + inStart(window, w);
        } else {
          ins[rank] = scratch.segment();
          inOffsets[rank] = scratchOffset(slot, number++);
        }
      }
    }
    boolean scaled = w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM;
    Kernels.get(w.type, w.op.kind())
        .fold(
            ins,
            inOffsets,
            nranks,
            outs,
            outOffsets,
            targets,
            window.elements,
            scaled ? scalars : null,
            engine.scratch());
  }

  private void copy(Window window, EngineWork w, CollectiveEngine engine, int targets) {
    boolean isOurs = hosts.of(window.contributor) == host;
    MemorySegment from = outs[0];
    long offset = outOffsets[0];
    if (isOurs) {
      int place = hosts.place(window.contributor);
      from = engine.in(place);
      offset = engine.inOffset(place) + inStart(window, w);
    }
    long bytes = window.elements * w.type.byteSize();
    for (int i = isOurs ? 0 : 1; i < targets; i++) {
      Copies.copy(from, offset, outs[i], outOffsets[i], bytes);
    }
  }

  // ---- scalars

  private void exchangeScalars(EngineWork w, CollectiveEngine engine) {
    long room = scalarRoom.offset();
    for (int i = 0; i < engine.places(); i++) {
      scalars[hosts.rank(host, i)] = engine.scalar(i);
      scalarRoom
          .segment()
          .set(ValueLayout.JAVA_LONG, room + (long) i * Long.BYTES, engine.scalar(i));
    }
    scalarsUnderWay = 0;
    long next = room + (long) engine.places() * Long.BYTES;
    for (int h = 0; h < hosts.count(); h++) {
      if (h != host) {
        Transfer receive = wire.nextReceive(hosts.leader(h), Wire.COLLECTIVES);
        receive.memory = scalarRoom.segment();
        receive.offset = next;
        receive.bytes = (long) hosts.size(h) * Long.BYTES;
        next += receive.bytes;
        beginScalars(receive, w);
        Transfer send = wire.nextSend(hosts.leader(h), Wire.COLLECTIVES);
        send.memory = scalarRoom.segment();
        send.offset = room;
        send.bytes = (long) engine.places() * Long.BYTES;
        beginScalars(send, w);
      }
    }
  }

  private void beginScalars(Transfer t, EngineWork w) {
    Span.sign(t, w);
    wire.begin(t);
    scalarTransfers[scalarsUnderWay++] = t;
  }

  private boolean haveScalars(EngineWork w, CollectiveEngine engine) {
    if (scalarsUnderWay == 0) {
      return true;
    }
    for (int i = 0; i < scalarsUnderWay; ) {
      Transfer t = scalarTransfers[i];
      if (wire.isDone(t)) {
        scalarTransfers[i] = scalarTransfers[--scalarsUnderWay];
      } else {
        w.blockedOn = t.link.peer;
        i++;
      }
    }
    if (scalarsUnderWay > 0) {
      return false;
    }
    long next = scalarRoom.offset() + (long) engine.places() * Long.BYTES;
    for (int h = 0; h < hosts.count(); h++) {
      for (int i = 0; h != host && i < hosts.size(h); i++) {
        scalars[hosts.rank(h, i)] = scalarRoom.segment().get(ValueLayout.JAVA_LONG, next);
        next += Long.BYTES;
      }
    }
    return true;
  }
}
