package io.nccl4j.bench;

/**
 * What the threads of a run, in all processes, do together. Every thread calls the same methods in
 * the same order; each has its own instance.
 */
interface Team {
  /** Waits for all threads of the run. */
  void barrier();

  /** The sum of all threads' values: the same bits everywhere. */
  double sum(double mine);

  /** The largest of all threads' values. */
  double max(double mine);

  /** The sums of all threads' values at each index; all arrays have the same length. */
  double[] sums(double[] mine);
}
