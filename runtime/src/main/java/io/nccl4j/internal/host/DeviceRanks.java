package io.nccl4j.internal.host;

import io.nccl4j.MismatchException;
import java.util.Arrays;

/** The ranks on a device that are not closed. Thread-safe. */
final class DeviceRanks {
  private volatile HostRank[] ranks = {};

  synchronized void add(HostRank rank) {
    HostRank[] longer = Arrays.copyOf(ranks, ranks.length + 1);
    longer[ranks.length] = rank;
    ranks = longer;
  }

  synchronized void remove(HostRank rank) {
    ranks = Arrays.stream(ranks).filter(other -> other != rank).toArray(HostRank[]::new);
  }

  /**
   * Looks whether ranks on this device contradict others in operations that were over before
   * anybody could see it; at each synchronization.
   *
   * @throws MismatchException if one does
   */
  void compare() {
    for (HostRank rank : ranks) {
      if (rank.isUncompared()) {
        rank.compare();
      }
    }
  }
}
