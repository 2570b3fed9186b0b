package io.nccl4j.internal.span;

import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Which rank is on which host, the same on every rank. Hosts are numbered in the order of their
 * lowest ranks; that one is the host's <b>leader</b>.
 */
public final class Hosts {
  private final int[] hostOf;
  private final int[] machineOf;
  private final int[] processors;
  private final int[][] ranks;
  private final int fewest;
  private final int most;
  private final boolean isContiguous;
  private final boolean areCrowded;

  /**
   * Where ranks are.
   *
   * @param hostOf any number for each rank, the same for ranks of the same host
   * @param machineOf the same for machines, which may have several hosts
   * @param processors how many the machine of each rank has
   */
  public Hosts(int[] hostOf, int[] machineOf, int[] processors) {
    this.machineOf = machineOf.clone();
    this.processors = processors.clone();
    int[] known = IntStream.of(hostOf).distinct().toArray();
    this.hostOf =
        IntStream.of(hostOf)
            .map(
                h ->
                    IntStream.range(0, known.length)
                        .filter(i -> known[i] == h)
                        .findFirst()
                        .orElseThrow())
            .toArray();
    ranks = new int[known.length][];
    for (int h = 0; h < known.length; h++) {
      int host = h;
      ranks[h] = IntStream.range(0, hostOf.length).filter(r -> this.hostOf[r] == host).toArray();
    }
    fewest = Arrays.stream(ranks).mapToInt(of -> of.length).min().orElse(0);
    most = Arrays.stream(ranks).mapToInt(of -> of.length).max().orElse(0);
    isContiguous =
        IntStream.range(1, hostOf.length).allMatch(r -> this.hostOf[r - 1] <= this.hostOf[r]);
    areCrowded =
        IntStream.range(0, hostOf.length).anyMatch(r -> onMachineOf(r) > this.processors[r]);
  }

  /** The places of some of the ranks, which are numbered anew in this order. */
  Hosts part(int[] members) {
    return new Hosts(
        IntStream.of(members).map(this::of).toArray(),
        IntStream.of(members).map(rank -> machineOf[rank]).toArray(),
        IntStream.of(members).map(rank -> processors[rank]).toArray());
  }

  /** How many ranks there are. */
  public int nranks() {
    return hostOf.length;
  }

  /** How many hosts there are. */
  public int count() {
    return ranks.length;
  }

  /** The host of a rank. */
  public int of(int rank) {
    return hostOf[rank];
  }

  /** The ranks of a host, ascending. */
  public int[] ranks(int host) {
    return ranks[host].clone();
  }

  /** How many ranks are on the same machine as a rank, itself included. */
  int onMachineOf(int rank) {
    return (int) IntStream.of(machineOf).filter(of -> of == machineOf[rank]).count();
  }

  /** Whether some machine has more ranks than processors. */
  boolean areCrowded() {
    return areCrowded;
  }

  /** How many ranks a host has. */
  int size(int host) {
    return ranks[host].length;
  }

  /** How many ranks the smallest host has. */
  int fewestRanks() {
    return fewest;
  }

  /** How many ranks the largest host has. */
  int mostRanks() {
    return most;
  }

  /** Whether ranks are numbered host by host. */
  boolean isContiguous() {
    return isContiguous;
  }

  /** The rank at a place of a host. */
  int rank(int host, int place) {
    return ranks[host][place];
  }

  /** The place of a rank on its host. */
  int place(int rank) {
    return Arrays.binarySearch(ranks[hostOf[rank]], rank);
  }

  /** The lowest rank of a host. */
  int leader(int host) {
    return ranks[host][0];
  }
}
