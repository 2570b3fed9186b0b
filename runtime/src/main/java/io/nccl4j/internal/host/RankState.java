package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;

/**
 * The word in which a rank tells all others how it is: {@code [seq:32 | other rank:16 | flags:8 |
 * code:8]}, written by the rank itself.
 */
final class RankState {
  static final int ALIVE = 1;
  static final int MISMATCH = 2;
  static final int DEADLINE = 3;
  static final int ABORTED = 4;
  static final int PEER_LOST = 5;
  static final int ERROR = 6;
  static final int LANE_MISMATCH = 7;
  static final int LEFT_EARLY = 8;
  static final int DROPPED = 9;

  /** It failed because of what another rank told, which is the one to look at. */
  static final int RELAYED = 10;

  /** It closed its communicator: it touches no other rank's buffers any more. */
  static final long LEFT = 0x100;

  /** It failed and has dropped all its work: it touches no other rank's memory any more. */
  static final long QUIET = 0x200;

  /**
   * It has left, and its process does not look at the control block any more on its behalf: the
   * last write of the rank. The block is freed when all ranks have written it, or are dead.
   */
  static final long GONE = 0x400;

  private RankState() {}

  static long of(int code, int other, long seq) {
    return code | (long) (other & 0xffff) << 16 | seq << 32;
  }

  static int code(long state) {
    return (int) state & 0xff;
  }

  static int other(long state) {
    return (int) (state >>> 16) & 0xffff;
  }

  static long seq(long state) {
    return state >>> 32;
  }

  static boolean hasLeft(long state) {
    return (state & LEFT) != 0;
  }

  static boolean isGone(long state) {
    return (state & GONE) != 0;
  }

  static boolean isQuiet(long state) {
    return (state & (LEFT | QUIET)) != 0;
  }

  /** How a rank that failed with this exception tells the others. */
  static int codeOf(NcclException failure) {
    // No switch: one on types is linked at its first use, which may be when there is no memory.
    if (failure instanceof MismatchException) {
      return MISMATCH;
    }
    if (failure instanceof DeadlineException) {
      return DEADLINE;
    }
    if (failure instanceof AbortedException) {
      return ABORTED;
    }
    return failure instanceof PeerFailedException ? PEER_LOST : ERROR;
  }
}
