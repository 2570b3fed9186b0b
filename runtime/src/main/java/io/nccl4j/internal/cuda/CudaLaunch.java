package io.nccl4j.internal.cuda;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.cuda.nccl.NcclCalls;
import io.nccl4j.internal.cuda.nccl.NcclHandle;
import io.nccl4j.internal.cuda.nccl.NcclResults;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Hands works to NCCL: a plan by itself, or the plans of a group of several streams or ranks
 * between NCCL's group calls. One object per thread, used again. The ranks of a group are guarded
 * from their first work to the end, so that nobody aborts one in between.
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
   * Starts a plan of one rank: a work as it is, several as a group of NCCL's.
   *
   * @throws NcclException if NCCL refuses it; the communicator has failed then
   */
  static void one(CudaStream stream, CudaWork plan) {
    CudaRank rank = plan.rank;
    CudaHealth health = rank.health();
    NcclHandle nccl = rank.nccl();
    MemorySegment handle = stream.handle();
    int result;
    NcclException refused;
    nccl.guard().enter();
    try {
      if (health.failure() != null) {
        drop(plan);
        rank.requireReady();
      }
      if (plan.next == null) {
        refused = null;
        result = issue(plan, handle);
        if (NcclResults.isFailure(result)) {
          refused = NcclResults.failure(result, plan.describe());
        }
      } else {
        noteGroup(plan, rank, collectives(plan, rank));
        result = Nccl.ncclGroupStart();
        if (NcclResults.isFailure(result)) {
          refused = notStarted(result);
        } else {
          refused = issueAll(plan, handle);
          result = Nccl.ncclGroupEnd();
          if (refused == null && NcclResults.isFailure(result)) {
            refused = notEnded(result, plan);
          }
        }
      }
    } finally {
      rank.deadlines().callEnds();
      nccl.guard().leave();
    }
    if (refused == null) {
      launched(stream, plan, result);
      return;
    }
    health.fail(refused);
    drop(plan);
    NcclException cause = health.failure();
    throw cause == null || cause == refused ? refused : Interrupts.toCaller(cause);
  }

  private static int issue(CudaWork work, MemorySegment stream) {
    work.rank.deadlines().callBegins(work);
    return NcclCalls.issue(work, work.rank.self(), stream);
  }

  /** Issues the works of a plan, within a group of NCCL's; what it refuses, or null. */
  private static @Nullable NcclException issueAll(CudaWork plan, MemorySegment stream) {
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      int result = issue(work, stream);
      if (NcclResults.isFailure(result)) {
        return NcclResults.failure(result, work.describe());
      }
    }
    return null;
  }

  private static NcclException notStarted(int result) {
    return NcclResults.failure(result, "ncclGroupStart");
  }

  private static NcclException notEnded(int result, CudaWork first) {
    return NcclResults.failure(result, "a group that begins with " + first.describe());
  }

  /** Notes what NCCL has accepted. */
  private static void launched(CudaStream stream, CudaWork plan, int result) {
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      if (work.rank.pending().launched(work, result)) {
        stream.launchesFrom(work.rank.pending());
      }
    }
    stream.launched(plan);
  }

  private static int collectives(CudaWork plan, CudaRank rank) {
    int count = 0;
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      count += work.rank == rank && work.isCollective() ? 1 : 0;
    }
    return count;
  }

  /** NCCL fuses the collectives of a group, so that all ranks need the same groups. */
  private static void noteGroup(CudaWork plan, CudaRank rank, int size) {
    for (CudaWork work = plan; size > 1 && work != null; work = (CudaWork) work.next) {
      if (work.rank == rank && work.isCollective()) {
        rank.ledger().noteGroup(work.seq, size);
      }
    }
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

  private void noteGroup(CudaRank rank) {
    int size = 0;
    for (int i = 0; i < plans.size(); i++) {
      size += collectives(plans.get(i), rank);
    }
    for (int i = 0; i < plans.size(); i++) {
      noteGroup(plans.get(i), rank, size);
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
      failure = notStarted(result);
      return result;
    }
    for (int i = 0; i < plans.size() && failure == null; i++) {
      failure = issueAll(plans.get(i), streamOfPlan.get(i).handle());
    }
    result = Nccl.ncclGroupEnd();
    if (failure == null && NcclResults.isFailure(result)) {
      failure = notEnded(result, plans.getFirst());
    }
    return result;
  }

  private void finish(int result, @Nullable NcclException thrown) {
    if (thrown == null) {
      for (int i = 0; i < plans.size(); i++) {
        launched(streamOfPlan.get(i), plans.get(i), result);
      }
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
