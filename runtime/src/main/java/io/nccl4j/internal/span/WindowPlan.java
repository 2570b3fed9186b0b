package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;

/**
 * Which windows a collective has, in which order, and what becomes of each: the same on every host.
 * Blocks are taken piece by piece, as long as staging areas are, since on some hosts they may be
 * needed. Of each block a <b>rail</b>, the ranks at one place of all hosts, carries a share.
 */
final class WindowPlan {
  private static final int MOST_RAILS = 8;

  /** The least that each of several rails carries of a block that takes many packets. */
  private static final long RAIL_BYTES = 16 << 10;

  /** The same where ranks share processors: there each rail costs a switch to its rank. */
  private static final long CROWDED_RAIL_BYTES = 64 << 10;

  /** What a TCP segment in a packet of 1,500 bytes holds, less what TLS adds. */
  private static final long SEGMENT_BYTES = 1448 - 24;

  /** Most bytes of the inputs of a host that go to another one as one transfer. */
  static final long PACKED_BYTES = 16 << 10;

  /** What the wire and its port add to each transfer. */
  private static final long HEADERS_BYTES = Wire.HEADER_BYTES + 16;

  private static final long SHARE_ALIGNMENT = 128;

  /** A share has at least so many windows for each host that folds, so that all are busy. */
  private static final int LEAST_WINDOWS = 4;

  private static final long LEAST_BYTES = 64 << 10;

  private final Hosts hosts;
  private final int rail;

  /** Most bytes of a window whose inputs are all sent to one host, and of one that is passed on. */
  private final long gatheredBytes;

  private final long passedBytes;

  // Of the collective.
  private int rails;
  private int blocks;
  private long longest;
  private long most;
  private Route route = Route.GATHER;
  private int turn;

  // Of the current piece, or of all pieces.
  private long pieceLength;
  private long end;
  private boolean isOut;
  private long piece;
  private int block;
  private long at;

  WindowPlan(Hosts hosts, int rail, long gatheredBytes, long passedBytes) {
    this.hosts = hosts;
    this.rail = rail;
    this.gatheredBytes = gatheredBytes;
    this.passedBytes = passedBytes;
  }

  /** How many ranks of each host may carry something. */
  static int mostRails(Hosts hosts) {
    return Math.min(hosts.fewestRanks(), MOST_RAILS);
  }

  /** A collective begins. */
  void begin(EngineWork w) {
    blocks = w.operation.sent().isMany() || w.operation.received().isMany() ? hosts.nranks() : 1;
    longest = 0;
    for (int b = 0; b < blocks; b++) {
      longest = Math.max(longest, length(w, b));
    }
    int size = w.type.byteSize();
    rails = rails(hosts, longest * size, blocks(hosts, w), inputs(hosts, w));
    route = Route.of(w.operation, w.type, w.op.kind(), longest * size, hosts);
    turn = 0;
    most = Math.max(1, windowBytes((longest * size + rails - 1) / rails) / size);
  }

  /** How many transfers go from one host to another at most, for each share of small blocks. */
  static int transfers(Hosts hosts, EngineWork w) {
    int inputs = inputs(hosts, w);
    boolean isPacked = isPacked(inputs, w.count * w.type.byteSize());
    return blocks(hosts, w) * (isPacked ? 1 : inputs);
  }

  /** Bytes of such a transfer, at most. */
  static long transferBytes(Hosts hosts, EngineWork w) {
    int inputs = inputs(hosts, w);
    long bytes = w.count * w.type.byteSize();
    return isPacked(inputs, bytes) ? inputs * bytes : bytes;
  }

  /** Of how many blocks a host sends something to another one, at most. */
  private static int blocks(Hosts hosts, EngineWork w) {
    boolean one =
        w.operation.reducing() ? !w.operation.sent().isMany() : w.operation.senders() == Party.ROOT;
    return one ? 1 : hosts.mostRanks();
  }

  /** How many ranks of a host contribute to a block, at most. */
  private static int inputs(Hosts hosts, EngineWork w) {
    return w.operation.reducing() ? hosts.mostRanks() : 1;
  }

  private static boolean isPacked(int inputs, long bytes) {
    return inputs > 1 && inputs * bytes <= PACKED_BYTES;
  }

  /**
   * How many rails share a block. One message of two TCP segments costs more than two messages of
   * one segment, if the ranks that send them have a processor each.
   *
   * @param blocks of how many blocks shares leave in one message
   * @param inputs how many inputs of each
   */
  static int rails(Hosts hosts, long blockBytes, int blocks, int inputs) {
    int most = mostRails(hosts);
    if (!hosts.areCrowded()) {
      for (int n = 1; n <= most; n++) {
        long share = Math.min(blockBytes, share(blockBytes, n, SHARE_ALIGNMENT));
        if (blocks * (inputs * share + HEADERS_BYTES) <= SEGMENT_BYTES) {
          return n;
        }
      }
    }
    return Math.clamp(blockBytes / (hosts.areCrowded() ? CROWDED_RAIL_BYTES : RAIL_BYTES), 1, most);
  }

