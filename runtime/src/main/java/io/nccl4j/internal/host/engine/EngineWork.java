package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.schedule.Work;
import java.util.Objects;

/**
 * A work and how far the engines have got with it. All progress lies here, so that any thread may
 * take the next step.
 */
public abstract class EngineWork extends Work {
  public static final int QUEUED = 0;
  static final int POSTED = 1;
  static final int COPY_IN = 2;
  static final int ENTER = 3;
  static final int MOVE = 4;
  static final int LEAVE = 5;
  static final int COPY_OUT = 6;

  /** Posted, and so have all peers that it needs; of a send, in its slot. */
  static final int SHOWN = 7;

  /** Posted by all, and this rank has shown its share of the result. */
  static final int SHARED = 8;

  /** One of the constants above. */
  public int stage;

  /** The next peer to look at while waiting. */
  int cursor;

  /** The rank that a blocked work waits for. */
  public int blockedOn;

  /** A rank that was seen to have left while this work waited for it; −1 if none was. */
  public int seenLeaving;

  /** Steps that found it blocked; may wrap. */
  public int timesBlocked;

  /** The same when a rank was seen to have left. */
  public int timesBlockedThen;

  /** Whether the data travels in the outbox itself. */
  public boolean lowLatency;

  /** Whether each rank then folds a share of it for all. */
  boolean shared;

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
  public long slowSince;

  /** A work of a FIFO, or of a graph. */
  protected EngineWork(boolean captured) {
    super(captured);
  }

  /** Makes it ready to be driven; what only some stages need is set when they begin. */
  public void reset() {
    stage = QUEUED;
    cursor = 0;
    blockedOn = -1;
    seenLeaving = -1;
    timesBlocked = 0;
    slowSince = 0;
  }

  @Override
  protected String protocol() {
    return lowLatency ? "low latency" : staged ? "staged" : "direct";
  }

  /** Whether it only has to be finished: all that it needs of its peers was seen, or it is sent. */
  public boolean isMet() {
    return stage == SHOWN;
  }

  public HostBuffer sendBuffer() {
    return (HostBuffer) Objects.requireNonNull(send);
  }

  public HostBuffer recvBuffer() {
    return (HostBuffer) Objects.requireNonNull(recv);
  }

  /** Whether its result lies in a part of a buffer. */
  public boolean writes(HostBuffer buffer) {
    return recv != null && recvBuffer().overlaps(buffer);
  }
}
