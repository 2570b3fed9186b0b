package io.nccl4j.internal.net;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A way into the network and out of it. At any time it belongs to one thread, its owner, which
 * alone calls its methods; {@link PortCell} passes it on. No method waits: bytes move during {@link
 * #send}, {@link #receive}, {@link #flush} and {@link #poll}.
 *
 * <p>A message has a tag of 64 bits, whose highest four are its <b>kind</b>. Messages of the kinds
 * below {@link #DATA} are <b>small</b>: they may come at any time from any peer, and are handed to
 * a {@link Landing}. The others are <b>data</b>: each goes straight to where a receive wants it,
 * which must be there before the peer sends. Messages with one tag from one peer keep their order.
 *
 * <p>A peer that breaks these rules, or whose connection ends, has failed, for ever: what is asked
 * of it then fails, other peers notice nothing.
 */
public interface Port extends AutoCloseable {
  /** The lowest kind that is data. */
  int DATA = 8;

  /** Bits of a tag below its kind. */
  int KIND_SHIFT = 60;

  /** Most bytes of a small message. */
  int SMALL_BYTES = 66 << 10;

  /** Most bytes of {@link #address}. */
  int ADDRESS_BYTES = 512;

  /** Of a request: not done yet. */
  int PENDING = 0;

  /** Of a request: done. Of a send: the memory may be used again. */
  int COMPLETE = 1;

  /** Of a request: its peer has failed, see {@link #error}. */
  int FAILED = 2;

  /** No request: done at once. */
  long NONE = 0;

  /** No peer in particular. */
  int ANY = -1;

  /** What {@link #addPeer} needs to reach it; at most {@link #ADDRESS_BYTES}. */
  byte[] address();

  /**
   * Gives a peer its number. It is connected to when something is sent to it; when both do that at
   * once they agree on one connection.
   *
   * @param peer a small number that the caller chooses
   * @param address of the peer's port
   */
  void addPeer(int peer, byte[] address);

  /**
   * Watches a peer's machine from now on, at both ends: when it can no longer be reached the peer
   * has failed some 3 s later, also while what was sent is still on its way. A peer that is merely
   * slow, or stopped, has not failed. An engine that cannot do this does nothing.
   */
  void watch(int peer);

  /**
   * Sends data. Its memory must not change before the request is done.
   *
   * @param tag its kind is {@link #DATA} or above
   * @return the request
   */
  long send(int peer, long tag, MemorySegment memory, long offset, long bytes);

  /**
   * Sends a small message in two parts, a head and a body, which arrive as one. Their memory may be
   * used again at once. The message may wait for others that leave with it, until {@link #flush},
   * {@link #poll} or the next data to this peer.
   */
  void post(
      int peer,
      long tag,
      MemorySegment head,
      long headOffset,
      long headBytes,
      MemorySegment body,
      long bodyOffset,
      long bodyBytes);

  /** Sends a small message of one part; see the other method. */
  default void post(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    post(peer, tag, memory, offset, bytes, MemorySegment.NULL, 0, 0);
  }

  /** Lets what was sent leave. */
  void flush();

  /**
   * Says where data goes. Receives with one tag from one peer are filled in order.
   *
   * @param tag exactly that of the message
   * @param bytes exactly as many as the message has
   * @return the request
   */
  long receive(int peer, long tag, MemorySegment memory, long offset, long bytes);

  /**
   * How far a request is. Any answer but {@link #PENDING} is the last: the request is given back.
   */
  int state(long request);

  /**
   * Moves what can be moved.
   *
   * @param landing takes the small messages that have come
   * @param awaited the peer that the caller waits for, which may be looked at more often than
   *     others; {@link #ANY} if it waits for none in particular
   * @return how many messages came or were sent, whole or in part; 0 if nothing moved
   */
  int poll(Landing landing, int awaited);

  /** The same for a caller that waits for no peer in particular. */
  default int poll(Landing landing) {
    return poll(landing, ANY);
  }

  /** Whether there is a connection to a peer, or one is being made: it will see this port close. */
  boolean isConnected(int peer);

  /** How many peers have failed; only grows. */
  int failures();

  /** Why a peer has failed; null if it has not. */
  @Nullable String error(int peer);

  /** Whether all that was sent has left this process. Moves on in {@link #poll}. */
  boolean isFlushed();

  /**
   * Says farewell to its peers, to whom this is no failure, and gives everything back. What is not
   * flushed is lost, and so is what peers still send; they take that for a failure.
   */
  @Override
  void close();

  /** The same without a word, as if the process had died. */
  void abort();

  /** Takes small messages. */
  @FunctionalInterface
  interface Landing {
    /**
     * A small message has come. The memory is its own until this returns.
     *
     * @param peer who sent it
     */
    void landed(int peer, long tag, MemorySegment memory, long offset, long bytes);
  }
}
