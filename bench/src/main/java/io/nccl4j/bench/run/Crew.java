package io.nccl4j.bench.run;

import io.nccl4j.bench.options.Average;

/**
 * What the threads of a run, in all processes, do together. Every thread calls the same methods in
 * the same order; each has its own instance.
 */
interface Crew {
  /** Waits for all threads of the run. */
  void barrier();

  /** The sum of all threads' values: the same bits everywhere. */
  double sum(double mine);

  /** The largest of all threads' values. */
  double max(double mine);

  /** The sums of all threads' values at each index; all arrays have the same length. */
  double[] sums(double[] mine);

  /** Of all threads' values, in which each thread stands for the ranks that it drives. */
  default double average(Average which, double mine, int ranks, int allRanks, boolean hasRank0) {
    return switch (which) {
      case RANK_0 -> sum(hasRank0 ? mine : 0);
      case MEAN -> sum(mine * ranks) / allRanks;
      case MIN -> -max(-mine);
      case MAX -> max(mine);
    };
  }
}
