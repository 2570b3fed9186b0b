package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.memory.HostBuffer;
import java.util.stream.IntStream;

/**
 * A collective in which a rank has a block of its own for, or from, each other one: each carries
 * its own blocks to and from other hosts, while those that stay on this host move as ever.
 */
final class PairExchange implements EarlySender {
  private final Span span;
  private final Wire wire;
  private final EarlySends early;
  private final int rank;
  private final int nranks;

  /** The ranks of other hosts. */
  private final int[] peers;

  private final Transfers underWay;
  private long begun;

  PairExchange(Span span, Wire wire, EarlySends early, Hosts hosts, int rank) {
    this.span = span;
    this.wire = wire;
    this.early = early;
    this.rank = rank;
    nranks = hosts.nranks();
    peers = IntStream.range(0, nranks).filter(span::isElsewhere).toArray();
    underWay = new Transfers(2 * nranks);
  }

  /** As {@link io.nccl4j.internal.host.engine.Outside#move}. */
  int step(EngineWork w, CollectiveEngine engine, boolean lastPiece) {
    if (begun != w.seq) {
      begun = w.seq;
      begin(w);
    }
    int here = engine.moveHere(w);
    if (here != Step.DONE || !lastPiece) {
      return here;
    }
    boolean moved = underWay.advance(wire);
    underWay.noteWaiting(w);
    return underWay.isEmpty() ? Step.DONE : moved ? Step.MOVED : Step.BLOCKED;
  }

  private void begin(EngineWork w) {
    int size = w.type.byteSize();
    boolean wasSent = early.wasSent(w);
    for (int i = 1; i < nranks; i++) {
      int from = (rank - i + nranks) % nranks;
      if (span.isElsewhere(from) && w.receives(rank) && w.sends(from)) {
        Transfer t = wire.nextReceive(from, Wire.COLLECTIVES);
        place(t, w.recvBuffer(), w.recvStart(from) * size, w.recvCount(from) * size);
        begin(t, w);
        underWay.add(t);
        if (w.operation.isRooted()) {
          // No data goes this way: it hears at least what is called.
          wire.mention(from, w);
        }
      }
      int to = (rank + i) % nranks;
      if (!wasSent && span.isElsewhere(to) && w.sends(rank) && w.receives(to)) {
        underWay.add(send(w, to));
      }
    }
  }

  @Override
  public int[] peers() {
    return peers;
  }

  @Override
  public int transfers(EngineWork w) {
    return 1;
  }

  @Override
  public long bytes(EngineWork w) {
    return w.count * w.type.byteSize();
  }

  @Override
  public void send(EngineWork w, CollectiveEngine engine) {
    for (int k : peers) {
      boolean ignored = wire.isDone(send(w, k));
    }
  }

  private Transfer send(EngineWork w, int to) {
    int size = w.type.byteSize();
    Transfer t = wire.nextSend(to, Wire.COLLECTIVES);
    place(t, w.sendBuffer(), w.sendStart(to) * size, w.sendCount(to) * size);
    begin(t, w);
    return t;
  }

  private static void place(Transfer t, HostBuffer buffer, long start, long bytes) {
    t.memory = buffer.segment();
    t.offset = buffer.offset() + start;
    t.bytes = bytes;
  }

  private void begin(Transfer t, EngineWork w) {
    Span.sign(t, w);
    wire.begin(t);
  }
}
