package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** What the ranks scale their inputs with goes to those who fold them. */
final class ScalarExchange {
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;

  private final Wire wire;
  private final Hosts hosts;
  private final int host;
  private final int rail;
  private final MemorySegment memory;
  private final long start;
  private final long[] scalars;
  private final Transfers underWay;

  /**
   * Of one rank.
   *
   * @param rail its place, and that of the ranks that it exchanges with
   * @param room 8 bytes for each rank
   */
  ScalarExchange(Wire wire, Hosts hosts, int host, int rail, Wire.Frames room) {
    this.wire = wire;
    this.hosts = hosts;
    this.host = host;
    this.rail = rail;
    memory = room.segment();
    start = room.offset();
    scalars = new long[hosts.nranks()];
    underWay = new Transfers(2 * hosts.count());
  }

  /** By rank, as {@link CollectiveEngine#scalar} has them, when {@link #isOver}. */
  long[] scalars() {
    return scalars;
  }

  void begin(EngineWork w, CollectiveEngine engine) {
    int here = hosts.size(host);
    for (int i = 0; i < here; i++) {
      scalars[hosts.rank(host, i)] = engine.scalar(i);
      memory.set(LONG, start + (long) i * Long.BYTES, engine.scalar(i));
    }
    long next = start + (long) here * Long.BYTES;
    for (int h = 0; h < hosts.count(); h++) {
      if (h != host) {
        int peer = hosts.rank(h, rail);
        long bytes = (long) hosts.size(h) * Long.BYTES;
        begin(wire.nextReceive(peer, Wire.COLLECTIVES), next, bytes, w);
        next += bytes;
        begin(wire.nextSend(peer, Wire.COLLECTIVES), start, (long) here * Long.BYTES, w);
      }
    }
  }

  private void begin(Transfer t, long at, long bytes, EngineWork w) {
    t.memory = memory;
    t.offset = at;
    t.bytes = bytes;
    Span.sign(t, w);
    wire.begin(t);
    underWay.add(t);
  }

  /** Whether all have come, or none are exchanged. */
  boolean isOver(EngineWork w) {
    if (underWay.isEmpty()) {
      return true;
    }
    boolean ignored = underWay.advance(wire);
    underWay.noteWaiting(w);
    if (!underWay.isEmpty()) {
      return false;
    }
    long next = start + (long) hosts.size(host) * Long.BYTES;
    for (int h = 0; h < hosts.count(); h++) {
      for (int i = 0; h != host && i < hosts.size(h); i++) {
        scalars[hosts.rank(h, i)] = memory.get(LONG, next);
        next += Long.BYTES;
      }
    }
    return true;
  }
}