  private static long share(long all, int rails, long unit) {
    return ((all + rails - 1) / rails + unit - 1) / unit * unit;
  }

  private long windowBytes(long share) {
    long all = route == Route.CHAIN ? passedBytes : gatheredBytes;
    if (route == Route.GATHER) {
      return all;
    }
    int windows = route == Route.SCATTER ? LEAST_WINDOWS * hosts.count() : LEAST_WINDOWS;
    long each = share / windows + SHARE_ALIGNMENT - 1 & -SHARE_ALIGNMENT;
    return Math.min(all, Math.max(each, LEAST_BYTES));
  }

  /** Whether this rail carries something. */
  boolean isUsed() {
    return rail < rails;
  }

  /** Whether nothing at all is moved: hosts meet all the same. */
  boolean isEmpty() {
    return longest == 0;
  }

  /**
   * A piece of each block begins, or all of them.
   *
   * @param from its first element
   * @param length most elements of a piece
   * @param alone whether only that piece is meant
   */
  void beginPiece(EngineWork w, long from, long length, boolean alone) {
    pieceLength = length;
    end = alone ? Math.min(longest, from + length) : longest;
    piece = from;
    block = 0;
    isOut = false;
    if (!isEmpty()) {
      isOut = piece >= end;
      if (!isOut) {
        at = first(w);
        skipEmpty(w);
      }
    }
  }

  /** Whether there are no more windows. */
  boolean isOut() {
    return isOut;
  }

  /** Makes {@code window} the next one. */
  void next(Window window, EngineWork w) {
    window.begin();
    if (isEmpty()) {
      set(window, 0, 0);
      window.contributor = Window.ALL;
      window.needing = Window.ALL;
      window.isPacked = false;
      isOut = true;
      return;
    }
    long to = Math.min(at + most, last(w));
    set(window, at, to - at);
    boolean moves = !w.operation.reducing();
    window.contributor =
        w.operation.senders() == Party.ROOT
            ? w.root
            : moves && w.operation.received() == Shape.EACH ? block : Window.ALL;
    window.needing =
        w.operation.receivers() == Party.ROOT
            ? hosts.of(w.root)
            : !moves && w.operation.sent().isMany() ? hosts.of(block) : Window.ALL;
    window.isPacked =
        route == Route.GATHER && isPacked(inputs(hosts, w), (to - at) * w.type.byteSize());
    at = to;
    skipEmpty(w);
  }

  // ---- what goes from host to host

  /** How many inputs, or carries, go from one host to another. */
  int inputs(Window window, int from, int to) {
    if (window.elements == 0) {
      return 1;
    }
    return switch (window.route) {
      case GATHER -> !window.isNeeded(to) ? 0 : window.isPacked ? 1 : contributors(window, from);
      case SCATTER -> to == window.owner ? hosts.size(from) : 0;
      case CHAIN -> to == from + 1 ? 1 : 0;
    };
  }

  private int contributors(Window window, int of) {
    int one = window.contributor;
    return one == Window.ALL ? hosts.size(of) : hosts.of(one) == of ? 1 : 0;
  }

  /** Whether a result goes from one host to another. */
  boolean hasResult(Window window, int from, int to) {
    return switch (window.route) {
      case GATHER -> false;
      case SCATTER -> from == window.owner;
      case CHAIN ->
          window.needing == Window.ALL
              ? from == to + 1
              : from == window.owner && to == window.needing;
    };
  }

  /** The place of the rank of its host whose input is the {@code i}-th that leaves. */
  int contributor(Window window, int i) {
    return window.contributor == Window.ALL ? i : hosts.place(window.contributor);
  }

  /** How many inputs each transfer of inputs of a host has. */
  int packs(Window window, int of) {
    return window.isPacked ? hosts.size(of) : 1;
  }

  // ---- the windows

  private void set(Window window, long from, long elements) {
    window.block = block;
    window.at = from;
    window.inPiece = from - piece;
    window.elements = elements;
    window.route = route;
    window.owner = route == Route.CHAIN ? hosts.count() - 1 : turn;
    turn = (turn + 1) % hosts.count();
  }

  private static long length(EngineWork w, int b) {
    return w.operation.sent() == Shape.VARYING ? w.sendCounts[b] : w.count;
  }

  private void skipEmpty(EngineWork w) {
    while (!isOut && at >= last(w)) {
      block++;
      if (block == blocks) {
        block = 0;
        piece += pieceLength;
        isOut = piece >= end;
      }
      at = first(w);
    }
  }

  /**
   * Where this rail's share of the current piece of the current block starts, and where it ends.
   */
  private long first(EngineWork w) {
    return Math.max(piece, shareStart(w, rail));
  }

  private long last(EngineWork w) {
    return Math.min(piece + pieceLength, shareStart(w, rail + 1));
  }

  private long shareStart(EngineWork w, int of) {
    long all = length(w, block);
    return Math.min(all, of * share(all, rails, SHARE_ALIGNMENT / w.type.byteSize()));
  }
}
