package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.net.Port;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.stream.IntStream;

/**
 * What hosts tell each other of their ranks: that one has failed or leaves, and on request what
 * each has called last. The first rank of a host, its leader, hears for all of them.
 *
 * <p>By the owner of the port, unless a method says otherwise.
 */
final class News implements Wire.NewsListener {
  private final Hosts hosts;
  private final int host;
  private final Port port;
  private final Faults faults;

  @SuppressWarnings("NullAway.Init") // by begin
  private Wire wire;

  @SuppressWarnings("NullAway.Init") // by begin
  private Outside.Own own;

  /** Whether something of this rank is news for the others. */
  private volatile boolean isUntold;

  private volatile boolean hasAsked;

  /** How often each host's leader has told news since it was asked. */
  private final AtomicIntegerArray heard;

  /**
   * Nothing to tell yet.
   *
   * @param host the one of this rank
   * @param faults hears of news that make no sense
   */
  News(Hosts hosts, int host, Port port, Faults faults) {
    this.hosts = hosts;
    this.host = host;
    this.port = port;
    this.faults = faults;
    heard = new AtomicIntegerArray(hosts.count());
  }

  /** Before any other call. */
  void begin(Wire by, Outside.Own self) {
    wire = by;
    own = self;
  }

  // ---- telling

  /** There is something to tell. Any thread. */
  void add() {
    isUntold = true;
  }

  /**
   * Tells the others that ranks of this host have failed, if {@link #add} was called. This rank may
   * have failed because another one of its host did, whose own news may come later; ranks that have
   * a connection to this one hear of both before they see the port closed.
   */
  void tell() {
    if (!isUntold) {
      return;
    }
    isUntold = false;
    MemorySegment news = Arena.ofAuto().allocate(Outside.NEWS_BYTES);
    for (int i = 0; i < hosts.size(host); i++) {
      int local = hosts.rank(host, i);
      own.say(local, news, 0);
      for (int k = 0; k < hosts.nranks(); k++) {
        if (hosts.of(k) != host && hears(k)) {
          wire.tell(k, local, news);
        }
      }
    }
  }

  /** Returns whether a rank elsewhere is told what becomes of this one. */
  private boolean hears(int k) {
    return k == hosts.leader(hosts.of(k)) || wire.hasTalkedTo(k) || port.isConnected(k);
  }

  @Override
  public void question(int peer) {
    MemorySegment news = Arena.ofAuto().allocate(Outside.NEWS_BYTES);
    for (int i = 0; i < hosts.size(host); i++) {
      int local = hosts.rank(host, i);
      own.say(local, news, 0);
      wire.tell(peer, local, news);
    }
  }

  // ---- hearing

  /** Asks the leaders of all other hosts what their ranks have called last. */
  void ask() {
    hasAsked = true;
    for (int h = 0; h < hosts.count(); h++) {
      heard.set(h, 0);
      if (h != host) {
        wire.ask(hosts.leader(h));
      }
    }
  }

  /** Returns whether all have answered since. Any thread. */
  boolean haveAllAnswered() {
    return IntStream.range(0, hosts.count()).allMatch(h -> h == host || hasAnswered(h));
  }

  private boolean hasAnswered(int h) {
    return heard.get(h) >= hosts.size(h);
  }

  /** See {@link Outside#answer}. Any thread. */
  Outside.Answer answer(int k) {
    return !hasAsked
        ? Outside.Answer.NOT_ASKED
        : hasAnswered(hosts.of(k)) ? Outside.Answer.GIVEN : Outside.Answer.NONE;
  }

  @Override
  public void news(int peer, int of, MemorySegment news, long offset) {
    if (of < 0 || of >= hosts.nranks() || hosts.of(of) != hosts.of(peer)) {
      faults.nonsense(peer, "news of rank " + of);
      return;
    }
    own.hear(of, news, offset);
    if (peer == hosts.leader(hosts.of(of))) {
      heard.incrementAndGet(hosts.of(of));
    }
  }
}
