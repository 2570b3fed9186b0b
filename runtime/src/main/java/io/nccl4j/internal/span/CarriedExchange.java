package io.nccl4j.internal.span;

import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.kernel.Kernels;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.spi.Scalars;
import java.lang.foreign.MemorySegment;

/**
 * A collective whose data some ranks of each host carry for all of it, a window of a block after
 * the other, a few at a time: the leader alone, or the first ranks of each host, each a share of
 * every block. What has come is folded, in the order of the ranks, or copied, straight from and
 * into the buffers of this host's ranks.
 */
final class CarriedExchange {
  private static final int DEPTH = 8;
  private static final ReduceOp UNSCALED = ReduceOp.preMulSum(1L);
  private static final long MOST_WINDOW_BYTES = 512 << 10;
  static final long LEAST_WINDOW_BYTES = 4 << 10;
  private static final long ALL_WINDOWS_BYTES = 4 << 20;

  private final Wire wire;
  private final EarlySends early;
  private final Hosts hosts;
  private final int host;
  private final int nranks;
  private final int rail;
  private final WindowPlan plan;
  private final ScalarExchange scalars;

  private final Packed packed;
  private final CarriedAhead ahead;

  /** For each window: inputs of other hosts, or a carry that came and one that goes. */
  private final Wire.Frames scratch;

  private final long gatheredBytes;
  private final long passedBytes;
  private final long slotBytes;
  private final Window[] windows = new Window[DEPTH];
  private final MemorySegment[] ins;
  private final long[] inOffsets;
  private final MemorySegment[] outs;
  private final long[] outOffsets;

  /** What a carry, if there is one, and this host's inputs are scaled with. */
  private final long[] ownScalars;

  // Where the current collective is.
  private long begun;
  private long begunPiece;
  private boolean wasSent;
  private boolean isStaged;
  private long pieceLength;
  private long issued;
  private long finished;

  /** A rank's part; it is one of the first of its host, see {@link WindowPlan#mostRails}. */
  CarriedExchange(Span span, Wire wire, EarlySends early, Hosts hosts, int rank) {
    this.wire = wire;
    this.early = early;
    this.hosts = hosts;
    host = hosts.of(rank);
    nranks = hosts.nranks();
    rail = hosts.place(rank);
    int here = hosts.size(host);
    // The same on every host.
    int elsewhere = nranks - hosts.fewestRanks();
    gatheredBytes =
        Math.clamp(
            Long.highestOneBit(ALL_WINDOWS_BYTES / DEPTH / elsewhere),
            LEAST_WINDOW_BYTES,
            MOST_WINDOW_BYTES);
    slotBytes = elsewhere * gatheredBytes;
    passedBytes = Math.min(MOST_WINDOW_BYTES, Long.highestOneBit(slotBytes / 2));
    plan = new WindowPlan(hosts, rail, gatheredBytes, passedBytes);
    scratch = span.memory(DEPTH * slotBytes);
    packed = new Packed(span, DEPTH);
    WindowPlan own = new WindowPlan(hosts, rail, gatheredBytes, passedBytes);
    ahead = new CarriedAhead(span, wire, hosts, rank, own);
    scalars = new ScalarExchange(wire, hosts, host, rail, span.memory((long) nranks * Long.BYTES));
    for (int i = 0; i < DEPTH; i++) {
      windows[i] = new Window(i, here * (hosts.count() - 1) + elsewhere, hosts.count());
    }
    ins = new MemorySegment[nranks];
    inOffsets = new long[nranks];
    outs = new MemorySegment[here];
    outOffsets = new long[here];
    ownScalars = new long[1 + here];
  }

  /** As {@link io.nccl4j.internal.host.engine.Outside#move}. */
  int step(EngineWork w, CollectiveEngine engine, long from, boolean staged) {
    if (begun != w.seq || begunPiece != from) {
      begin(w, engine, from, staged);
    }
    if (!plan.isUsed()) {
      return Step.DONE;
    }
    if (!scalars.isOver(w)) {
      return Step.BLOCKED;
    }
    while (!plan.isOut() && issued - finished < DEPTH) {
      plan.next(windows[(int) issued % DEPTH], w);
      issued++;
    }
    boolean moved = advance(w, engine);
    return plan.isOut() && finished == issued ? Step.DONE : moved ? Step.MOVED : Step.BLOCKED;
  }

