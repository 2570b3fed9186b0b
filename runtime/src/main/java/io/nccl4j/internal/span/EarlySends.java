package io.nccl4j.internal.span;

import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.operation.Shape;
import org.jspecify.annotations.Nullable;

/**
 * Decides which collectives' data is sent before their turn, and when. It is that of small ones,
 * which take one window for each block, however many hosts there are.
 *
 * <p>By the owner of the port.
 */
final class EarlySends {
  /** Most bytes of a block. */
  private static final long MOST_BYTES = CarriedExchange.LEAST_WINDOW_BYTES;

  private final Wire wire;
  private final Refill refill;

  /** The last collective of which nothing is left to be sent, nor of those before. */
  private long sentUpTo;

  /** Nothing was sent. */
  EarlySends(Wire wire) {
    this.wire = wire;
    refill = new Refill(wire, Wire.COLLECTIVES);
  }

  /**
   * See {@link io.nccl4j.internal.host.engine.Outside#canSendEarly}.
   *
   * @param transfers how many transfers go to one rank at most
   */
  static boolean canSend(EngineWork w, int transfers) {
    Shape sent = w.operation.sent();
    return (sent == Shape.ONE || sent == Shape.EACH)
        && w.count > 0
        && w.count * w.type.byteSize() <= MOST_BYTES
        && w.op.kind() != ReduceOp.Kind.PRE_MUL_SUM
        && transfers <= Wire.SLOTS / 2;
  }

  /**
   * See {@link io.nccl4j.internal.host.engine.Outside#sendEarly}.
   *
   * @param sender null if nothing leaves here
   */
  boolean send(EngineWork w, CollectiveEngine engine, @Nullable EarlySender sender, boolean first) {
    if (sentUpTo != w.seq - 1) {
      return false;
    }
    int transfers = sender == null ? 0 : sender.transfers(w);
    EarlySender leaving = transfers == 0 ? null : sender;
    if (leaving != null && !refill.begins(leaving.peers(), transfers, leaving.bytes(w), first)) {
      return false;
    }
    wire.callEarly(w);
    if (leaving != null) {
      leaving.send(w, engine);
    }
    sentUpTo = w.seq;
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
