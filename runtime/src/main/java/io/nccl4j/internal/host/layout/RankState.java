package io.nccl4j.internal.host.layout;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;

/**
 * The word in which a rank tells all others how it is: {@code [seq:32 | other rank:16 | flags:8 |
 * code:8]}, written by the rank itself.
 */
public final class RankState {
  public static final int ALIVE = 1;
  public static final int MISMATCH = 2;
  public static final int DEADLINE = 3;
  public static final int ABORTED = 4;
  public static final int PEER_LOST = 5;
  public static final int ERROR = 6;
  public static final int LANE_MISMATCH = 7;
  public static final int LEFT_EARLY = 8;
  public static final int DROPPED = 9;

  /** It failed because of the failure that another rank reported; that rank has the reason. */
  public static final int RELAYED = 10;

  /** It closed its communicator: it touches no other rank's buffers any more. */
  public static final long LEFT = 0x100;

  /** It failed and has dropped all its work: it touches no other rank's memory any more. */
  public static final long QUIET = 0x200;

  /**
   * It has left, and its process no longer looks at the control block on its behalf. This is the
   * last thing that a rank writes; the block is freed when all ranks have written it or are dead.
   */
  public static final long GONE = 0x400;

  /** All of these, for the version of the layout. */
  static final Struct CODES =
      new Struct(
          ("alive=" + ALIVE + " mismatch=" + MISMATCH + " deadline=" + DEADLINE)
              + (" aborted=" + ABORTED + " peer lost=" + PEER_LOST + " error=" + ERROR)
              + (" lane mismatch=" + LANE_MISMATCH + " left early=" + LEFT_EARLY)
              + (" dropped=" + DROPPED + " relayed=" + RELAYED)
              + (" left=" + LEFT + " quiet=" + QUIET + " gone=" + GONE));

  private RankState() {}

  public static long of(int code, int other, long seq) {
    return code | (long) (other & 0xffff) << 16 | seq << 32;
  }

  public static int code(long state) {
    return (int) state & 0xff;
  }

  /** Whether it failed, and gives the reason itself. */
  public static boolean hasReason(long state) {
    return code(state) > ALIVE && code(state) != RELAYED;
  }

  public static int other(long state) {
    return (int) (state >>> 16) & 0xffff;
  }

  public static long seq(long state) {
    return state >>> 32;
  }

  public static boolean hasLeft(long state) {
    return (state & LEFT) != 0;
  }

  public static boolean isGone(long state) {
    return (state & GONE) != 0;
  }

  public static boolean isQuiet(long state) {
    return (state & (LEFT | QUIET)) != 0;
  }

  /** How a rank that failed with this exception tells the others. */
  public static int codeOf(NcclException failure) {
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
