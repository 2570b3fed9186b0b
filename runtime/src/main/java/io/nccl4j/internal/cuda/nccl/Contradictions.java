package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.MismatchException;
import io.nccl4j.internal.cuda.nccl.Team.Member;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Wording;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Finds where ranks of one process have called different things: collectives, messages of a pair,
 * or blocks of v-forms. Allocates nothing as long as they agree.
 */
final class Contradictions {
  private Contradictions() {}

  /**
   * The first contradiction between a rank and others; null if there is none yet.
   *
   * @param present the ranks here, perhaps {@code waiting} too
   * @param left those that were closed
   */
  static @Nullable MismatchException find(
      NcclRank waiting, List<Member> present, List<Member> left) {
    CudaLedger own = waiting.ledger();
    long first = Math.max(own.agreed(), own.collectives() - CudaLedger.ENTRIES) + 1;
    long compared = own.collectives();
    for (int i = 0; i < present.size(); i++) {
      Member other = present.get(i);
      long last = Math.min(own.collectives(), other.ledger().collectives());
      compared = Math.min(compared, last);
      MismatchException e = collectives(waiting, other, first, last);
      if (e != null) {
        return e;
      }
    }
    for (int i = 0; i < left.size(); i++) {
      Member gone = left.get(i);
      long last = Math.min(own.collectives(), gone.ledger().collectives());
      MismatchException e = collectives(waiting, gone, first, last);
      if (e != null) {
        return e;
      }
    }
    own.agreedUpTo(compared);
    for (int i = 0; i < present.size(); i++) {
      MismatchException e = pairs(waiting, present.get(i).self());
      if (e != null) {
        return e;
      }
    }
    return null;
  }

  private static @Nullable MismatchException collectives(
      NcclRank one, Member other, long first, long last) {
    if (other.rank() == one.rank()
        || first > last
        || one.ledger().agreesUpTo(other.ledger(), last)) {
      return null;
    }
    for (long seq = first; seq <= last; seq++) {
      if (!one.ledger().agrees(other.ledger(), seq)) {
        return difference(one, other.self(), seq);
      }
    }
    return null;
  }

  private static @Nullable MismatchException pairs(NcclRank one, NcclRank other) {
    MismatchException e = direction(one, other);
    return e != null || one.rank() == other.rank() ? e : direction(other, one);
  }

  private static @Nullable MismatchException direction(NcclRank from, NcclRank to) {
    CudaLedger sender = from.ledger();
    CudaLedger receiver = to.ledger();
    int s = from.rank();
    int r = to.rank();
    long message = PairLedger.difference(sender.sent(), r, receiver.expected(), s);
    if (message > 0) {
      return Wording.differentMessages(
          to.wording()
              .messages(
                  r,
                  describe(receiver.expected(), s, message),
                  s,
                  describe(sender.sent(), r, message)));
    }
    long block = PairLedger.difference(sender.blocksSent(), r, receiver.blocksExpected(), s);
    return block == 0
        ? null
        : to.wording()
            .counts(
                describe(receiver.blocksExpected(), s, block),
                r,
                receiver.blocksExpected().count(s, block),
                s,
                "sends",
                sender.blocksSent().count(r, block));
  }

  private static String describe(PairLedger ledger, int peer, long seq) {
    return Signature.describe(ledger.code(peer, seq), ledger.count(peer, seq));
  }

  private static MismatchException difference(NcclRank one, NcclRank other, long seq) {
    long[] counts = one.commonCounts(seq);
    long[] others = other.commonCounts(seq);
    int differing = counts == null || others == null ? -1 : Arrays.mismatch(counts, others);
    return Wording.differentCollectives(
        one.wording()
            .collectives(
                seq,
                one.rank(),
                one.ledger().describe(seq) + withCount(counts, differing),
                other.rank(),
                other.ledger().describe(seq) + withCount(others, differing)));
  }

  private static String withCount(long @Nullable [] counts, int rank) {
    return counts == null || rank < 0 ? "" : " with " + counts[rank] + " elements for rank " + rank;
  }
}