  /** Sends the data of such collectives before their turn. */
  EarlySender ahead() {
    return ahead;
  }

  /** Whether all inputs of the current piece are on their way. */
  boolean hasSent() {
    if (!plan.isOut()) {
      return false;
    }
    for (long i = finished; i < issued; i++) {
      if (!windows[(int) i % DEPTH].inputs.isSending) {
        return false;
      }
    }
    return true;
  }

  private void begin(EngineWork w, CollectiveEngine engine, long from, boolean staged) {
    boolean first = begun != w.seq;
    begun = w.seq;
    begunPiece = from;
    isStaged = staged;
    pieceLength = engine.stagedLength(w);
    issued = 0;
    finished = 0;
    if (first) {
      wasSent = early.wasSent(w);
      plan.begin(w);
      if (!plan.isUsed()) {
        return;
      }
      if (rail == 0 && w.operation.isRooted()) {
        mention(w);
      }
      if (isScaled(w)) {
        scalars.begin(w, engine);
      }
    }
    plan.beginPiece(w, from, pieceLength, staged);
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

  /** Gets on with all windows; transfers begin in the order of their windows, as peers count. */
  private boolean advance(EngineWork w, CollectiveEngine engine) {
    boolean moved = false;
    boolean receivesInputs = true;
    boolean sendsInputs = true;
    boolean receivesResults = true;
    boolean sendsResults = true;
    for (long i = finished; i < issued; i++) {
      Window window = windows[(int) i % DEPTH];
      receivesInputs = receivesInputs && receiveInputs(window, w, engine);
      receivesResults = receivesResults && receiveResult(window, w, engine);
      sendsInputs = sendsInputs && sendInputs(window, w, engine);
      moved |= window.inputs.underWay.advance(wire);
      if (!window.isFolded && canFold(window)) {
        fold(window, w, engine);
        window.isFolded = true;
        moved = true;
        // A carry goes on at once.
        sendsInputs = sendsInputs && sendInputs(window, w, engine);
      }
      moved |= window.results.underWay.advance(wire);
      if (window.isFolded && !window.isSpread && window.results.isHere()) {
        if (window.results.receives > 0) {
          int targets = targets(window, w, engine);
          copy(window, w, targets);
        }
        window.isSpread = true;
        moved = true;
      }
      sendsResults = sendsResults && sendResult(window, w, engine);
      if (i == finished) {
        if (window.isOver()) {
          finished++;
        } else {
          w.blockedOn = -1;
          window.results.underWay.noteWaiting(w);
          window.inputs.underWay.noteWaiting(w);
        }
      }
    }
    return moved;
  }

  /** Results may lie where inputs are: those must have left before. */
  private static boolean canFold(Window window) {
    return window.route == Route.CHAIN ? window.inputs.isHere() : window.inputs.isOver();
  }

  private int peer(int of) {
    return hosts.rank(of, rail);
  }

  // ---- what goes from host to host

  private boolean receiveInputs(Window window, EngineWork w, CollectiveEngine engine) {
    if (window.inputs.isReceiving) {
      return true;
    }
    int number = 0;
    int input = 0;
    for (int h = 0; h < hosts.count(); h++) {
      int count = h == host ? 0 : plan.inputs(window, h, host);
      for (int i = 0; i < count; i++, number++) {
        int first = input;
        input += plan.packs(window, h);
        if (number < window.inputs.receives) {
          continue;
        }
        if (!wire.canReceive(peer(h), Wire.COLLECTIVES)) {
          return false;
        }
        Transfer t = wire.nextReceive(peer(h), Wire.COLLECTIVES);
        if (w.operation.reducing() || window.elements == 0) {
          t.memory = scratch.segment();
          t.offset = input(window, first, w);
        } else {
          int ignored = targets(window, w, engine);
          t.memory = outs[0];
          t.offset = outOffsets[0];
        }
        begin(window.inputs, t, window, w, plan.packs(window, h));
      }
    }
    window.inputs.isReceiving = true;
    return true;
  }

  private boolean sendInputs(Window window, EngineWork w, CollectiveEngine engine) {
    if (window.inputs.isSending) {
      return true;
    }
    if (wasSent) {
      window.inputs.isSending = true;
      return true;
    }
    boolean passes = window.route == Route.CHAIN && !isFirstAlone(window, w);
    int number = 0;
    for (int h = 0; h < hosts.count(); h++) {
      int count = h == host ? 0 : plan.inputs(window, host, h);
      for (int i = 0; i < count; i++, number++) {
        if (number < window.inputs.sends) {
          continue;
        }
        if (passes && !window.isFolded || !wire.canSend(peer(h), Wire.COLLECTIVES)) {
          return false;
        }
        Transfer t = wire.nextSend(peer(h), Wire.COLLECTIVES);
        if (passes || window.elements == 0) {
          t.memory = scratch.segment();
          t.offset = carry(window);
        } else if (window.isPacked) {
          fillPacked(t, window, w, engine);
        } else {
          int place = plan.contributor(window, i);
          t.memory = engine.in(place);
          t.offset = engine.inOffset(place) + inStart(window, w);
        }
        begin(window.inputs, t, window, w, plan.packs(window, host));
      }
    }
    window.inputs.isSending = true;
    return true;
  }

  private void fillPacked(Transfer t, Window window, EngineWork w, CollectiveEngine engine) {
    long bytes = window.elements * w.type.byteSize();
    for (int i = 0; window.inputs.sends == 0 && i < engine.places(); i++) {
      packed.add(window, i, engine.in(i), engine.inOffset(i) + inStart(window, w), bytes);
    }
    packed.fill(t, window);
  }

  /** Whether a chain begins here with the input of one rank, as it is: there is nothing to fold. */
  private boolean isFirstAlone(Window window, EngineWork w) {
    return window.route == Route.CHAIN && host == 0 && hosts.size(host) == 1 && !isScaled(w);
  }

  private static boolean isScaled(EngineWork w) {
    return w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM;
  }

  private boolean receiveResult(Window window, EngineWork w, CollectiveEngine engine) {
    if (window.results.isReceiving) {
      return true;
    }
    for (int h = 0; h < hosts.count(); h++) {
      if (h != host && plan.hasResult(window, h, host)) {
        if (!wire.canReceive(peer(h), Wire.RESULTS)) {
          return false;
        }
        Transfer t = wire.nextReceive(peer(h), Wire.RESULTS);
        int ignored = targets(window, w, engine);
        t.memory = outs[0];
        t.offset = outOffsets[0];
        begin(window.results, t, window, w, 1);
      }
    }
    window.results.isReceiving = true;
    return true;
  }

  private boolean sendResult(Window window, EngineWork w, CollectiveEngine engine) {
    if (window.results.isSending) {
      return true;
    }
    int number = 0;
    for (int h = 0; h < hosts.count(); h++) {
      if (h == host || !plan.hasResult(window, host, h) || number++ < window.results.sends) {
        continue;
      }
      if (!window.isFolded || !window.isSpread || !wire.canSend(peer(h), Wire.RESULTS)) {
        return false;
      }
      Transfer t = wire.nextSend(peer(h), Wire.RESULTS);
      if (window.isNeeded(host)) {
        int ignored = targets(window, w, engine);
        t.memory = outs[0];
        t.offset = outOffsets[0];
      } else {
        t.memory = scratch.segment();
        t.offset = carry(window);
      }
      begin(window.results, t, window, w, 1);
    }
    window.results.isSending = true;
    return true;
  }

  private void begin(Window.Leg leg, Transfer t, Window window, EngineWork w, int inputs) {
    t.bytes = inputs * window.elements * w.type.byteSize();
    Span.sign(t, w);
    wire.begin(t);
    leg.add(t);
  }

  /** Where an input of another host lies, or the carry that came. */
  private long input(Window window, int number, EngineWork w) {
    long bytes = window.isPacked ? window.elements * w.type.byteSize() : gatheredBytes;
    return scratch.offset() + window.slot * slotBytes + number * bytes;
  }

  /** Where the carry lies that goes on. */
  private long carry(Window window) {
    return scratch.offset() + window.slot * slotBytes + slotBytes - passedBytes;
  }

  /** Where a window starts in an input, in bytes. */
  private long inStart(Window window, EngineWork w) {
    boolean many = w.operation.sent().isMany();
    return isStaged
        ? ((many ? window.block * pieceLength : 0) + window.inPiece) * w.type.byteSize()
        : window.sendStart(w);
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

  /** The outputs of this host that a window goes to; this rank's own is the first, if it is one. */
  private int targets(Window window, EngineWork w, CollectiveEngine engine) {
    int only =
        w.operation.receivers() == Party.ROOT
            ? hosts.place(w.root)
            : w.operation.reducing() && w.operation.sent().isMany()
                ? hosts.place(window.block)
                : Window.ALL;
    int count = only == Window.ALL ? engine.places() : 1;
    for (int i = 0; i < count; i++) {
      int place = only == Window.ALL ? (rail + i) % count : only;
      outs[i] = engine.out(place);
      outOffsets[i] = engine.outOffset(place) + outStart(window, w);
    }
    return count;
  }

  private void fold(Window window, EngineWork w, CollectiveEngine engine) {
    if (window.elements == 0) {
      return;
    }
    if (!w.operation.reducing()) {
      move(window, w, engine);
      return;
    }
    switch (window.route) {
      case GATHER -> {
        if (window.isNeeded(host)) {
          foldAll(window, w, engine);
        }
      }
      case SCATTER -> {
        if (host == window.owner) {
          foldAll(window, w, engine);
        }
      }
      case CHAIN -> {
        if (!isFirstAlone(window, w)) {
          foldOn(window, w, engine);
        }
      }
    }
  }

  private void foldAll(Window window, EngineWork w, CollectiveEngine engine) {
    int number = 0;
    for (int h = 0; h < hosts.count(); h++) {
      for (int i = 0; i < hosts.size(h); i++) {
        int rank = hosts.rank(h, i);
        if (h == host) {
          ins[rank] = engine.in(i);
          inOffsets[rank] = engine.inOffset(i) + inStart(window, w);
        } else {
          ins[rank] = scratch.segment();
          inOffsets[rank] = input(window, number++, w);
        }
      }
    }
    fold(window, w, engine, nranks, targets(window, w, engine), scalars.scalars());
  }

  /** This host's inputs into the carry of those before. */
  private void foldOn(Window window, EngineWork w, CollectiveEngine engine) {
    int count = 0;
    if (host > 0) {
      ins[0] = scratch.segment();
      inOffsets[0] = input(window, 0, w);
      // What has been scaled stays what it is.
      ownScalars[0] = Scalars.of(w.type, UNSCALED);
      count = 1;
    }
    for (int i = 0; i < hosts.size(host); i++, count++) {
      ownScalars[count] = scalars.scalars()[hosts.rank(host, i)];
      ins[count] = engine.in(i);
      inOffsets[count] = engine.inOffset(i) + inStart(window, w);
    }
    int targets = 1;
    if (host == window.owner && window.isNeeded(host)) {
      targets = targets(window, w, engine);
    } else {
      outs[0] = scratch.segment();
      outOffsets[0] = carry(window);
    }
    fold(window, w, engine, count, targets, ownScalars);
  }

  private void fold(
      Window window, EngineWork w, CollectiveEngine engine, int count, int targets, long[] by) {
    // What was sent leaves meanwhile.
    wire.flush();
    Kernels.get(w.type, w.op.kind())
        .fold(
            ins,
            inOffsets,
            count,
            outs,
            outOffsets,
            targets,
            window.elements,
            isScaled(w) ? by : null,
            engine.scratch());
  }

  /** What a rank contributes goes to the ranks of its host; what came, to the others of this. */
  private void move(Window window, EngineWork w, CollectiveEngine engine) {
    if (!window.isNeeded(host)) {
      return;
    }
    int targets = targets(window, w, engine);
    if (hosts.of(window.contributor) != host) {
      copy(window, w, targets);
      return;
    }
    int place = hosts.place(window.contributor);
    long from = engine.inOffset(place) + inStart(window, w);
    long bytes = window.elements * w.type.byteSize();
    for (int i = 0; i < targets; i++) {
      Copies.copy(engine.in(place), from, outs[i], outOffsets[i], bytes);
    }
  }

  /** What lies in the first target goes to the others. */
  private void copy(Window window, EngineWork w, int targets) {
    long bytes = window.elements * w.type.byteSize();
    for (int i = 1; i < targets; i++) {
      Copies.copy(outs[0], outOffsets[0], outs[i], outOffsets[i], bytes);
    }
  }
}
