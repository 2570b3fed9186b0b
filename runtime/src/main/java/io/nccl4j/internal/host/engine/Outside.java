package io.nccl4j.internal.host.engine;

import io.nccl4j.CommunicatorHosts;
import io.nccl4j.NcclException;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One rank's way to the ranks of other hosts. The engines of a communicator that spans hosts leave
 * to it what does not stay on this one. Whoever drives the work calls it, as with the engines; it
 * waits for nothing.
 */
public abstract class Outside {
  /** Most bytes of what a rank says of itself. */
  public static final int NEWS_BYTES = Layout.NEWS_BYTES;

  /** The rank, as its way to the others sees it. Any thread may call it. */
  public interface Own {
    /** Fails the communicator, unless it is closed; then nothing happens. */
    void failUnlessClosed(NcclException cause);

    /**
     * A rank of another host said something of itself: all ranks of this host see it from now on.
     */
    void hear(int rank, MemorySegment news, long offset);

    /**
     * The elements for rank {@code of} that a rank of this host has called a collective with, where
     * all ranks pass the counts of all; −1 if it shows them no longer.
     */
    long shownCount(int rank, long call, int of);

    /** Writes what there is to say of a rank of this host, {@link #NEWS_BYTES} bytes. */
    void say(int rank, MemorySegment news, long offset);
  }

  /** A port for a communicator that is being split off. */
  public interface Offer {
    /** Where the others reach it; at most {@link #ADDRESS_BYTES} bytes. */
    byte[] address();

    /**
     * Its rank's way to the others.
     *
     * @param members the ranks here of those of the new communicator
     * @param addresses of all of them
     */
    Outside take(int rank, int[] members, List<byte[]> addresses);

    /** There is no new communicator. */
    void giveBack();
  }

  /** Most bytes of an address. */
  public static final int ADDRESS_BYTES = 512;

  /** A way that is not used yet. */
  protected Outside() {}

  /**
   * Returns the number of ranks on this machine, this host's included. A machine has several hosts
   * if its ranks run in several containers or network namespaces.
   */
  public abstract int ranksOnMachine();

  /**
   * Starts it; called once, before the first operation.
   *
   * @param account has the memory that it takes
   * @param wording names the communicator
   */
  public abstract void begin(MemoryBook.Account account, Wording wording, Own own);

  /** Which ranks are on which host, and what is between them. Any thread. */
  public abstract CommunicatorHosts hosts();

  /** Opens a port for a communicator that is being split off. */
  public abstract Offer offer();

  /** Takes what has come from the network, if nobody else does. Any thread. */
  public abstract void look();

  /** The same for frequent callers: it looks only if nobody has for some milliseconds. */
  public abstract void lookNowAndThen();

  /**
   * Whether one rank of each host carries the data of a collective for all of them, so that what
   * the others have to do is to show it their buffers. Otherwise each rank carries its own blocks.
   * The same on every rank.
   */
  protected abstract boolean isCarried(EngineWork work);

  /**
   * Gets on with the current piece of a collective that all ranks of this host have come to.
   *
   * @param isFollowed whether the caller moves another collective as soon as this one is done, so
   *     that their data may leave together
   * @return see {@link Step}
   */
  protected abstract int move(EngineWork work, CollectiveEngine engine, boolean isFollowed);

  /**
   * Whether the data of a collective, in which each rank waits for all others, may be sent before
   * its turn. The answer does not change while the work lasts.
   */
  protected abstract boolean canSendEarly(EngineWork work);

  /**
   * Sends the data of such a collective before its first step, when all ranks of this host have
   * shown it; see {@link CollectiveEngine#shown}. It may leave later, with the next step or {@link
   * #flush}.
   *
   * @param first whether all that is before it in the queue is done
   * @return false if that must wait: what is before it may have to be sent first
   */
  protected abstract boolean sendEarly(EngineWork work, CollectiveEngine engine, boolean first);

  /** Lets leave what was sent, if the work that the caller drives must wait. */
  public abstract void flush();

  /**
   * Gets on with a send to, or a receive from, a rank of another host.
   *
   * @param isFollowed whether the caller takes a step of another message as soon as this one is
   *     done, so that their data may leave together; that step, or {@link #flush}, lets it leave
   * @return see {@link Step}
   */
  public abstract int step(EngineWork work, boolean isFollowed);

  /**
   * Sends a small message to a rank of another host before its first step. It may leave later, with
   * the next step or {@link #flush}.
   *
   * @return false if that must wait
   */
  public abstract boolean sendEarly(EngineWork message);

  /** The rank has failed or leaves: tells the other hosts. Any thread. */
  public abstract void tell();

  /**
   * Asks the other hosts what their ranks have called last, and waits for the answers, which this
   * host's ranks see as if those ranks had written them. Any thread, when there is no hurry.
   *
   * @param patienceNanos how long at most
   */
  public abstract void ask(long patienceNanos);

  /** Whether a rank's host was asked, and whether it has answered since. */
  public abstract Answer answer(int rank);

  /** What is known of a rank elsewhere. */
  public enum Answer {
    NOT_ASKED,
    NONE,
    GIVEN
  }

  /** Ends what was begun for a work that is dropped: its buffers are the caller's afterwards. */
  public abstract void abandon();

  /** Ends it, when all operations have ended. */
  public abstract void close();

  // ---- how far a work is, which the room of the engines has to itself

  /** First element of the current piece of each block. */
  protected static long piece(EngineWork work) {
    return work.piece;
  }

  /** Most elements of the current piece of each block. */
  protected static long pieceLength(EngineWork work) {
    return work.pieceLength;
  }

  /** Whether the current piece lies in the staging areas. */
  protected static boolean isStaged(EngineWork work) {
    return work.staged;
  }

  /** Whether a send or receive has not begun. */
  protected static boolean isNew(EngineWork work) {
    return work.stage == EngineWork.QUEUED;
  }

  /** It has begun as the transfer with this number. */
  protected static void setTransfer(EngineWork work, int transfer) {
    work.target = transfer;
    work.stage = EngineWork.POSTED;
  }

  /** See {@link #setTransfer}. */
  protected static int transfer(EngineWork work) {
    return (int) work.target;
  }

  /** Elements of the largest block that goes from one rank of this host to another. */
  protected static long longest(EngineWork work) {
    return work.longest;
  }
}
