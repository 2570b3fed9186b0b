package io.nccl4j.host;

import io.nccl4j.schedule.OpKind;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * One communicator's operations in an executable graph, and how each launch numbers them: a launch
 * reserves a block of sequence numbers, and the graph counts on from there when it runs.
 */
final class GraphNumbers {
  private final HostCommunicator communicator;
  private final HostWork[] works;

  /** For sends and receives: how many of the same lane come before, in the graph. */
  private final int[] laneIndex;

  GraphNumbers(HostCommunicator communicator, List<HostWork> all) {
    this.communicator = communicator;
    List<HostWork> own = new ArrayList<>();
    for (HostWork work : all) {
      if (work.communicator == communicator) {
        own.add(work);
      }
    }
    // A group may have spread its operations over streams, and so over nodes.
    own.sort(Comparator.comparingInt(work -> work.order));
    works = own.toArray(HostWork[]::new);
    laneIndex = new int[works.length];
    for (int i = 0; i < works.length; i++) {
      for (int j = 0; j < i; j++) {
        if (!works[i].isCollective()
            && works[j].kind == works[i].kind
            && works[j].root == works[i].root) {
          laneIndex[i]++;
        }
      }
    }
  }

  HostCommunicator communicator() {
    return communicator;
  }

  /** Longs that {@link #reserve} writes. */
  int size() {
    return 3 + works.length;
  }

  /**
   * Takes numbers for one launch, by the launching thread: where each count stood before goes to
   * {@code bases}.
   */
  int reserve(long[] bases, int at) {
    bases[at] = communicator.issuedCollectives();
    bases[at + 1] = communicator.lastSignature();
    bases[at + 2] = communicator.ledger().written();
    for (int i = 0; i < works.length; i++) {
      HostWork work = works[i];
      bases[at + 3 + i] =
          work.isCollective()
              ? 0
              : communicator.laneCount(work.kind == OpKind.SEND, work.root) - laneIndex[i];
      communicator.number(work);
    }
    return at + size();
  }

  /** Gives the works the numbers of a launch, by whoever drives it. */
  int assume(long[] bases, int at) {
    long seq = bases[at];
    int signature = (int) bases[at + 1];
    long entry = bases[at + 2];
    for (int i = 0; i < works.length; i++) {
      HostWork work = works[i];
      work.reset();
      work.ledger = communicator.ledger().entryAt(entry + i);
      if (work.isCollective()) {
        work.seq = ++seq;
        signature = communicator.signatureAfter(signature, work);
        work.signature = signature;
      } else {
        work.seq = bases[at + 3 + i] + laneIndex[i] + 1;
        work.signature = HostCommunicator.laneSignature(work);
      }
    }
    return at + size();
  }
}
