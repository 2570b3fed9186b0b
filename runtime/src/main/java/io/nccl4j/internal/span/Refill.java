package io.nccl4j.internal.span;

/**
 * Decides when small transfers of a lane are sent ahead of their receives: until the peers have no
 * room left, and again when they have begun half of those receives. So many transfers leave
 * together.
 *
 * <p>By the owner of the port.
 */
final class Refill {
  private final Wire wire;
  private final int lane;
  private boolean isUnderWay;

  Refill(Wire wire, int lane) {
    this.wire = wire;
    this.lane = lane;
  }

  /**
   * Returns whether transfers are sent now.
   *
   * @param peers the ranks to which they go
   * @param number how many go to each of them
   * @param bytes the size of each
   * @param first whether their turn has come
   */
  boolean begins(int[] peers, int number, long bytes, boolean first) {
    for (int k : peers) {
      if (!wire.canSendAtOnce(k, lane, number, bytes)) {
        isUnderWay = false;
        return false;
      }
    }
    isUnderWay = isUnderWay || first || areHalfBegun(peers);
    return isUnderWay;
  }

  private boolean areHalfBegun(int[] peers) {
    for (int k : peers) {
      if (wire.ahead(k, lane) > Wire.SLOTS / 2) {
        return false;
      }
    }
    return true;
  }
}
