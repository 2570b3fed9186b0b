package io.nccl4j.internal.span;

import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.PortCell;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.Failures;
import org.jspecify.annotations.Nullable;

/**
 * What goes wrong between this rank and those of other hosts: one of them is gone, calls something
 * else, or sends what no rank sends. The first such thing fails the communicator, and every
 * operation that looks here afterwards.
 *
 * <p>By the owner of the port.
 */
final class Faults implements Wire.Listener {
  /** A connection that breaks may lose what its peer said last: others of its host say it, too. */
  private static final long REASON_NANOS = 100_000_000;

  private final Port port;
  private final Hosts hosts;
  private final int rank;

  @SuppressWarnings("NullAway.Init") // by begin
  private PortCell cell;

  @SuppressWarnings("NullAway.Init") // by begin
  private Wording wording;

  @SuppressWarnings("NullAway.Init") // by begin
  private Outside.Own own;

  @SuppressWarnings("NullAway.Init") // by begin
  private Contradictions contradictions;

  private @Nullable NcclException found;

  /** As many failures of connections as the port had at the last look. */
  private int failures;

  /** When a peer was lost that nobody was told of yet; 0 if there is none. */
  private long lostAt;

  Faults(Port port, Hosts hosts, int rank) {
    this.port = port;
    this.hosts = hosts;
    this.rank = rank;
  }

  /** Before any other call. */
  void begin(Wire wire, PortCell of, Outside.Own self, Wording words) {
    cell = of;
    own = self;
    wording = words;
    contradictions = new Contradictions(wire, self, words, rank, hosts.nranks());
  }

  /** Returns whether nothing was found and nobody is suspected: operations may go on. */
  boolean isEmpty() {
    return found == null && !contradictions.isOpen();
  }

  /** Returns whether a peer is suspected, so that operations wait for its answer. */
  boolean isSuspicious() {
    return contradictions.isOpen();
  }

  /** The peer that is suspected; −1 if none is. */
  int suspect() {
    return contradictions.suspect();
  }

  /** Throws what was found. */
  void check(EngineWork w) {
    settle();
    lookForLost(w);
    if (found != null) {
      throw Failures.again(found);
    }
  }

  /** Looks for what no operation has looked for. */
  void look() {
    boolean wasKnown = found != null;
    settle();
    lookForLost(null);
    if (found != null && !wasKnown) {
      // Other ranks of this host may wait for that one even if this rank does not.
      own.failUnlessClosed(found);
    }
  }

  /**
   * Takes what a peer sent last, if its connection has ended.
   *
   * @return whether something was taken; false also while it is not known whether the peer is lost
   * @throws io.nccl4j.NcclException that says why the peer is lost, if nothing is left to take
   */
  boolean takeLast(int peer, EngineWork w) {
    String ended = port.error(peer);
    if (ended == null || lostAt != 0 || contradictions.isOpen()) {
      return false;
    }
    if (cell.poll() > 0) {
      // It may say why.
      return true;
    }
    check(w);
    throw lost(peer, ended, w);
  }

  /** Nobody waits long for a peer to say where a contradiction began. */
  private void settle() {
    if (contradictions.isOpen()) {
      boolean isGone = port.error(contradictions.suspect()) != null;
      if (isGone) {
        // The answer may be in what it sent before it ended.
        int ignored = cell.poll();
      }
      NcclException end = contradictions.unanswered(isGone);
      found = end == null ? found : end;
    }
  }

  /**
   * Finds out who has been lost since the last look.
   *
   * @param w the operation that looks, if one does
   */
  private void lookForLost(@Nullable EngineWork w) {
    if (contradictions.isOpen()) {
      return;
    }
    if (port.failures() != failures) {
      failures = port.failures();
      lostAt = System.nanoTime() | 1;
    }
    if (lostAt == 0 || System.nanoTime() - lostAt < REASON_NANOS) {
      return;
    }
    lostAt = 0;
    // What they sent before they ended may say why.
    int ignored = cell.poll();
    for (int k = 0; k < hosts.nranks() && found == null; k++) {
      String ended = hosts.of(k) == hosts.of(rank) ? null : port.error(k);
      if (ended != null) {
        found = lost(k, ended, w);
      }
    }
  }

  private PeerFailedException lost(int k, String why, @Nullable EngineWork w) {
    String peer = "rank " + k;
    return new PeerFailedException(
        k,
        (w == null ? peer + " of " + wording.name() : w.describe() + ": " + peer)
            + ", on another host, is gone: "
            + why,
        "see that rank's message; close this communicator");
  }

  private void found(NcclException e) {
    if (found == null) {
      found = e;
      // Perhaps nobody takes a step who would throw it.
      own.failUnlessClosed(e);
    }
  }

  // ---- what the wire finds, for this thread or for the daemon

  @Override
  public void contradiction(Transfer mine, Wire.Header theirs) {
    if (mine.link.lane == Wire.MESSAGES || mine.word == theirs.word()) {
      found(contradictions.of(mine, theirs));
    } else {
      contradiction(mine.call, mine.link.peer, theirs);
    }
  }

  @Override
  public void contradiction(long call, int peer, Wire.Header theirs) {
    if (found == null) {
      contradictions.notice(call, peer, theirs);
    }
  }

  @Override
  public long[] counts(long call) {
    return contradictions.counts(call);
  }

  @Override
  public void difference(int peer, Wire.Difference theirs) {
    NcclException end = contradictions.answered(peer, theirs);
    if (end != null) {
      found(end);
    }
  }

  @Override
  public void nonsense(int peer, String what) {
    found(
        new PeerFailedException(
            peer,
            "rank " + peer + " of " + wording.name() + " sent " + what,
            "check what that rank's process runs: nccl4j never does this"));
  }
}
