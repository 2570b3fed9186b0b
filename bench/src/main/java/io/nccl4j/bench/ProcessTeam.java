package io.nccl4j.bench;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import java.util.ArrayList;
import java.util.List;

/** The team of a run in several processes: values meet in collectives of the run's communicator. */
final class ProcessTeam implements Team, AutoCloseable {
  private final RankSet ranks;
  private final List<DeviceBuffer> cells = new ArrayList<>();

  /** The member that is the thread driving {@code ranks}. */
  ProcessTeam(RankSet ranks) {
    this.ranks = ranks;
    for (LocalRank rank : ranks) {
      cells.add(rank.device().allocate(Double.BYTES));
    }
  }

  @Override
  public void barrier() {
    ranks.grouped(rank -> rank.communicator().barrier(rank.stream()));
    ranks.synchronize();
  }

  @Override
  public double sum(double mine) {
    return reduce(mine, 0, ReduceOp.SUM);
  }

  @Override
  public double max(double mine) {
    return reduce(mine, mine, ReduceOp.MAX);
  }

  // The thread's value goes in with its first rank; the others add what changes nothing.
  private double reduce(double first, double others, ReduceOp op) {
    for (int i = 0; i < cells.size(); i++) {
      cells.get(i).copyFrom(new double[] {i == 0 ? first : others});
    }
    ranks.grouped(
        rank -> {
          DeviceBuffer cell = cells.get(rank.index());
          rank.communicator().allReduce(cell, cell, 1, DataType.FLOAT64, op, rank.stream());
        });
    ranks.synchronize();
    double[] result = new double[1];
    cells.getFirst().copyTo(result);
    return result[0];
  }

  @Override
  public void close() {
    Closing.all(cells);
  }
}
