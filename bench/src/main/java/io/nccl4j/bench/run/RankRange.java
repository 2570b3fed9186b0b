package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Which ranks of a run this process has.
 *
 * @param firstRank number of its first rank; the others follow
 * @param nranks ranks of the run in all processes
 * @param id the token all processes share; null if this process has all ranks
 */
public record RankRange(int firstRank, int nranks, @Nullable UniqueId id) {
  /**
   * Checks the numbers.
   *
   * @throws InvalidArgumentException if the first rank is not one of the run's
   */
  public RankRange {
    if (nranks < 1 || firstRank < 0 || firstRank >= nranks) {
      throw new InvalidArgumentException(
          "rank " + firstRank + " of " + nranks + " ranks does not exist",
          "number ranks from 0 to nranks-1");
    }
    if (id == null && firstRank != 0) {
      throw new InvalidArgumentException(
          "first rank is " + firstRank + " in a run of one process", "share a unique id");
    }
  }

  /** All ranks in this process. */
  public static RankRange alone(Options options) {
    return new RankRange(0, options.localRanks(), null);
  }

  /** Whether this process has rank 0, which reports. */
  public boolean reports() {
    return firstRank == 0;
  }

  /**
   * The only rank of this process joins the others, as the calling thread, which gets a processor
   * of its own if there are enough.
   */
  public Communicator join(Device device, CommunicatorConfig config) {
    if (nranks <= LineProbe.PROCESSORS) {
      device.bindThread();
    }
    return Communicator.initRank(device, nranks, Objects.requireNonNull(id), firstRank, config);
  }

  /**
   * Checks that the ranks of this process exist.
   *
   * @throws InvalidArgumentException if they go beyond the last rank, or leave some to nobody
   */
  public void check(Options options) {
    int local = options.localRanks();
    if (id == null && local != nranks) {
      throw new InvalidArgumentException(
          "this process has " + local + " ranks of " + nranks, "share a unique id");
    }
    options.checkRanks(firstRank, nranks);
  }

  /**
   * The device of one of this process's ranks: the one with the rank's number, unless the options
   * name the first. GPUs are counted anew when there are fewer: ranks fill machine after machine,
   * and where NCCL allows it several share a GPU; where it does not, joining says so.
   *
   * @param local place among the ranks of this process
   */
  Device device(Backend backend, int local, Setup setup) {
    if (setup.firstDevice() >= 0) {
      return Device.get(backend, setup.firstDevice() + local);
    }
    int rank = firstRank + local;
    if (backend == Backend.CUDA) {
      return Device.get(backend, rank % Device.all(backend).size());
    }
    return Device.get(backend, rank);
  }
}
