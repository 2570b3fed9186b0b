package io.nccl4j.bench.run;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.Closing;
import java.util.ArrayList;
import java.util.List;

/** The team of a run in several processes: values meet in collectives of the run's communicator. */
public final class ProcessCrew implements Crew, AutoCloseable {
  private final RankSet ranks;
  private final List<DeviceBuffer> cells = new ArrayList<>();

  /** The member that is the thread driving {@code ranks}. */
  public ProcessCrew(RankSet ranks) {
    this.ranks = ranks;
    for (LocalRank rank : ranks) {
      cells.add(rank.device().allocate(Double.BYTES));
    }
  }

  @Override
  public void barrier() {
    ranks.grouped(rank -> rank.world().barrier(rank.stream()));
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
    return reduce(cells, new double[] {first}, new double[] {others}, op)[0];
  }

  @Override
  public double[] sums(double[] mine) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    try {
      for (LocalRank rank : ranks) {
        buffers.add(rank.device().allocate(DataType.FLOAT64, mine.length));
      }
      return reduce(buffers, mine, new double[mine.length], ReduceOp.SUM);
    } finally {
      Closing.all(buffers);
    }
  }

  private double[] reduce(
      List<DeviceBuffer> buffers, double[] first, double[] others, ReduceOp op) {
    for (int i = 0; i < buffers.size(); i++) {
      buffers.get(i).copyFrom(i == 0 ? first : others);
    }
    ranks.grouped(
        rank -> {
          DeviceBuffer buffer = buffers.get(rank.index());
          rank.world().allReduce(buffer, buffer, first.length, DataType.FLOAT64, op, rank.stream());
        });
    ranks.synchronize();
    double[] result = new double[first.length];
    buffers.getFirst().copyTo(result);
    return result;
  }

  @Override
  public void close() {
    Closing.all(cells);
  }
}
