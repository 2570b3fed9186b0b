package io.nccl4j.internal.net;

import io.nccl4j.InvalidArgumentException;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The peers of a port, by the numbers that its user gave them. */
public final class PeerTable<P> {
  private final List<@Nullable P> byNumber = new ArrayList<>();
  private final List<P> all = new ArrayList<>();

  /** Throws if a number is taken. */
  public void requireFree(int number) {
    if (number < byNumber.size() && byNumber.get(number) != null) {
      throw new IllegalArgumentException("peer " + number + " has an address already");
    }
  }

  /** Adds a peer under a number that is free. */
  public void add(int number, P peer) {
    while (byNumber.size() <= number) {
      byNumber.add(null);
    }
    byNumber.set(number, peer);
    all.add(peer);
  }

  /**
   * The peer with a number.
   *
   * @throws InvalidArgumentException if there is none
   */
  public P get(int number) {
    P peer = number < 0 || number >= byNumber.size() ? null : byNumber.get(number);
    if (peer == null) {
      throw new InvalidArgumentException("there is no peer " + number, "add it first");
    }
    return peer;
  }

  /** All peers, in the order in which they were added. */
  public List<P> all() {
    return all;
  }
}
