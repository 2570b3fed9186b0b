package io.nccl4j.internal.cuda;

import io.nccl4j.internal.cuda.module.PtxKernel;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.spi.Resource;
import java.util.LinkedHashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What one entry of a stream holds until the device has passed it. Slots are used again and again.
 */
final class Slot {
  /** A plan's works, linked; null for other entries. */
  @Nullable CudaWork works;

  /** A launch of a graph. */
  @Nullable LaunchedGraph graph;

  /** Buffers of a copy or fill; the run of a kernel. */
  @Nullable Resource target;

  /** See {@link #target}. */
  @Nullable Resource source;

  /** For a wait: the stream that was waited for, up to {@link #otherPosition}. */
  @Nullable StreamQueue other;

  long otherPosition;

  void clear() {
    works = null;
    graph = null;
    target = null;
    source = null;
    other = null;
  }

  /** Adds the ranks whose work this is. */
  void addRanks(Set<CudaRank> all) {
    for (CudaWork work = works; work != null; work = (CudaWork) work.next) {
      all.add(work.rank);
    }
    if (graph != null) {
      all.addAll(graph.ranks());
    }
  }

  /** The ranks whose work this is. */
  Set<CudaRank> ranks() {
    Set<CudaRank> all = new LinkedHashSet<>();
    addRanks(all);
    return all;
  }

  boolean uses(Object buffer) {
    if (Resource.isPart(target, buffer) || Resource.isPart(source, buffer)) {
      return true;
    }
    if (graph != null && graph.uses(buffer)) {
      return true;
    }
    for (CudaWork work = works; work != null; work = (CudaWork) work.next) {
      if (work.uses(buffer)) {
        return true;
      }
    }
    return false;
  }

  String describe() {
    return works != null
        ? works.describe()
        : graph != null
            ? graph.describe()
            : other != null
                ? "a wait for an event"
                : target instanceof PtxKernel.Run run ? run.describe() : "a copy or fill";
  }
}
