package io.nccl4j.bench.run;

/** The team of a run in one process: values meet in a shared array. */
final class ThreadCrew implements Crew {
  /** What the members share. */
  static final class Meeting {
    private final ThreadBarrier barrier;
    private final double[] values;
    private final double[][] arrays;

    /** A meeting of as many threads as the barrier has. */
    Meeting(ThreadBarrier barrier, int threads) {
      this.barrier = barrier;
      this.values = new double[threads];
      this.arrays = new double[threads][];
    }
  }

  private final Meeting meeting;
  private final int thread;

  /** The member that is thread number {@code thread}. */
  ThreadCrew(Meeting meeting, int thread) {
    this.meeting = meeting;
    this.thread = thread;
  }

  @Override
  public void barrier() {
    meeting.barrier.await();
  }

  @Override
  public double sum(double mine) {
    double[] all = exchange(mine);
    double sum = 0;
    for (double value : all) {
      sum += value;
    }
    return sum;
  }

  @Override
  public double max(double mine) {
    double[] all = exchange(mine);
    double max = all[0];
    for (double value : all) {
      max = Math.max(max, value);
    }
    return max;
  }

  @Override
  public double[] sums(double[] mine) {
    meeting.arrays[thread] = mine;
    meeting.barrier.await();
    double[] sums = new double[mine.length];
    for (double[] array : meeting.arrays) {
      for (int i = 0; i < sums.length; i++) {
        sums[i] += array[i];
      }
    }
    meeting.barrier.await();
    return sums;
  }

  private double[] exchange(double mine) {
    meeting.values[thread] = mine;
    meeting.barrier.await();
    double[] all = meeting.values.clone();
    meeting.barrier.await();
    return all;
  }
}
