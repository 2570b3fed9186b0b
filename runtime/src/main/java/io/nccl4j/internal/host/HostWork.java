package io.nccl4j.internal.host;

import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.memory.Quarantine;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.schedule.Work;
import org.jspecify.annotations.Nullable;

/**
 * A work of the host engine: the operation and how far it has got. All progress lies here, so that
 * any thread may take the next step.
 */
final class HostWork extends Work {
  static final int QUEUED = 0;
  static final int POSTED = 1;
  static final int COPY_IN = 2;
  static final int ENTER = 3;
  static final int MOVE = 4;
  static final int LEAVE = 5;
  static final int COPY_OUT = 6;

  /** Posted, and so have all peers that it needs. */
  static final int SHOWN = 7;

  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  HostCommunicator communicator;

  /** One of the constants above. */
  int stage;

  /** The next peer to look at while waiting. */
  int cursor;

  /** The rank that a blocked work waits for. */
  int blockedOn;

  /** A rank that was seen to have left while this work waited for it; −1 if none was. */
  int seenLeaving;

  /** Steps that found it blocked; may wrap. */
  int timesBlocked;

  /** The same when a rank was seen to have left. */
  int timesBlockedThen;

  /** Whether the data travels in the outbox itself. */
  boolean lowLatency;

  /** Whether the data goes through the staging areas, piece by piece. */
  boolean staged;

  /** First element of the current piece; 0 unless staged. */
  long piece;

  /** Elements of a piece per block; {@link Long#MAX_VALUE} unless staged. */
  long pieceLength;

  /** Elements of the largest block of any rank. */
  long longest;

  /** What of the current piece was moved: number of the block, and bytes or elements in it. */
  int item;

  long position;

  /** Barrier count to wait for; for a lane the chunk. */
  long target;

  /** Clock, in ns, when this work first turned slow; 0 before. */
  long slowSince;

  /** Whether a graph is done with it in the current launch. */
  boolean finished;

  /** Makes it ready to be driven; what only some stages need is set when they begin. */
  void reset() {
    stage = QUEUED;
    cursor = 0;
    blockedOn = -1;
    seenLeaving = -1;
    timesBlocked = 0;
    slowSince = 0;
  }

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
    copy.communicator = communicator;
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

  /**
   * Notes what peers may still touch of it, since it was given up. Low-latency and staged
   * operations, and messages, leave a rank's buffers to that rank.
   */
  void abandon() {
    if (stage == QUEUED || communicator.nranks() == 1) {
      return;
    }
    Quarantine quarantine = ProcessMemory.self().quarantine();
    if (send != null) {
      quarantine.add(sendBuffer(), communicator.health(), false);
    }
    if (recv != null) {
      boolean viaStaging = communicator.spansProcesses() && !recvBuffer().isShared();
      boolean written =
          isCollective()
              && !lowLatency
              && !viaStaging
              && receives(communicator.rank())
              && (operation.isShared() || operation.receivers() == Party.ROOT);
      quarantine.add(recvBuffer(), communicator.health(), written);
    }
  }

  HostBuffer sendBuffer() {
    return (HostBuffer) java.util.Objects.requireNonNull(send);
  }

  HostBuffer recvBuffer() {
    return (HostBuffer) java.util.Objects.requireNonNull(recv);
  }

  @Override
  public HostCommunicator owner() {
    return communicator;
  }

  /** The stream it was called on. */
  @Nullable HostStream hostStream() {
    return HostStream.of(stream);
  }
}
