package io.nccl4j.internal.observe;

import io.nccl4j.NcclException;
import java.util.List;

/**
 * Who records events: the JVM's flight recorder, or nobody. Called on any thread, also under locks;
 * takes none of this library's. What is wanted may change at any time, so an event is asked for
 * when it begins, and what has begun may end unrecorded.
 */
public interface Recorder {
  /** The one of this process. Constant, so that what nobody wants costs a load or nothing. */
  Recorder HERE = RecorderHolder.find();

  /** An operation's event; used again. */
  interface OperationEvent {
    /** The operation was submitted. */
    void submitted();

    /**
     * It has ended.
     *
     * @param nanos since it was submitted
     * @param waitNanos until it could be carried out; negative if unknown
     * @param isComplete whether it succeeded
     */
    void ended(Observed operation, long nanos, long waitNanos, boolean isComplete);
  }

  /** A wait that may become long. */
  interface StallEvent {
    /**
     * Looks whether it has.
     *
     * @param waitedNanos since it began
     * @return whether that was recorded; the next wait begins
     */
    boolean look(Observed operation, long waitedNanos);
  }

  /** A join that is under way. */
  interface JoinEvent {
    /** This process's ranks are there. */
    void joined(String name, String backend, List<Integer> ranks, int nranks);

    /** They will not be. */
    void failed(Throwable cause);
  }

  /** A connection that is being made. */
  interface ConnectEvent {
    /** It stands, or, if the reason is not empty, does not. Only the first call counts. */
    void ended(String failure);
  }

  /** Whether events of any operations are wanted. */
  default boolean wantsOperations() {
    return false;
  }

  /** Whether events are wanted of collectives; otherwise, of sends, receives and the like. */
  default boolean wants(boolean isCollective) {
    return false;
  }

  /** An operation's event, where such are wanted. */
  default OperationEvent newOperation(boolean isCollective) {
    throw new IllegalStateException("no events of operations are wanted");
  }

  /** Whether waits are wanted that last. */
  default boolean wantsStalls() {
    return false;
  }

  /** A wait that begins now, where such are wanted. */
  default StallEvent newStall() {
    throw new IllegalStateException("no events of waits are wanted");
  }

  /**
   * A join that begins now.
   *
   * @param how the method's name
   */
  default JoinEvent join(String how) {
    return NoEvent.INSTANCE;
  }

  /** The join that is under way on this thread has found all ranks. */
  default void met() {}

  /**
   * A connection that is being made from now on.
   *
   * @param network what it goes through
   * @param address of the other end
   * @param dials whether this end made it
   */
  default ConnectEvent connect(String network, String address, boolean dials) {
    return NoEvent.INSTANCE;
  }

  /** Whether allocations are wanted. */
  default boolean wantsAllocations() {
    return false;
  }

  /** Memory was taken, where that is wanted. */
  default void allocated(String owner, String purpose, String place, long bytes) {}

  /** A graph was launched. */
  default void launched(int operations, long streamNumber) {}

  /** A rank's communicator has failed. */
  default void failed(String name, int rank, NcclException cause) {}
}
