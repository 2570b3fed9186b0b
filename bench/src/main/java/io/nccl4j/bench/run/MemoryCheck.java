package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.NcclException;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.result.PredictedMemory;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Compares what NCCL has taken for the ranks of a run with what is predicted for its program. */
final class MemoryCheck {
  private static final double UNKNOWN = Double.POSITIVE_INFINITY;

  private final Program program;
  private final int[] roots;
  private final int nranks;
  private final MemoryQuery start;

  /**
   * A check of one run.
   *
   * @param roots of the operations
   * @param nranks that operate together
   */
  MemoryCheck(Program program, Options options, int[] roots, int nranks, CommunicatorHosts hosts) {
    this.program = program;
    this.roots = roots;
    this.nranks = nranks;
    int mostOnOneHost = hosts.ranks().stream().mapToInt(host -> host.size()).max().orElse(nranks);
    this.start =
        MemoryMeasurement.query(Backend.CUDA, nranks)
            .with(Lever.RANKS_PER_NODE, mostOnOneHost)
            .with(Lever.RANKS_PER_PROCESS, Math.min(options.localRanks(), nranks))
            .with(options.setup().config())
            .withEnvironment(System.getenv());
  }

  /** What a rank will have taken when all operations have run. */
  long predicted(int rank) {
    int both = 0;
    int to = 0;
    int from = 0;
    for (int peer = 0; peer < nranks; peer++) {
      if (peer != rank) {
        boolean sends = messages(rank, peer);
        boolean receives = messages(peer, rank);
        both += sends && receives ? 1 : 0;
        to += sends && !receives ? 1 : 0;
        from += receives && !sends ? 1 : 0;
      }
    }
    MemoryPrediction prediction =
        MemoryPrediction.of(
            start
                .with(Lever.PEERS, both)
                .with(Lever.SEND_PEERS, to)
                .with(Lever.RECEIVE_PEERS, from));
    return prediction.bytes(MemoryPlace.DEVICE) - prediction.bytes(MemoryPurpose.BARRIER);
  }

  private boolean messages(int from, int to) {
    return IntStream.of(roots).anyMatch(root -> program.sends(from, to, nranks, root));
  }

  /**
   * The comparison, the same on all threads; every thread of the run calls it. Null if NCCL does
   * not count what it takes.
   */
  @Nullable PredictedMemory compare(RankSet ranks, Crew crew) {
    double least = UNKNOWN;
    double most = -UNKNOWN;
    long[] first = new long[2];
    for (LocalRank rank : ranks) {
      long predicted = predicted(rank.rank());
      long taken = taken(rank);
      double difference = taken < 0 ? UNKNOWN : taken - predicted;
      least = Math.min(least, difference);
      most = Math.max(most, difference);
      if (rank.world().rank() == 0) {
        first[0] = predicted;
        first[1] = taken;
      }
    }
    double highest = crew.max(most);
    double lowest = -crew.max(-least);
    double predicted = crew.sum(first[0]);
    double taken = crew.sum(first[1]);
    return highest == UNKNOWN
        ? null
        : new PredictedMemory((long) predicted, (long) taken, (long) lowest, (long) highest);
  }

  /** What NCCL says; −1 if it does not. */
  private static long taken(LocalRank rank) {
    try {
      return NcclCommunicator.of(rank.communicator()).memoryStatistics().totalBytes();
    } catch (NcclException olderOrNotCounting) {
      return -1;
    }
  }
}
