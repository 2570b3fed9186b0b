package io.nccl4j.internal.cuda;

import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.cuda.nccl.CudaPending;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/**
 * The communicators whose launch into a stream goes on in the background: one that does not block
 * hands its launch to a thread of NCCL. Whatever is put into the stream next would overtake it, so
 * that everything but the next operation of a group waits for launches to be done.
 */
final class StreamLaunches {
  private final List<CudaPending> underWay = new ArrayList<>();
  private volatile boolean isLaunching;

  void add(CudaPending launch) {
    if (!underWay.contains(launch)) {
      underWay.add(launch);
    }
    isLaunching = true;
  }

  /** Whether not all are known to be done. Any thread. */
  boolean areUnderWay() {
    return isLaunching;
  }

  /** Waits until what was handed to NCCL is in the stream. */
  void await() {
    if (isLaunching) {
      underWay.forEach(CudaPending::await);
      underWay.clear();
      isLaunching = false;
    }
  }

  /**
   * The same for a stream that is closed: what is not there in time is given up, by an interrupted
   * thread at once.
   */
  void finish(Supplier<Duration> limit) {
    if (!isLaunching) {
      return;
    }
    try {
      Duration most = limit.get();
      for (CudaPending launch : underWay) {
        launch.await(most, () -> launch.describe() + " was unfinished when its stream was closed");
      }
    } catch (InterruptedWaitException e) {
      underWay.forEach(CudaPending::giveUp);
    }
    underWay.clear();
    isLaunching = false;
  }

  /** Whether what was handed to NCCL is in the stream; asks NCCL. */
  boolean areDone() {
    if (!isLaunching) {
      return true;
    }
    for (CudaPending launch : underWay) {
      if (!launch.isDone()) {
        return false;
      }
    }
    underWay.clear();
    isLaunching = false;
    return true;
  }
}
