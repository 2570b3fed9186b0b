package io.nccl4j.internal.host.life;

import io.nccl4j.InternalErrorException;
import io.nccl4j.internal.host.layout.RankState;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Predicate;

/** The ranks of this process that have not closed. Thread-safe. */
public final class LiveRanks {
  private static final List<Health> RANKS = new CopyOnWriteArrayList<>();

  private LiveRanks() {}

  /** A rank has come. */
  public static void add(Health rank) {
    RANKS.add(rank);
  }

  /** A rank leaves. */
  public static void remove(Health rank) {
    RANKS.remove(rank);
  }

  /** The most ranks of one communicator that share the processors here. */
  public static int mostSharing() {
    return RANKS.stream().mapToInt(Health::sharing).max().orElse(1);
  }

  /** Fails ranks because a thread of this process that they rely on is of no use. */
  public static void failAll(Predicate<Health> which, String problem, Throwable cause) {
    for (Health rank : RANKS) {
      if (which.test(rank)) {
        rank.failUnlessClosed(
            new InternalErrorException(problem + ": " + cause, "restart the process")
                .causedBy(cause),
            RankState.ERROR);
      }
    }
  }

  /**
   * Lets ranks that are in no call learn that their communicator has failed. Until they have, their
   * peers must not use the buffers of what was given up.
   */
  public static void lookAtPeers() {
    for (Health rank : RANKS) {
      if (rank.hasNews()) {
        rank.lookUnlessClosed();
      }
    }
  }
}
