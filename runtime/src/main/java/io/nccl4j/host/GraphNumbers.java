package io.nccl4j.host;

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
  }

  HostCommunicator communicator() {
    return communicator;
  }

  /** Longs that {@link #reserve} writes. */
  int size() {
    return 2 * works.length;
  }

  /**
   * Takes numbers for one launch, by the launching thread. The works may still be running in an
   * earlier launch: their numbers go to {@code numbers}, from {@code at} on.
   *
   * @return the place behind them
   */
  int reserve(long[] numbers, int at) {
    for (HostWork work : works) {
      numbers[at++] = communicator.nextNumber(work);
      numbers[at++] = communicator.nextSignature(work);
    }
    return at;
  }

  /** Gives the works the numbers of a launch, by whoever drives it. */
  int assume(long[] numbers, int at) {
    for (HostWork work : works) {
      work.reset();
      work.finished = false;
      work.seq = numbers[at++];
      work.signature = (int) numbers[at++];
    }
    return at;
  }
}
