package io.nccl4j.internal.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.memory.CudaBudget;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.JoinMemory;
import io.nccl4j.internal.cuda.nccl.NcclConfig;
import io.nccl4j.internal.cuda.nccl.NcclJoin;
import io.nccl4j.internal.cuda.nccl.NcclTuning;
import io.nccl4j.internal.cuda.nccl.SharedMemoryNeed;
import io.nccl4j.internal.cuda.nccl.Team;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Supplier;

/**
 * How communicators come about by joining: it is looked whether they fit, NCCL makes their handles,
 * and what goes wrong leaves none of them behind.
 */
final class CudaInit {
  /** A rank that joins. */
  record Rank(int rank, DeviceMemory memory) {}

  private final List<Rank> ranks;
  private final int nranks;
  private final Team team;
  private final CommunicatorConfig asked;
  private final String name;

  /** Prepares to initialize these ranks; the team is told of each. */
  CudaInit(List<Rank> ranks, int nranks, Team team, CommunicatorConfig config, String name) {
    this.ranks = ranks;
    this.nranks = nranks;
    this.team = team;
    this.asked = config;
    this.name = name;
  }

  /**
   * Joins.
   *
   * @param ids gives the bytes of one unique id, or of several, after the memory was looked at
   * @throws io.nccl4j.memory.MemoryBudgetException if a rank would take more memory than it may
   */
  List<CudaCommunicator> join(Supplier<byte[]> ids) {
    NcclJoin.requireOwnGpus(nativeRanks());
    ranks.forEach(rank -> team.expect(rank.rank, nranks));
    if (ranks.size() < nranks) {
      // The ranks of other processes are told what goes wrong from here on.
      String common = HexFormat.of().formatHex(ids.get());
      ranks.forEach(rank -> team.meet(common, nranks, rank.rank));
    }
    try {
      CudaBudget.Plan plan = plan();
      byte[] id = ids.get();
      if (id.length > UniqueId.BYTES) {
        Features.SCALABLE_INIT.require();
      }
      return join(plan, id, false);
    } catch (NcclException e) {
      team.gaveUp(ranks.getFirst().rank, name, e);
      ranks.forEach(rank -> team.unmet(rank.rank, e));
      throw e;
    }
  }

  /** Joins, as one new rank, a communicator that others grow. */
  CudaCommunicator joinGrowing(UniqueId id) {
    Features.GROW.require();
    ranks.forEach(rank -> team.expect(rank.rank, nranks));
    return join(plan(), id.toBytes(), true).getFirst();
  }

  private List<NcclJoin.Rank> nativeRanks() {
    return ranks.stream().map(rank -> new NcclJoin.Rank(rank.rank, rank.memory.gpu())).toList();
  }

  private List<DeviceMemory> devices() {
    return ranks.stream().map(Rank::memory).toList();
  }

  /** What NCCL is told so that the ranks fit. */
  private CudaBudget.Plan plan() {
    NcclConfig.requireKnown(NcclOptions.of(asked));
    NcclTuning.apply(asked);
    CudaBudget.Plan plan = CudaBudget.plan(devices(), nranks, asked, name);
    List<Gpu> gpus = devices().stream().map(DeviceMemory::gpu).toList();
    SharedMemoryNeed.require(gpus, nranks, plan.config(), name);
    return plan;
  }

  private List<CudaCommunicator> join(CudaBudget.Plan plan, byte[] id, boolean grows) {
    CommunicatorConfig config = plan.config();
    JoinMemory memory = new JoinMemory(devices(), plan.prediction());
    NcclJoin join = new NcclJoin(nativeRanks(), nranks, id, grows, team, config, name);
    List<CudaCommunicator> joined = new ArrayList<>();
    try {
      join.run();
      for (Rank rank : ranks) {
        team.met(rank.rank, rank.rank);
        joined.add(
            CudaCommunicator.create(
                rank.rank, nranks, rank.memory, join.handle(joined.size()), team, config, name));
        joined.getLast().own().nccl().keep(join.nativeName());
      }
      for (int i = 0; i < joined.size(); i++) {
        CudaCommunicator communicator = joined.get(i);
        communicator.joined(memory.joined(i, plan.prediction(), communicator.calls()));
      }
    } catch (NcclException e) {
      // Before the aborts, which would be the reason otherwise.
      ranks.forEach(rank -> team.unmet(rank.rank, e));
      join.abandon(joined.size(), e);
      joined.forEach(CudaCommunicator::abort);
      joined.forEach(CudaCommunicator::close);
      memory.gaveUp();
      throw e;
    }
    return joined;
  }
}
