package io.nccl4j.internal.host;

import io.nccl4j.InternalErrorException;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Predicate;

/** The communicators and graphs of this process. Thread-safe. */
final class HostProcess {
  private static final class Holder {
    static final HostProcess SELF = new HostProcess();
  }

  private final List<HostCommunicator> communicators = new CopyOnWriteArrayList<>();
  private final List<HostExecutableGraph> graphs = new CopyOnWriteArrayList<>();

  private HostProcess() {}

  static HostProcess self() {
    return Holder.SELF;
  }

  void add(HostCommunicator communicator) {
    communicators.add(communicator);
    ProcessMemory.self().add(communicator);
    Progress.setRanks(mostRanks());
  }

  void remove(HostCommunicator communicator) {
    communicators.remove(communicator);
    ProcessMemory.self().remove(communicator);
    Progress.setRanks(mostRanks());
  }

  /** Fails communicators because a thread of this process that they rely on is of no use. */
  void failAll(Predicate<HostCommunicator> which, String problem, Throwable cause) {
    for (HostCommunicator communicator : communicators) {
      if (which.test(communicator)) {
        communicator.failUnlessClosed(
            new InternalErrorException(problem + ": " + cause, "restart the process")
                .causedBy(cause),
            RankState.ERROR);
      }
    }
  }

  void add(HostExecutableGraph graph) {
    graphs.add(graph);
    ProcessMemory.self().add(graph);
  }

  void remove(HostExecutableGraph graph) {
    graphs.remove(graph);
    ProcessMemory.self().remove(graph);
  }

  private int mostRanks() {
    return communicators.stream().mapToInt(HostCommunicator::nranks).max().orElse(1);
  }

  /** How long a stream with these works may take to close: as long as their communicators. */
  Duration closeTimeout(HostStream stream, Duration otherwise) {
    Duration longest = Duration.ZERO;
    for (HostCommunicator communicator : communicators) {
      if (communicator.hasWorkIn(stream)) {
        longest = Collections.max(List.of(longest, communicator.config().closeTimeout()));
      }
    }
    for (HostExecutableGraph graph : graphs) {
      if (graph.isQueuedIn(stream)) {
        longest = Collections.max(List.of(longest, graph.closeTimeout(otherwise)));
      }
    }
    return longest.isZero() ? otherwise : longest;
  }

  /**
   * Lets ranks that are in no call learn that their communicator has failed. Until they have, their
   * peers must not use the buffers of what was given up.
   */
  void lookAtPeers() {
    for (HostCommunicator communicator : communicators) {
      if (communicator.health().hasNews()) {
        communicator.lookAtPeers();
      }
    }
  }
}
