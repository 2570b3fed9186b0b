package io.nccl4j.cuda;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Hands works to NCCL: a plan of one at once, or the plans of a group between NCCL's group calls.
 * One object per thread, used again. The communicators of a group are guarded from their first work
 * to the end, so that nobody aborts one in between.
 */
final class CudaLaunch {
  private static final ThreadLocal<CudaLaunch> THREADS = ThreadLocal.withInitial(CudaLaunch::new);

  private final List<CudaStream> streams = new ArrayList<>();
  private final List<CudaWork> plans = new ArrayList<>();
  private final List<CudaStream> streamOfPlan = new ArrayList<>();
  private final List<CudaCommunicator> guarded = new ArrayList<>();
  private @Nullable NcclException failure;
  private boolean begun;

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
    CudaCommunicator communicator = work.communicator;
    int result;
    NcclException refused = null;
    communicator.guard().enter();
    try {
      if (communicator.failureCause() != null) {
        work.free();
        communicator.requireReady();
      }
      result = NcclCalls.issue(work, communicator.handle(), stream);
      if (NcclResults.isFailure(result)) {
        refused = NcclResults.failure(result, work.describe());
      }
    } finally {
      communicator.guard().leave();
    }
    if (refused == null) {
      communicator.launched(work, stream, result);
      stream.launched(work);
      return;
    }
    communicator.fail(refused);
    communicator.completed(work);
    work.free();
    throw refused;
  }

  // ---- groups

  void hold(CudaStream stream) {
    streams.add(stream);
  }

  void add(CudaStream stream, CudaWork plan) {
    if (plans.isEmpty()) {
      begin();
    }
    plans.add(plan);
    streamOfPlan.add(stream);
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      CudaCommunicator communicator = work.communicator;
      if (!guarded.contains(communicator)) {
        communicator.guard().enter();
        guarded.add(communicator);
      }
      NcclException earlier = communicator.failureCause();
      if (failure == null && earlier != null) {
        failure = earlier;
      }
      if (failure == null) {
        int result = NcclCalls.issue(work, communicator.handle(), stream);
        if (NcclResults.isFailure(result)) {
          failure = NcclResults.failure(result, work.describe());
        }
      }
    }
  }

  /** Here, not earlier: what fails from now on gives the works back. */
  private void begin() {
    int result = Nccl.ncclGroupStart();
    begun = !NcclResults.isFailure(result);
    if (!begun) {
      failure = NcclResults.failure(result, "ncclGroupStart");
    }
  }

  /** Ends the group; the first call for a group does it. */
  void start() {
    if (streams.isEmpty()) {
      return;
    }
    int result = begun ? Nccl.ncclGroupEnd() : NcclResults.SUCCESS;
    begun = false;
    if (failure == null && NcclResults.isFailure(result)) {
      failure =
          NcclResults.failure(result, "a group that begins with " + plans.getFirst().describe());
    }
    guarded.forEach(communicator -> communicator.guard().leave());
    NcclException thrown = failure;
    if (thrown == null) {
      noteLaunches(result);
    } else {
      guarded.forEach(communicator -> communicator.fail(thrown));
      plans.forEach(CudaLaunch::drop);
    }
    streams.forEach(CudaStream::leaveLaunch);
    streams.clear();
    plans.clear();
    streamOfPlan.clear();
    guarded.clear();
    failure = null;
    if (thrown != null) {
      throw thrown;
    }
  }

  private void noteLaunches(int result) {
    for (int i = 0; i < plans.size(); i++) {
      CudaStream stream = streamOfPlan.get(i);
      for (CudaWork work = plans.get(i); work != null; work = (CudaWork) work.next) {
        work.communicator.launched(work, stream, result);
      }
      stream.launched(plans.get(i));
    }
  }

  private static void drop(CudaWork plan) {
    CudaWork work = plan;
    while (work != null) {
      CudaWork following = (CudaWork) work.next;
      work.communicator.completed(work);
      work.free();
      work = following;
    }
  }
}
