package io.nccl4j.internal.host;

import io.nccl4j.internal.operation.Signature;
import java.util.Comparator;
import java.util.List;

/**
 * One rank's operations in an executable graph, and how each launch numbers and signs them: a
 * launch takes a block of numbers, and the graph counts on from there when it runs.
 */
final class GraphNumbers {
  private final HostRank rank;
  private final HostWork[] collectives;
  private final HostWork[] messages;

  /** Codes and counts of the collectives in turn. */
  private final long[] calls;

  /** What makes a collective's signature of the one before the launch: a factor and a summand. */
  private final int[] factors;

  private final int[] sums;

  GraphNumbers(HostRank rank, List<HostWork> all) {
    this.rank = rank;
    // A group may have spread its operations over streams, and so over nodes.
    List<HostWork> own =
        all.stream()
            .filter(work -> work.rank == rank)
            .sorted(Comparator.comparingInt(work -> work.order))
            .toList();
    collectives = own.stream().filter(HostWork::isCollective).toArray(HostWork[]::new);
    messages = own.stream().filter(work -> !work.isCollective()).toArray(HostWork[]::new);
    for (HostWork message : messages) {
      message.signature = rank.numbers().sign(message);
    }
    calls = new long[2 * collectives.length];
    factors = new int[collectives.length];
    sums = new int[collectives.length];
    int factor = 1;
    int sum = 0;
    for (int i = 0; i < collectives.length; i++) {
      calls[2 * i] = collectives[i].code();
      calls[2 * i + 1] = collectives[i].count;
      factor *= Signature.FACTOR;
      sum = Signature.chain(sum, rank.numbers().sign(collectives[i]));
      factors[i] = factor;
      sums[i] = sum;
    }
  }

  HostRank rank() {
    return rank;
  }

  /** Longs that {@link #reserve} writes. */
  int size() {
    return 2 + messages.length;
  }

  /**
   * Takes numbers for one launch, by the launching thread. The works may still be running in an
   * earlier launch: what they need goes to {@code numbers}, from {@code at} on.
   *
   * @return the place behind it
   */
  int reserve(long[] numbers, int at) {
    int last = collectives.length - 1;
    numbers[at++] = rank.numbers().issueAll(calls);
    numbers[at++] = last < 0 ? 0 : rank.numbers().signAll(factors[last], sums[last]);
    for (HostWork message : messages) {
      numbers[at++] = rank.numbers().nextInLane(message);
    }
    return at;
  }

  /** Gives the works the numbers of a launch, by whoever drives it. */
  int assume(long[] numbers, int at) {
    long seq = numbers[at++];
    int signature = (int) numbers[at++];
    for (int i = 0; i < collectives.length; i++) {
      HostWork work = collectives[i];
      work.reset();
      work.finished = false;
      work.seq = ++seq;
      work.signature = signature * factors[i] + sums[i];
    }
    for (HostWork message : messages) {
      message.reset();
      message.finished = false;
      message.seq = numbers[at++];
    }
    return at;
  }
}
