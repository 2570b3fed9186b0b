package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.spi.Promise;
import java.util.function.BiConsumer;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Tells of a rank's failure, once: the flight recorder, and whoever the program has named. The
 * backends call it where a rank fails, under locks of their own perhaps, so the program's code runs
 * elsewhere; and not before the program has the communicator. Thread-safe.
 */
public final class FailureNotice {
  private static final Logger LOG = LogManager.getLogger(FailureNotice.class);

  private final String name;
  private final int rank;

  /** Null if the program wants to hear nothing. */
  private final @Nullable Promise promise;

  private final @Nullable BiConsumer<? super Communicator, ? super NcclException> listener;
  private @Nullable NcclException failure;
  private boolean isJoined;

  /** For a rank that has not failed. */
  FailureNotice(String name, int rank, CommunicatorConfig config) {
    this.name = name;
    this.rank = rank;
    listener = config.onFailure().orElse(null);
    promise = listener == null ? null : new Promise();
  }

  /** Whether somebody waits for it, so that a failure has to be noticed while nobody calls. */
  public boolean isAwaited() {
    return listener != null;
  }

  /** The first failure; null if there is none. */
  synchronized @Nullable NcclException failure() {
    return failure;
  }

  /**
   * The rank has failed; only the first call counts. Throws nothing, because the backend still has
   * to tell the other ranks.
   */
  public synchronized void failed(NcclException cause) {
    if (failure != null) {
      return;
    }
    failure = cause;
    if (isJoined && promise != null) {
      promise.settle(cause);
    }
    try {
      Recorder.HERE.failed(name, rank, cause);
    } catch (Throwable e) {
      LOG.warn("the failure of communicator {}, rank {}, is not recorded", name, rank, e);
    }
  }

  /** The program has the communicator from now on. */
  synchronized void joined(Communicator communicator) {
    isJoined = true;
    if (promise != null && listener != null) {
      var ignored =
          promise
              .future()
              .exceptionally(
                  cause -> {
                    tell(listener, communicator, (NcclException) cause);
                    return null;
                  });
      if (failure != null) {
        promise.settle(failure);
      }
    }
  }

  private static void tell(
      BiConsumer<? super Communicator, ? super NcclException> listener,
      Communicator communicator,
      NcclException cause) {
    try {
      listener.accept(communicator, cause);
    } catch (Throwable e) {
      LOG.error("the failure listener of {} threw", communicator, e);
    }
  }
}
