package io.nccl4j.internal.host;

import io.nccl4j.Communicator;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.memory.Quarantine;
import io.nccl4j.internal.operation.Party;

/** A work of a communicator of this backend. */
final class HostWork extends EngineWork {
  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  HostRank rank;

  /** Whether a graph is done with it in the current launch. */
  boolean finished;

  /** A work of a FIFO. */
  HostWork() {
    this(false);
  }

  HostWork(boolean captured) {
    super(captured);
  }

  /** The same operation for another executable graph. */
  HostWork copy() {
    HostWork copy = new HostWork(true);
    copy.rank = rank;
    copy.order = order;
    copy.operation = operation;
    copy.type = type;
    copy.op = op;
    copy.count = count;
    copy.root = root;
    copy.encode();
    copy.send = send;
    copy.recv = recv;
    copy.sendCounts = sendCounts;
    copy.sendDisplacements = sendDisplacements;
    copy.recvCounts = recvCounts;
    copy.recvDisplacements = recvDisplacements;
    return copy;
  }

  @Override
  protected String protocol() {
    return rank.spansHosts() ? "network" : super.protocol();
  }

  @Override
  protected String awaited() {
    return rank.explanation().missing(this);
  }

  /**
   * Notes what peers may still touch of it, since it was given up. Low-latency and staged
   * operations, and messages, leave a rank's buffers to that rank.
   */
  void abandon() {
    Outside outside = rank.outside();
    if (outside != null) {
      outside.abandon();
    }
    if (stage == QUEUED || rank.part().nranks() == 1) {
      return;
    }
    Quarantine quarantine = ProcessMemory.self().quarantine();
    if (send != null) {
      quarantine.add(sendBuffer(), rank.health(), false);
    }
    if (recv != null) {
      boolean viaStaging = rank.part().spansProcesses() && !recvBuffer().isShared();
      boolean written =
          isCollective()
              && !lowLatency
              && !viaStaging
              && receives(rank.rank())
              && (operation.isShared() || operation.receivers() == Party.ROOT);
      quarantine.add(recvBuffer(), rank.health(), written);
    }
  }

  @Override
  public Communicator owner() {
    return rank.communicator();
  }
}
