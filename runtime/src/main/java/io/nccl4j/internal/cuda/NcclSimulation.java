package io.nccl4j.internal.cuda;

import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclSimInfo_v22200;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.NcclCalls;
import io.nccl4j.internal.cuda.nccl.NcclConfig;
import io.nccl4j.internal.cuda.nccl.NcclResults;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.Work;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** A group that NCCL plans and does not start. */
final class NcclSimulation {
  private static final int INVALID_ARGUMENT = 4;

  private NcclSimulation() {}

  static Duration run(Runnable operations) {
    Features.SIMULATE.require();
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "simulate: a group is open on this thread", "launch or close the group first");
    }
    Group group = GroupScope.open();
    try {
      operations.run();
      return estimate(works(GroupScope.collected()));
    } finally {
      // Gives the works back.
      group.close();
    }
  }

  private static List<CudaWork> works(List<Work> collected) {
    List<CudaWork> works = new ArrayList<>();
    for (Work work : collected) {
      if (!(work instanceof CudaWork own)) {
        throw new InvalidUsageException(
            "simulate: an operation is not of the cuda backend", "NCCL can estimate only its own");
      }
      if (own.isCaptured()) {
        throw new InvalidUsageException(
            "simulate: a stream is being captured", "use a stream outside captures");
      }
      // NCCL drops the wish to simulate when it hands a group to its own thread: it would run it.
      if (!NcclConfig.isBlocking(own.rank.config())) {
        throw new InvalidUsageException(
            "simulate: communicator " + own.rank.name() + " does not block",
            "create it with NcclOptions.builder().blocking(true)");
      }
      works.add(own);
    }
    if (works.isEmpty()) {
      throw new InvalidUsageException(
          "simulate: no operation was called", "call operations of a communicator in it");
    }
    return works;
  }

  /** As for a launch, nothing may wait between NCCL's group calls: the guards are taken before. */
  private static Duration estimate(List<CudaWork> works) {
    Set<CudaRank> ranks = new LinkedHashSet<>();
    works.forEach(work -> ranks.add(work.rank));
    NcclException failure;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment info = ncclSimInfo_v22200.allocate(arena);
      NcclStructs.fillSimInfo(info);
      ranks.forEach(rank -> rank.nccl().guard().enter());
      int result;
      try {
        result = plan(works, info);
        failure = failure(result);
        ranks.forEach(rank -> rank.self().reductions().release());
      } finally {
        ranks.forEach(rank -> rank.nccl().guard().leave());
      }
      if (failure == null) {
        float micros = ncclSimInfo_v22200.estimatedTime(info);
        return Duration.ofNanos(micros > 0 ? (long) (micros * 1e3) : 0);
      }
      fail(ranks, result, failure);
    }
    throw failure;
  }

  private static @Nullable NcclException failure(int result) {
    if (result == NcclResults.IN_PROGRESS) {
      // A file of variables, which only NCCL reads, can have the last word.
      return new InvalidUsageException(
          "simulate: NCCL does not block, whatever was set, and runs the operations",
          "remove NCCL_COMM_BLOCKING from NCCL's configuration file; create new communicators");
    }
    return NcclResults.isFailure(result) ? NcclResults.failure(result, "simulate") : null;
  }

  private static int plan(List<CudaWork> works, MemorySegment info) {
    int result = Nccl.ncclGroupStart();
    if (NcclResults.isFailure(result)) {
      return result;
    }
    for (int i = 0; i < works.size() && !NcclResults.isFailure(result); i++) {
      CudaWork work = works.get(i);
      CudaStream stream = Objects.requireNonNull(CudaStream.of(work.stream));
      result = NcclCalls.issue(work, work.rank.self(), stream.handle());
    }
    int end = Nccl.ncclGroupSimulateEnd(info);
    return NcclResults.isFailure(result) ? result : end;
  }

  private static void fail(Set<CudaRank> ranks, int result, @Nullable NcclException failure) {
    if (failure != null && result != INVALID_ARGUMENT) {
      ranks.forEach(rank -> rank.health().fail(failure));
    }
  }
}
