package io.nccl4j.internal.cuda;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.cuda.nccl.NcclCalls;
import io.nccl4j.internal.cuda.nccl.NcclHandle;
import io.nccl4j.internal.cuda.nccl.NcclResults;
import io.nccl4j.internal.spi.Interrupts;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Hands works to NCCL: a plan of one at once, or the plans of a group between NCCL's group calls.
 * One object per thread, used again. The ranks of a group are guarded from their first work to the
 * end, so that nobody aborts one in between.
 */
final class CudaLaunch {
  private static final ThreadLocal<CudaLaunch> THREADS = ThreadLocal.withInitial(CudaLaunch::new);

  private final List<CudaStream> streams = new ArrayList<>();
  private final List<CudaWork> plans = new ArrayList<>();
  private final List<CudaStream> streamOfPlan = new ArrayList<>();
  private final List<CudaRank> guarded = new ArrayList<>();
  private @Nullable NcclException failure;

  private CudaLaunch() {}

  static CudaLaunch ofThread() {
    return THREADS.get();
  }

  /**
   * Starts a single work.
   *
   * @throws NcclException if NCCL refuses it; the communicator has failed then
   */
  static void one(CudaStream stream, CudaWork work) {
    CudaRank rank = work.rank;
    CudaHealth health = rank.health();
    NcclHandle nccl = rank.nccl();
    int result;
    NcclException refused = null;
    nccl.guard().enter();
    try {
      if (health.failure() != null) {
        work.broken();
        work.free();
        rank.requireReady();
      }
      rank.deadlines().callBegins(work);
      result = NcclCalls.issue(work, rank.self(), stream.handle());
      if (NcclResults.isFailure(result)) {
        refused = NcclResults.failure(result, work.describe());
      }
    } finally {
      rank.deadlines().callEnds();
      nccl.guard().leave();
    }
    if (refused == null) {
      if (rank.pending().launched(work, result)) {
        stream.launchesFrom(rank.pending());
      }
      stream.launched(work);
      return;
    }
    health.fail(refused);
    rank.pending().completed(work);
    work.broken();
    work.free();
    NcclException cause = health.failure();
    throw cause == null || cause == refused ? refused : Interrupts.toCaller(cause);
  }

  // ---- groups

  void hold(CudaStream stream) {
    streams.add(stream);
  }

  void add(CudaStream stream, CudaWork plan) {
    plans.add(plan);
    streamOfPlan.add(stream);
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      if (!guarded.contains(work.rank)) {
        guarded.add(work.rank);
      }
    }
  }

  /** Starts the group; the first call for a group does it. */
  void start() {
    if (streams.isEmpty()) {
      return;
    }
    for (int i = 0; i < guarded.size(); i++) {
      guarded.get(i).nccl().guard().enter();
    }
    int result = NcclResults.SUCCESS;
    NcclException thrown = null;
    try {
      thrown = failedBefore();
      if (thrown == null) {
        for (int i = 0; i < guarded.size(); i++) {
          noteGroup(guarded.get(i));
        }
        result = call();
        thrown = failure;
      }
    } finally {
      for (int i = 0; i < guarded.size(); i++) {
        guarded.get(i).deadlines().callEnds();
        guarded.get(i).nccl().guard().leave();
      }
    }
    // Why a call was let go, rather than what NCCL made of it.
    NcclException reason = thrown == null ? null : failedBefore();
    finish(result, thrown);
    if (thrown != null) {
      throw reason == null ? thrown : Interrupts.toCaller(reason);
    }
  }

  /** NCCL fuses the collectives of a group, so that all ranks need the same groups. */
  private void noteGroup(CudaRank rank) {
    int size = 0;
    for (int i = 0; i < plans.size(); i++) {
      for (CudaWork work = plans.get(i); work != null; work = (CudaWork) work.next) {
        size += work.rank == rank && work.isCollective() ? 1 : 0;
      }
    }
    for (int i = 0; i < plans.size() && size > 1; i++) {
      for (CudaWork work = plans.get(i); work != null; work = (CudaWork) work.next) {
        if (work.rank == rank && work.isCollective()) {
          rank.ledger().noteGroup(work.seq, size);
        }
      }
    }
  }

  private @Nullable NcclException failedBefore() {
    for (int i = 0; i < guarded.size(); i++) {
      NcclException earlier = guarded.get(i).health().failure();
      if (earlier != null) {
        return earlier;
      }
    }
    return null;
  }

  /**
   * NCCL's group belongs to the thread of the operating system, so that nothing here may wait: a
   * virtual thread could go on elsewhere.
   */
  private int call() {
    int result = Nccl.ncclGroupStart();
    if (NcclResults.isFailure(result)) {
      failure = NcclResults.failure(result, "ncclGroupStart");
      return result;
    }
    for (int i = 0; i < plans.size() && failure == null; i++) {
      for (CudaWork work = plans.get(i); work != null; work = (CudaWork) work.next) {
        work.rank.deadlines().callBegins(work);
        result = NcclCalls.issue(work, work.rank.self(), streamOfPlan.get(i).handle());
        if (NcclResults.isFailure(result)) {
          failure = NcclResults.failure(result, work.describe());
          break;
        }
      }
    }
    result = Nccl.ncclGroupEnd();
    if (failure == null && NcclResults.isFailure(result)) {
      failure =
          NcclResults.failure(result, "a group that begins with " + plans.getFirst().describe());
    }
    return result;
  }

  private void finish(int result, @Nullable NcclException thrown) {
    if (thrown == null) {
      noteLaunches(result);
    } else {
      guarded.forEach(rank -> rank.health().fail(thrown));
      plans.forEach(CudaLaunch::drop);
    }
    streams.forEach(CudaStream::leaveLaunch);
    streams.clear();
    plans.clear();
    streamOfPlan.clear();
    guarded.clear();
    failure = null;
  }

  private void noteLaunches(int result) {
    for (int i = 0; i < plans.size(); i++) {
      CudaStream stream = streamOfPlan.get(i);
      for (CudaWork work = plans.get(i); work != null; work = (CudaWork) work.next) {
        if (work.rank.pending().launched(work, result)) {
          stream.launchesFrom(work.rank.pending());
        }
      }
      stream.launched(plans.get(i));
    }
  }

  private static void drop(CudaWork plan) {
    CudaWork work = plan;
    while (work != null) {
      CudaWork following = (CudaWork) work.next;
      work.rank.pending().completed(work);
      work.broken();
      work.free();
      work = following;
    }
  }
}
