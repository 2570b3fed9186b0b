package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.ScheduledCommunicator;

/**
 * One rank of a communicator as its works, streams and graphs see it: whether it goes on, how long
 * to wait for it, and what NCCL still does for it.
 */
public final class CudaRank extends Padded {
  private final Communicator communicator;
  private final NcclRank self;
  private final CudaHolders holders;
  private final CudaHealth health;
  private final CudaDeadlines deadlines;
  private final CudaPending pending;
  private boolean suspended;
  private volatile boolean closed;

  /** A rank that goes on. */
  public CudaRank(ScheduledCommunicator<?> communicator, NcclRank self, Team team) {
    this.communicator = communicator;
    this.self = self;
    holders = new CudaHolders(self.name());
    health = new CudaHealth(self, team, holders, communicator.failureNotice());
    deadlines = new CudaDeadlines(self, team, health, communicator.failureNotice().isAwaited());
    pending = new CudaPending(self, health, deadlines);
  }

  /** What the program calls it by. */
  public Communicator communicator() {
    return communicator;
  }

  // ---- its parts

  public NcclRank self() {
    return self;
  }

  public String name() {
    return self.name();
  }

  public CommunicatorConfig config() {
    return self.config();
  }

  public NcclHandle nccl() {
    return self.handle();
  }

  public CudaLedger ledger() {
    return self.ledger();
  }

  public CudaHolders holders() {
    return holders;
  }

  public CudaHealth health() {
    return health;
  }

  public CudaDeadlines deadlines() {
    return deadlines;
  }

  public CudaPending pending() {
    return pending;
  }

  // ---- whether it goes on

  /** Throws unless operations are accepted. */
  public void requireReady() {
    requireAlive();
    AbortedException stopped = health.revoked();
    if (stopped != null) {
      throw new InvalidUsageException(
              stopped.problem(), "shrink or split it, close it, or create a new one")
          .causedBy(stopped);
    }
    requireResumed();
  }

  /** Throws while it is suspended. */
  public void requireResumed() {
    if (suspended) {
      throw new InvalidUsageException(
          "communicator " + name() + " is suspended", "resume it first");
    }
  }

  /** Throws unless NCCL's communicator is there. */
  public void requireAlive() {
    if (closed) {
      throw self.wording().closed();
    }
    pending.await();
    NcclException cause = health.failure();
    if (cause != null) {
      health.told();
      throw self.wording().failed(cause);
    }
  }

  /** As {@link #requireAlive}, without waiting for what may be stuck. */
  public void requireOpen() {
    if (!pending.isUnderWay() || closed || health.failure() != null) {
      requireAlive();
    }
  }

  /** Whether NCCL has put its memory aside. */
  public boolean isSuspended() {
    return suspended;
  }

  public void setSuspended(boolean suspended) {
    this.suspended = suspended;
  }

  public boolean isClosed() {
    return closed;
  }

  /** It is closed from now on. */
  public void setClosed() {
    closed = true;
  }

  /** After a look. */
  public Communicator.State state() {
    return closed ? Communicator.State.CLOSED : health.state();
  }
}
