package io.nccl4j;

import java.util.List;

/**
 * Which ranks of a communicator share a host, and what carries data between hosts, as returned by
 * {@link Communicator#hosts()}. Ranks of one host exchange data through shared memory. Processes of
 * one machine that cannot, such as those of containers with networks of their own, are on different
 * hosts.
 *
 * @param ranks the ranks of each host, ascending; hosts are in the order of their lowest ranks, and
 *     the same on every rank
 * @param network what carries data between hosts, for example {@code netty (TCP)}; empty if there
 *     is one host
 * @param networkInterface this rank's interface to that network, for example {@code eth0}; empty if
 *     there is one host, or no interface has the address any more
 * @param address this rank's address in that network, for example {@code 10.0.0.7}; empty if there
 *     is one host
 */
public record CommunicatorHosts(
    List<List<Integer>> ranks, String network, String networkInterface, String address) {
  /** Copies the lists. */
  public CommunicatorHosts {
    ranks = ranks.stream().map(List::copyOf).toList();
  }

  /** Number of hosts. */
  public int count() {
    return ranks.size();
  }

  /**
   * The host of a rank: its place in {@link #ranks}.
   *
   * @throws InvalidArgumentException if there is no such rank
   */
  public int hostOf(int rank) {
    for (int host = 0; host < ranks.size(); host++) {
      if (ranks.get(host).contains(rank)) {
        return host;
      }
    }
    throw new InvalidArgumentException(
        "rank is " + rank, "name a rank between 0 and nranks-1 of the communicator");
  }
}
