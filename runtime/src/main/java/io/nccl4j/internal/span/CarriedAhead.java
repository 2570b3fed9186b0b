package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import java.util.stream.IntStream;

/** Sends what this rank carries of a small collective, for all of its host, before its turn. */
final class CarriedAhead implements EarlySender {
  private final Wire wire;
  private final Hosts hosts;
  private final int host;
  private final int rail;
  private final WindowPlan plan;
  private final Window window;
  private final Packed packed;

  /** The ranks of other hosts that carry the same shares. */
  private final int[] peers;

  /** Sends nothing yet; {@code plan} is its own. */
  CarriedAhead(Span span, Wire wire, Hosts hosts, int rank, WindowPlan plan) {
    this.wire = wire;
    this.hosts = hosts;
    this.plan = plan;
    host = hosts.of(rank);
    rail = hosts.place(rank);
    // Its transfers are over at once.
    window = new Window(0, 0, 0);
    packed = new Packed(span, 1);
    peers =
        IntStream.range(0, hosts.count())
            .filter(h -> h != host)
            .map(h -> hosts.rank(h, rail))
            .toArray();
  }

  @Override
  public int[] peers() {
    return peers;
  }

  @Override
  public int transfers(EngineWork w) {
    plan.begin(w);
    return plan.isUsed() ? WindowPlan.transfers(hosts, w) : 0;
  }

  @Override
  public long bytes(EngineWork w) {
    return WindowPlan.transferBytes(hosts, w);
  }

  @Override
  public void send(EngineWork w, CollectiveEngine engine) {
    plan.begin(w);
    plan.beginPiece(w, 0, engine.stagedLength(w), false);
    while (!plan.isOut()) {
      plan.next(window, w);
      boolean isFirst = true;
      for (int h = 0; h < hosts.count(); h++) {
        int count = h == host ? 0 : plan.inputs(window, host, h);
        for (int i = 0; i < count; i++) {
          send(w, engine, h, i, isFirst);
          isFirst = false;
        }
      }
    }
  }

  private void send(EngineWork w, CollectiveEngine engine, int to, int i, boolean isFirst) {
    long bytes = window.elements * w.type.byteSize();
    long start = window.sendStart(w);
    Transfer t = wire.nextSend(hosts.rank(to, rail), Wire.COLLECTIVES);
    if (window.isPacked) {
      for (int k = 0; isFirst && k < engine.places(); k++) {
        packed.add(window, k, engine.shown(w, k), engine.shownOffset(w, k) + start, bytes);
      }
      packed.fill(t, window);
    } else {
      int place = plan.contributor(window, i);
      t.memory = engine.shown(w, place);
      t.offset = engine.shownOffset(w, place) + start;
    }
    t.bytes = plan.packs(window, host) * bytes;
    Span.sign(t, w);
    wire.begin(t);
    boolean ignored = wire.isDone(t);
  }
}
