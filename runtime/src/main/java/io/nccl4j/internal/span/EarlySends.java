package io.nccl4j.internal.span;

import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.operation.Shape;

/**
 * What is sent of collectives before their turn, where each host has one rank. So each collective
 * has one transfer to each other rank: a block of its own, or the same for all.
 *
 * <p>By the owner of the port.
 */
final class EarlySends {
  /** Most bytes for each rank: one window, however many hosts there are. */
  private static final long MOST_BYTES = CarriedExchange.LEAST_WINDOW_BYTES;

  private final Wire wire;
  private final Hosts hosts;
  private final int rank;

  /** The last collective of which nothing is left to be sent, nor of those before. */
  private long sentUpTo;

  /** Whether more is sent until there is no room left: many leave together so. */
  private boolean isRefilling;

  /** Nothing was sent. */
  EarlySends(Wire wire, Hosts hosts, int rank) {
    this.wire = wire;
    this.hosts = hosts;
    this.rank = rank;
  }

  /** As {@link io.nccl4j.internal.host.engine.Outside#canSendEarly}. */
  boolean canSend(EngineWork w) {
    Shape sent = w.operation.sent();
    return hosts.mostRanks() == 1
        && (sent == Shape.ONE || sent == Shape.EACH)
        && w.count > 0
        && w.count * w.type.byteSize() <= MOST_BYTES
        && w.op.kind() != ReduceOp.Kind.PRE_MUL_SUM;
  }

  /** As {@link io.nccl4j.internal.host.engine.Outside#sendEarly}. */
  boolean send(EngineWork w, boolean first) {
    long bytes = w.count * w.type.byteSize();
    if (sentUpTo != w.seq - 1) {
      return false;
    }
    if (!canSendToAll(bytes)) {
      isRefilling = false;
      return false;
    }
    if (!first && !isRefilling && !areHalfBegun()) {
      return false;
    }
    isRefilling = true;
    wire.callEarly(w);
    HostBuffer from = w.sendBuffer();
    for (int k = 0; k < hosts.nranks(); k++) {
      if (k != rank) {
        Transfer t = wire.nextSend(k, Wire.COLLECTIVES);
        t.memory = from.segment();
        t.offset = from.offset() + w.sendStart(k) * w.type.byteSize();
        t.bytes = bytes;
        Span.sign(t, w);
        wire.begin(t);
        boolean ignored = wire.isDone(t);
      }
    }
    sentUpTo = w.seq;
    return true;
  }

  private boolean canSendToAll(long bytes) {
    for (int k = 0; k < hosts.nranks(); k++) {
      if (k != rank && !wire.canSendAtOnce(k, Wire.COLLECTIVES, bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Whether the peers have begun half of what they may be sent before. */
  private boolean areHalfBegun() {
    for (int k = 0; k < hosts.nranks(); k++) {
      if (k != rank && wire.ahead(k, Wire.COLLECTIVES) > Wire.SLOTS / 2) {
        return false;
      }
    }
    return true;
  }

  /** The next collective has been sent whole, at its turn. */
  void sent(EngineWork w) {
    sentUpTo = w.seq;
  }

  /** Whether nothing of a collective is left to be sent. */
  boolean wasSent(EngineWork w) {
    return w.seq <= sentUpTo;
  }

  /** Whether collectives after this one were sent. */
  boolean isAheadOf(EngineWork w) {
    return sentUpTo > w.seq;
  }
}
