package io.nccl4j;

import org.jspecify.annotations.Nullable;

/**
 * A communicator's operations on Java arrays, each in one statement: data goes from an array to the
 * device, through the operation, and back, and the call returns when that is done.
 *
 * <pre>{@code
 * float[] gradient = ...;
 * comm.floats().allReduce(gradient, ReduceOp.AVG);
 * }</pre>
 *
 * <p>Got from {@link Communicator#floats()} and the like; it costs nothing to get it again. All
 * ranks call the same operations in the same order, each on a thread of its own: a call waits for
 * the others. It does not matter whether a rank uses arrays or buffers for an operation.
 *
 * <p><b>Arrays</b> are used as a whole; counts and displacements are in elements. An array may be
 * used for sending and receiving at once, unless the lengths forbid it. If a call throws, no array
 * has changed. All arrays but those marked as unused on a rank must be given.
 *
 * <p><b>Memory.</b> Data goes through device memory of the communicator, made by the first call and
 * kept for the next ones, up to {@value #KEPT_BYTES} bytes; a call that needs more allocates it and
 * frees it again. Large data that is used again and again is better kept in a {@link DeviceBuffer}.
 *
 * <p><b>Threads.</b> As with the communicator, one at a time.
 *
 * <p><b>Errors.</b> Every call throws
 *
 * <ul>
 *   <li>{@link InvalidArgumentException} if an array is null or has a wrong length, or as the
 *       operation of {@link Communicator} with that name does; nothing was started
 *   <li>{@link InvalidUsageException} if a group is open on this thread, this thread captures a
 *       stream of the device, another thread is inside the communicator, or it is closed; nothing
 *       was started
 *   <li>{@link SystemErrorException} or {@link io.nccl4j.memory.MemoryBudgetException} if there is
 *       not enough memory; nothing was started
 *   <li>{@link InterruptedWaitException} if the calling thread was interrupted while it waited; the
 *       operation goes on, its result is lost on this rank, and the communicator stays usable
 *   <li>what {@link Stream#synchronize()} throws if the operation failed: the communicator has
 *       failed
 * </ul>
 *
 * @param <A> the type of the arrays, for example {@code float[]}
 */
public interface ArrayCalls<A> {
  /** The most memory that a communicator keeps between calls, in bytes: 16 MiB. */
  long KEPT_BYTES = 16L << 20;

  /** What the elements are. */
  DataType type();

  /**
   * Reduces the arrays of all ranks, element by element; every rank gets the result in place.
   *
   * @param data of the same length on all ranks
   */
  default void allReduce(A data, ReduceOp op) {
    allReduce(data, data, op);
  }

  /**
   * Reduces the arrays of all ranks, element by element; every rank gets the result.
   *
   * @param send of the same length on all ranks
   * @param recv as long as {@code send}
   */
  void allReduce(A send, A recv, ReduceOp op);

  /**
   * Copies the root's array to all ranks.
   *
   * @param data of the same length on all ranks; is sent on the root, filled on the others
   * @param root 0 … nranks−1, the same on all ranks
   */
  void broadcast(A data, int root);

  /**
   * Reduces the arrays of all ranks, element by element; the root gets the result in place. The
   * other ranks' arrays do not change.
   *
   * @param data of the same length on all ranks
   * @param root 0 … nranks−1, the same on all ranks
   */
  default void reduce(A data, ReduceOp op, int root) {
    reduce(data, data, op, root);
  }

  /**
   * Reduces the arrays of all ranks, element by element; the root gets the result.
   *
   * @param send of the same length on all ranks
   * @param recv as long as {@code send}, on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   */
  void reduce(A send, @Nullable A recv, ReduceOp op, int root);

  /**
   * Gathers a block of each rank in place; every rank gets them all, in rank order.
   *
   * @param data nranks blocks of the same length on all ranks; block <i>rank</i> is sent, the
   *     others are filled
   */
  void allGather(A data);

  /**
   * Gathers the arrays of all ranks; every rank gets them all, in rank order.
   *
   * @param send of the same length on all ranks
   * @param recv nranks times as long
   */
  void allGather(A send, A recv);

  /**
   * Reduces the arrays of all ranks, element by element; rank <i>r</i> gets block <i>r</i> of the
   * result.
   *
   * @param send nranks blocks, as long as {@code recv} each
   * @param recv of the same length on all ranks
   */
  void reduceScatter(A send, A recv, ReduceOp op);

  /**
   * Exchanges blocks between all ranks: block <i>j</i> goes to rank <i>j</i>, which stores it as
   * block <i>rank</i>.
   *
   * @param send nranks blocks of the same length on all ranks
   * @param recv as long as {@code send}
   */
  void allToAll(A send, A recv);

  /**
   * Gathers the arrays of all ranks; the root gets them all, in rank order.
   *
   * @param send of the same length on all ranks
   * @param recv nranks times as long, on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   */
  void gather(A send, @Nullable A recv, int root);

  /**
   * Scatters the root's blocks: rank <i>j</i> gets block <i>j</i>.
   *
   * @param send nranks blocks, as long as {@code recv} each, on the root; unused on other ranks
   * @param recv of the same length on all ranks
   * @param root 0 … nranks−1, the same on all ranks
   */
  void scatter(@Nullable A send, A recv, int root);

