package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.EngineWork;

/** A range of one block on its way between hosts. It is used again and again. */
final class Window {
  /** All ranks, or all hosts. */
  static final int ALL = -1;

  /** Its place among those under way. */
  final int slot;

  // Which range of which block, in elements; where it starts in the current piece of the block.
  int block;
  long at;
  long inPiece;
  long elements;

  /** Whose input it takes, or {@link #ALL}; which host needs the result, or {@link #ALL}. */
  int contributor;

  int needing;

  /** Of a reduction: its way, and the host that has the result first. */
  Route route = Route.GATHER;

  int owner;

  /** Whether the inputs of a host go to another one as one transfer. */
  boolean isPacked;

  /** What comes first: inputs, or what was folded of them. */
  final Leg inputs;

  /** What comes after that: results, from hosts that have them. */
  final Leg results;

  /** What was to be done with the inputs, and with a result that came, is done. */
  boolean isFolded;

  boolean isSpread;

  /**
   * A window that is not used.
   *
   * @param most transfers of inputs, at most
   */
  Window(int slot, int most, int hosts) {
    this.slot = slot;
    inputs = new Leg(most);
    results = new Leg(hosts);
  }

  void begin() {
    inputs.begin();
    results.begin();
    isFolded = false;
    isSpread = false;
  }

  /** Where it starts in an input that is not staged, in bytes. */
  long sendStart(EngineWork w) {
    boolean many = w.operation.sent().isMany();
    return ((many ? w.sendStart(block) : 0) + at) * w.type.byteSize();
  }

  boolean isOver() {
    return isFolded && isSpread && inputs.isOver() && results.isOver();
  }

  boolean isNeeded(int byHost) {
    return needing == ALL || needing == byHost;
  }

  /** Transfers of a window that follow each other in each direction. */
  static final class Leg {
    final Transfers underWay;

    /** How many receives and sends have begun; whether those are all. */
    int receives;

    int sends;
    boolean isReceiving;
    boolean isSending;

    private Leg(int most) {
      underWay = new Transfers(most);
    }

    private void begin() {
      receives = 0;
      sends = 0;
      isReceiving = false;
      isSending = false;
    }

    void add(Transfer t) {
      underWay.add(t);
      if (t.sends) {
        sends++;
      } else {
        receives++;
      }
    }

    /** Whether all that it receives has come. */
    boolean isHere() {
      return isReceiving && !underWay.hasReceives();
    }

    /** Whether that has, and all that it sends has left. */
    boolean isOver() {
      return isReceiving && isSending && underWay.isEmpty();
    }
  }
}
