package io.nccl4j.internal.host;

import io.nccl4j.internal.host.life.LiveRanks;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.progress.Progress;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

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
    LiveRanks.add(communicator.health());
    ProcessMemory.self().add(communicator);
    Progress.setRanks(LiveRanks.most());
  }

  void remove(HostCommunicator communicator) {
    communicators.remove(communicator);
    LiveRanks.remove(communicator.health());
    ProcessMemory.self().remove(communicator);
    Progress.setRanks(LiveRanks.most());
  }

  void add(HostExecutableGraph graph) {
    graphs.add(graph);
    ProcessMemory.self().add(graph);
  }

  void remove(HostExecutableGraph graph) {
    graphs.remove(graph);
    ProcessMemory.self().remove(graph);
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
}