  /**
   * Gathers arrays of different lengths; every rank gets them all, one after the other.
   *
   * @param send {@code recvCounts[rank]} elements
   * @param recv at least as many elements as the sum of {@code recvCounts}
   * @param recvCounts nranks counts, the same on all ranks
   */
  void allGatherV(A send, A recv, long[] recvCounts);

  /**
   * Gathers arrays of different lengths; every rank gets them all. What lies between the blocks
   * does not change.
   *
   * @param send {@code recvCounts[rank]} elements
   * @param recv has {@code recvCounts[j]} elements for rank <i>j</i> at element {@code
   *     recvDisplacements[j]}
   * @param recvCounts nranks counts, the same on all ranks
   * @param recvDisplacements nranks offsets; blocks must not overlap
   */
  void allGatherV(A send, A recv, long[] recvCounts, long[] recvDisplacements);

  /**
   * Reduces contiguous blocks of different lengths over all ranks; rank <i>r</i> gets block
   * <i>r</i> of the result.
   *
   * @param send at least as many elements as the sum of {@code recvCounts}
   * @param recv {@code recvCounts[rank]} elements
   * @param recvCounts nranks counts, the same on all ranks
   */
  void reduceScatterV(A send, A recv, long[] recvCounts, ReduceOp op);

  /**
   * Exchanges blocks of different lengths between all ranks; in both arrays, they follow each other
   * in rank order. Rank <i>i</i> must send to <i>j</i> as many elements as <i>j</i> expects from
   * <i>i</i>.
   *
   * @param send at least as many elements as the sum of {@code sendCounts}
   * @param sendCounts nranks counts
   * @param recv at least as many elements as the sum of {@code recvCounts}
   * @param recvCounts nranks counts
   */
  void allToAllV(A send, long[] sendCounts, A recv, long[] recvCounts);

  /**
   * Exchanges blocks of different lengths between all ranks. Rank <i>i</i> must send to <i>j</i> as
   * many elements as <i>j</i> expects from <i>i</i>. What lies between received blocks does not
   * change.
   *
   * @param sendCounts nranks counts
   * @param sendDisplacements nranks offsets
   * @param recvCounts nranks counts
   * @param recvDisplacements nranks offsets; received blocks must not overlap
   */
  void allToAllV(
      A send,
      long[] sendCounts,
      long[] sendDisplacements,
      A recv,
      long[] recvCounts,
      long[] recvDisplacements);

  /**
   * Gathers arrays of different lengths; the root gets them all, one after the other.
   *
   * @param send on the root, {@code recvCounts[rank]} elements
   * @param recv at least as many elements as the sum of {@code recvCounts}, on the root; unused on
   *     other ranks
   * @param recvCounts nranks counts, on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   */
  void gatherV(A send, @Nullable A recv, long @Nullable [] recvCounts, int root);

  /**
   * Gathers arrays of different lengths; the root gets them all. What lies between the blocks does
   * not change.
   *
   * @param send on the root, {@code recvCounts[rank]} elements
   * @param recv on the root, has {@code recvCounts[j]} elements for rank <i>j</i> at element {@code
   *     recvDisplacements[j]}; unused on other ranks, as are the two other arrays
   * @param root 0 … nranks−1, the same on all ranks
   */
  void gatherV(
      A send,
      @Nullable A recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      int root);

  /**
   * Scatters blocks of different lengths, which follow each other on the root, in rank order.
   *
   * @param send at least as many elements as the sum of {@code sendCounts}, on the root; unused on
   *     other ranks
   * @param sendCounts nranks counts, on the root; unused on other ranks
   * @param recv on the root, {@code sendCounts[rank]} elements
   * @param root 0 … nranks−1, the same on all ranks
   */
  void scatterV(@Nullable A send, long @Nullable [] sendCounts, A recv, int root);

  /**
   * Scatters blocks of different lengths from the root.
   *
   * @param send on the root, has {@code sendCounts[j]} elements for rank <i>j</i> at element {@code
   *     sendDisplacements[j]}; unused on other ranks, as are the two other arrays
   * @param recv on the root, {@code sendCounts[rank]} elements
   * @param root 0 … nranks−1, the same on all ranks
   */
  void scatterV(
      @Nullable A send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      A recv,
      int root);

  /**
   * Sends an array to a peer, and returns when it may be changed, which may be only when the peer
   * receives. Two ranks that exchange data use {@link #sendRecv}: if both send first, they may wait
   * for each other until their deadline.
   *
   * @param peer the receiving rank, 0 … nranks−1
   */
  void send(A data, int peer);

  /**
   * Receives an array from a peer.
   *
   * @param data as long as what the peer sends
   * @param peer the sending rank, 0 … nranks−1
   */
  void recv(A data, int peer);

  /**
   * Sends an array to one rank while it receives another one from the same or another rank, as in a
   * ring.
   *
   * @param to the rank that receives {@code send}, 0 … nranks−1
   * @param from the rank that sends {@code recv}, 0 … nranks−1
   */
  void sendRecv(A send, int to, A recv, int from);
}
