package io.nccl4j;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One rank's membership in a set of ranks that communicate.
 *
 * <p><b>Operations</b> are queued on a stream and return at once; the stream, or an event in it,
 * tells when they are complete. All ranks must issue the same collectives on a communicator in the
 * same order, whatever their streams. Counts are in elements, may exceed 2<sup>31</sup>, and may be
 * 0. Each buffer must lie on this communicator's device, be at least as large as the operation
 * needs, start at a multiple of the element size, and stay open until the operation is complete. A
 * buffer may be null only where it is documented as unused on a rank.
 *
 * <p><b>In place.</b> Send and receive ranges must not overlap, except exactly as follows ({@code
 * send} and {@code recv} here are start addresses): allReduce, broadcast and reduce with {@code
 * send == recv}; allGather with {@code send == recv + rank·count}; reduceScatter with {@code recv
 * == send + rank·count}; gather on the root with {@code send == recv + root·count}; scatter on the
 * root with {@code recv == send + root·count}; the v-forms likewise with displacements. allToAll
 * has no in-place form.
 *
 * <p><b>Arrays and objects.</b> {@link #allReduce(float[], ReduceOp)}, {@link #floats()} and its
 * like do the same on Java arrays in one statement, which waits; {@link #objects} moves objects.
 *
 * <p><b>Determinism.</b> On the host backend every rank gets the same bits, in every run with the
 * same number of ranks.
 *
 * <p><b>Threads.</b> One thread at a time, which may change; overlapping calls are refused with an
 * {@link InvalidUsageException}. Only {@code abort}, {@link #state()}, {@link #failure()} and
 * {@link #counters()} may be called at any time by any thread.
 *
 * <p><b>Errors.</b> Wrong arguments throw {@link InvalidArgumentException} from the call, and
 * nothing is started. Later failures are thrown by {@link Stream#synchronize()}: {@link
 * MismatchException} on every rank when ranks contradict each other, {@link PeerFailedException}
 * when another rank died or left, {@link DeadlineException} when the operation's deadline passed.
 * The communicator has then failed: it refuses operations and can only be aborted or closed.
 */
public interface Communicator extends AutoCloseable {
  /** What may be done with a communicator. */
  enum State {
    /** Operations are accepted. */
    READY,
    /** An operation failed; see {@link Communicator#failure()}. */
    FAILED,
    /** {@link Communicator#abort()} was called here or on another rank. */
    ABORTED,
    /** {@link Communicator#close()} was called. */
    CLOSED
  }

  /**
   * The color with which a rank takes part in {@link #split} without joining a new communicator.
   */
  int NO_COLOR = -1;

  /**
   * Creates communicators for {@code nranks} ranks that all live in this process, on devices 0 …
   * nranks−1.
   *
   * @throws InvalidArgumentException if {@code nranks} is less than 1 or there are fewer devices
   */
  static Communicators initAll(Backend backend, int nranks) {
    if (nranks < 1) {
      throw new InvalidArgumentException(
          "nranks is " + nranks, "a communicator has at least one rank");
    }
    Provider.get().checkRanks(backend, nranks);
    return initAll(
        java.util.stream.IntStream.range(0, nranks).mapToObj(i -> Device.get(backend, i)).toList(),
        CommunicatorConfig.defaults());
  }

  /**
   * Creates communicators for ranks that all live in this process: rank <i>i</i> on {@code
   * devices.get(i)}.
   *
   * @throws InvalidArgumentException if the list is empty, or its devices belong to different
   *     backends
   */
  static Communicators initAll(List<Device> devices, CommunicatorConfig config) {
    return new Communicators(Provider.get().initAll(devices, config));
  }

  /**
   * Joins a communicator as one rank, with the default configuration; see {@link #initRank(Device,
   * int, UniqueId, int, CommunicatorConfig)}.
   */
  static Communicator initRank(Device device, int nranks, UniqueId id, int rank) {
    return initRank(device, nranks, id, rank, CommunicatorConfig.defaults());
  }

  /**
   * Joins a communicator as one rank, and waits for all others, which may be threads of this
   * process or other processes of this machine.
   *
   * @param device where this rank runs
   * @param nranks number of ranks, the same on all ranks
   * @param id the same token on all ranks
   * @param rank 0 … nranks−1, each taken by one caller
   * @throws DeadlineException if not all ranks came within the configuration's init timeout; the
   *     message names the missing ones
   * @throws InvalidUsageException if ranks contradict each other (nranks, a rank taken twice,
   *     versions, a wrong secret), or the id was used before: it serves one communicator
   * @throws PeerFailedException if a rank died, gave up or was refused while it joined; the message
   *     has its reason
   * @throws SystemErrorException if the process that created the id cannot be reached
   * @throws BackendUnavailableException if ranks of other processes cannot be reached from this
   *     one; the message says why
   * @throws InterruptedWaitException if the calling thread was interrupted; no rank joins
   */
  static Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Provider.get().initRank(device, nranks, id, rank, config);
  }

  /**
   * Joins like {@link #initRank(Device, int, UniqueId, int, CommunicatorConfig)}, with several ids.
   * With many ranks, this spreads the load of the rendezvous over the processes that created the
   * ids. On the cuda backend, several ids need NCCL 2.23.4; the host backend takes one.
   *
   * @param ids 1 to nranks distinct ids, in the same order on all ranks
   * @throws InvalidUsageException if there are several ids, and NCCL is older than 2.23.4 or the
   *     device belongs to the host backend
   */
  static Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    return Provider.get().initRank(device, nranks, ids, rank, config);
  }

  /**
   * Like {@link #initRank}, but does not wait: the future completes when all ranks have come, or
   * fails. Cancelling the future abandons the join for all ranks, as does completing it by other
   * means such as {@link CompletableFuture#orTimeout}.
   */
  static CompletableFuture<Communicator> initRankAsync(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    CompletableFuture<Communicator> result = new CompletableFuture<>();
    Thread joining =
        Thread.ofPlatform()
            .daemon()
            .name("nccl4j-init-" + rank)
            .start(
                () -> {
                  try {
                    Communicator communicator = initRank(device, nranks, id, rank, config);
                    onPool(
                        result,
                        () -> {
                          if (!result.complete(communicator)) {
                            communicator.close();
                          }
                        });
                  } catch (Throwable e) {
                    onPool(result, () -> result.completeExceptionally(e));
                  }
                });
    result.whenComplete(
        (communicator, failure) -> {
          if (Thread.currentThread() != joining) {
            joining.interrupt();
          }
        });
    return result;
  }

  /** Runs a future's dependents, which are the program's code, on the program's threads. */
  private static void onPool(CompletableFuture<?> future, Runnable completion) {
    while (true) {
      try {
        future.defaultExecutor().execute(completion);
        return;
      } catch (OutOfMemoryError | RejectedExecutionException e) {
        // There is no thread for it yet; who waits for the future must not wait for ever.
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
      }
    }
  }

  /** This rank's number, 0 … nranks−1. */
  int rank();

  /** Number of ranks. */
  int nranks();

  /** The device this rank runs on. */
  Device device();

  /** The name from the configuration, or a generated one. */
  String name();

  /** The configuration in effect. */
  CommunicatorConfig config();

  /** What may be done with this communicator now. Any thread may call this. */
  State state();

  /**
   * Why this communicator is {@link State#FAILED} or {@link State#ABORTED}. Any thread may call
   * this.
   */
  Optional<NcclException> failure();

  /**
   * Which ranks share a host, and what carries data between hosts; empty on the cuda backend: NCCL
   * does not tell. Any thread may call this.
   */
  Optional<CommunicatorHosts> hosts();

  /** What this rank has submitted, and how full its work FIFO is. Any thread may call this. */
  CommunicatorCounters counters();

  /**
   * Queues a reduction of {@code count} elements over all ranks and returns before it is complete;
   * every rank gets the result.
   *
   * @param send {@code count} elements
   * @param recv {@code count} elements; may be {@code send}
   * @param count elements per rank, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void allReduce(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op, Stream stream);

  /**
   * Queues a copy of {@code count} elements from the root to all ranks and returns before it is
   * complete.
   *
   * @param send {@code count} elements on the root; unused on other ranks
   * @param recv {@code count} elements; may be {@code send}
   * @param root 0 … nranks−1, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void broadcast(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int root,
      Stream stream);

  /**
   * Queues a reduction of {@code count} elements over all ranks and returns before it is complete;
   * the root gets the result.
   *
   * @param send {@code count} elements
   * @param recv {@code count} elements on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void reduce(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream);

  /**
   * Queues a gather of {@code sendCount} elements from each rank and returns before it is complete;
   * every rank gets them all, in rank order.
   *
   * @param send {@code sendCount} elements
   * @param recv {@code nranks·sendCount} elements
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void allGather(
      DeviceBuffer send, DeviceBuffer recv, long sendCount, DataType type, Stream stream);

  /**
   * Queues a reduction of {@code nranks·recvCount} elements over all ranks and returns before it is
   * complete; rank <i>r</i> gets block <i>r</i> of the result.
   *
   * @param send {@code nranks·recvCount} elements
   * @param recv {@code recvCount} elements
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void reduceScatter(
      DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      ReduceOp op,
      Stream stream);

  /**
   * Queues an exchange of blocks between all ranks and returns before it is complete; block
   * <i>j</i> goes to rank <i>j</i>, which stores it as block <i>rank</i>.
   *
   * @param send {@code nranks·count} elements
   * @param recv {@code nranks·count} elements, not overlapping {@code send}
   * @param count elements per block
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void allToAll(DeviceBuffer send, DeviceBuffer recv, long count, DataType type, Stream stream);

  /**
   * Queues a gather of {@code sendCount} elements from each rank and returns before it is complete;
   * the root gets them all, in rank order.
   *
   * @param send {@code sendCount} elements
   * @param recv {@code nranks·sendCount} elements on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void gather(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long sendCount,
      DataType type,
      int root,
      Stream stream);

  /**
   * Queues a scatter of the root's blocks and returns before it is complete; rank <i>j</i> gets
   * block <i>j</i>.
   *
   * @param send {@code nranks·recvCount} elements on the root; unused on other ranks
   * @param recv {@code recvCount} elements
   * @param root 0 … nranks−1, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void scatter(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream);

  /**
   * Queues a gather of a different number of elements from each rank and returns before it is
   * complete; every rank gets them all.
   *
   * @param send {@code recvCounts[rank]} elements
   * @param recv receives {@code recvCounts[j]} elements of rank <i>j</i> at element {@code
   *     recvDisplacements[j]}
   * @param recvCounts nranks counts, the same on all ranks
   * @param recvDisplacements nranks offsets in elements; blocks must not overlap
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void allGatherV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream);

  /**
   * Queues a reduction of contiguous blocks of different sizes over all ranks and returns before it
   * is complete; rank <i>r</i> gets block <i>r</i> of the result.
   *
   * @param send as many elements as the sum of {@code recvCounts}
   * @param recv {@code recvCounts[rank]} elements
   * @param recvCounts nranks counts, the same on all ranks
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void reduceScatterV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      DataType type,
      ReduceOp op,
      Stream stream);

  /**
   * Queues an exchange of blocks of different sizes between all ranks and returns before it is
   * complete; {@code sendCounts[j]} elements go to rank <i>j</i>. Rank <i>i</i> must send to
   * <i>j</i> as many elements as <i>j</i> expects from <i>i</i>.
   *
   * @param sendCounts nranks counts, in elements
   * @param sendDisplacements nranks offsets in elements
   * @param recvCounts nranks counts, in elements
   * @param recvDisplacements nranks offsets in elements; received blocks must not overlap
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void allToAllV(
      DeviceBuffer send,
      long[] sendCounts,
      long[] sendDisplacements,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream);

  /**
   * Queues a gather of a different number of elements from each rank and returns before it is
   * complete; the root gets them all.
   *
   * @param sendCount elements this rank sends; equals the root's {@code recvCounts[rank]}
   * @param recv on the root, receives {@code recvCounts[j]} elements of rank <i>j</i> at element
   *     {@code recvDisplacements[j]}; unused on other ranks, as are the two arrays
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void gatherV(
      DeviceBuffer send,
      long sendCount,
      @Nullable DeviceBuffer recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      DataType type,
      int root,
      Stream stream);

  /**
   * Queues a scatter of a different number of elements from the root to each rank and returns
   * before it is complete.
   *
   * @param send on the root, {@code sendCounts[j]} elements for rank <i>j</i> at element {@code
   *     sendDisplacements[j]}; unused on other ranks, as are the two arrays
   * @param recvCount elements this rank receives; equals the root's {@code sendCounts[rank]}
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void scatterV(
      @Nullable DeviceBuffer send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream);

  /**
   * Queues a send of {@code count} elements to a peer and returns before it is complete. The peer's
   * matching {@link #recv} must have the same count and type; sends to a peer match its receives in
   * order. A send may complete only when the peer receives (on the host backend, beyond 504 bytes
   * or eight messages ahead): two ranks that exchange data must put both calls into one {@link
   * Group}.
   *
   * @param send {@code count} elements
   * @param peer the receiving rank, 0 … nranks−1
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void send(DeviceBuffer send, long count, DataType type, int peer, Stream stream);

  /**
   * Queues a receive of {@code count} elements from a peer and returns before it is complete; see
   * {@link #send}.
   *
   * @param recv {@code count} elements
   * @param peer the sending rank, 0 … nranks−1
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void recv(DeviceBuffer recv, long count, DataType type, int peer, Stream stream);

  /**
   * Queues a barrier and returns before it is complete; on each rank's stream, it completes only
   * after every rank has reached it.
   *
   * @throws InvalidArgumentException if an argument is wrong; nothing is queued
   * @throws InvalidUsageException if this communicator, the stream or a buffer is closed, or
   *     another thread uses this communicator or the stream; nothing is queued
   * @throws NcclException if this communicator has failed, or fails while the call waits for room
   */
  void barrier(Stream stream);

  /** Waits until every rank has called it; see {@link ArrayCalls} for what it throws. */
  void barrier();

  /**
   * Blocking operations on Java arrays: each returns when it is done.
   *
   * @param kind the type of the arrays: {@code byte[].class} for {@code INT8}, {@code UINT8} and
   *     the 8-bit floats, {@code short[].class} for {@code FLOAT16} and {@code BFLOAT16}, {@code
   *     int[].class}, {@code long[].class}, {@code float[].class} or {@code double[].class}
   * @param type what the elements are
   * @throws InvalidArgumentException if arrays of that kind do not hold such elements
   */
  <A> ArrayCalls<A> arrays(Class<A> kind, DataType type);

  /** Blocking operations on arrays of {@link DataType#FLOAT32}. */
  default ArrayCalls<float[]> floats() {
    return arrays(float[].class, DataType.FLOAT32);
  }

  /** Blocking operations on arrays of {@link DataType#FLOAT64}. */
  default ArrayCalls<double[]> doubles() {
    return arrays(double[].class, DataType.FLOAT64);
  }

  /** Blocking operations on arrays of {@link DataType#INT32}. */
  default ArrayCalls<int[]> ints() {
    return arrays(int[].class, DataType.INT32);
  }

  /** Blocking operations on arrays of {@link DataType#INT64}. */
  default ArrayCalls<long[]> longs() {
    return arrays(long[].class, DataType.INT64);
  }

  /** Blocking operations on arrays of {@link DataType#INT8}. */
  default ArrayCalls<byte[]> bytes() {
    return arrays(byte[].class, DataType.INT8);
  }

  /**
   * Blocking operations on bytes of a given type.
   *
   * @param type {@code INT8}, {@code UINT8}, {@code FLOAT8_E4M3} or {@code FLOAT8_E5M2}; {@link
   *     Floats} converts the floats
   * @throws InvalidArgumentException if it is another one
   */
  default ArrayCalls<byte[]> bytes(DataType type) {
    return arrays(byte[].class, type);
  }

  /**
   * Blocking operations on 16-bit floats.
   *
   * @param type {@code FLOAT16} or {@code BFLOAT16}; {@link Floats} converts them
   * @throws InvalidArgumentException if it is another one
   */
  default ArrayCalls<short[]> shorts(DataType type) {
    return arrays(short[].class, type);
  }

  /**
   * Blocking collectives that move objects.
   *
   * @param codec makes bytes of objects, and objects of bytes
   * @throws InvalidArgumentException if the codec is null
   */
  default <T> ObjectCalls<T> objects(ObjectCodec<T> codec) {
    return new ObjectCalls<>(longs(), bytes(), rank(), nranks(), codec, this::abort);
  }

  /** Reduces arrays in place and waits; see {@link ArrayCalls#allReduce(Object, ReduceOp)}. */
  default void allReduce(float[] data, ReduceOp op) {
    floats().allReduce(data, op);
  }

  /** Reduces arrays in place and waits; see {@link ArrayCalls#allReduce(Object, ReduceOp)}. */
  default void allReduce(double[] data, ReduceOp op) {
    doubles().allReduce(data, op);
  }

  /** Reduces arrays in place and waits; see {@link ArrayCalls#allReduce(Object, ReduceOp)}. */
  default void allReduce(int[] data, ReduceOp op) {
    ints().allReduce(data, op);
  }

  /** Reduces arrays in place and waits; see {@link ArrayCalls#allReduce(Object, ReduceOp)}. */
  default void allReduce(long[] data, ReduceOp op) {
    longs().allReduce(data, op);
  }

  /** Reduces arrays in place and waits; see {@link ArrayCalls#allReduce(Object, ReduceOp)}. */
  default void allReduce(byte[] data, ReduceOp op) {
    bytes().allReduce(data, op);
  }

  /** Copies the root's array to all ranks and waits; see {@link ArrayCalls#broadcast}. */
  default void broadcast(float[] data, int root) {
    floats().broadcast(data, root);
  }

  /** Copies the root's array to all ranks and waits; see {@link ArrayCalls#broadcast}. */
  default void broadcast(double[] data, int root) {
    doubles().broadcast(data, root);
  }

  /** Copies the root's array to all ranks and waits; see {@link ArrayCalls#broadcast}. */
  default void broadcast(int[] data, int root) {
    ints().broadcast(data, root);
  }

  /** Copies the root's array to all ranks and waits; see {@link ArrayCalls#broadcast}. */
  default void broadcast(long[] data, int root) {
    longs().broadcast(data, root);
  }

  /** Copies the root's array to all ranks and waits; see {@link ArrayCalls#broadcast}. */
  default void broadcast(byte[] data, int root) {
    bytes().broadcast(data, root);
  }

  /**
   * Runs operations until the JVM has compiled their code and the ranks have touched their shared
   * memory, so that the first operations that count take no longer than later ones. All ranks call
   * it with equal plans, and it waits for them. It uses its own stream and buffers: nothing of the
   * caller's is read or written.
   *
   * <p>A program that uses several operations should warm them all up in one call, right after
   * creating the communicator. Code is compiled once for the process: similar communicators created
   * later need only a short warm-up, with few iterations, for their memory.
   *
   * @throws InvalidArgumentException if a peer of the plan does not exist
   * @throws InvalidUsageException if a group is open on this thread
   * @throws MismatchException on every rank, if the plans are not equal; nothing was run, and the
   *     communicator stays usable
   * @throws InterruptedWaitException if the calling thread was interrupted; the communicator is
   *     aborted
   * @throws NcclException if an operation failed, as in {@link Stream#synchronize()}
   */
  void warmUp(WarmUp plan);

  /** Calls {@link #split(int, int, CommunicatorConfig)} with this communicator's configuration. */
  default @Nullable Communicator split(int color, int key) {
    return split(color, key, config());
  }

  /**
   * Divides the ranks into new communicators, one per color; all ranks call it, and it waits for
   * them. New ranks are ordered by key, then by old rank. This communicator must have no unfinished
   * operation.
   *
   * @param color 0 or more, or {@link #NO_COLOR}
   * @throws PeerFailedException if another rank was refused; this communicator stays usable, except
   *     on the cuda backend with ranks of other machines
   * @throws InvalidUsageException if operations of this rank are unfinished, or a group is open on
   *     this thread
   * @throws InterruptedWaitException if the calling thread was interrupted; no communicator is
   *     created, and this one may have failed: see {@link #state}
   * @return the new communicator of this rank's color, which its caller closes; null for {@link
   *     #NO_COLOR}
   */
  @Nullable Communicator split(int color, int key, CommunicatorConfig config);

  /**
   * Creates a communicator of the ranks that are left, when this one has failed or was aborted. All
   * of them call it, after their operation has thrown: it waits until every rank has called it,
   * died or closed this communicator, at most as long as {@code timeout} on the rank that came
   * first. Then that is decided, for all ranks alike: the new communicator has those that came by
   * then, in the old order, and this one's configuration. Whoever comes later is refused.
   *
   * <p>If ranks die or give up while they join, the new communicator has failed when this returns,
   * or fails with its first operation: call this on that one. Ranks that live, but stop while they
   * join, are waited for as long as the {@code init-timeout}. So a program that goes on whatever
   * dies is a loop:
   *
   * <pre>{@code
   * while (true) {
   *   try {
   *     work(comm);
   *     return;
   *   } catch (PeerFailedException | DeadlineException e) {
   *     Communicator failed = comm;
   *     comm = failed.survivors(Duration.ofSeconds(5));
   *     failed.close();
   *   }
   * }
   * }</pre>
   *
   * <p>Ranks may have been at different operations when this communicator failed: agree on where to
   * go on, from a checkpoint for example. This communicator stays failed; close it before or after
   * that, and use its buffers when they are {@linkplain DeviceBuffer#isQuiet() quiet}.
   *
   * @param timeout how long to wait for ranks that live but do not come; 0 or more
   * @return the new communicator, which its caller closes
   * @throws InvalidArgumentException if the timeout is null or negative
   * @throws InvalidUsageException if this communicator has not failed or is closed, the call is
   *     repeated, a group is open on this thread, ranks are on several hosts, or it is on the cuda
   *     backend, whose failed communicators NCCL has ended
   * @throws PeerFailedException if the others have gone on without this rank
   * @throws InterruptedWaitException if the calling thread was interrupted; the others go on
   * @throws SystemErrorException if there is no memory for it; the others go on
   */
  Communicator survivors(Duration timeout);

  /**
   * Gives up all unfinished operations on all ranks: they fail with {@link AbortedException}, and
   * the communicator can only be closed. This method does not wait for other ranks. Any thread may
   * call it at any time, even repeatedly.
   */
  void abort();

  /**
   * Aborts like {@link #abort()}, and tells all ranks why: in this process {@code cause} is among
   * the causes of their exceptions, in others they have its text. The ranks that it names are to
   * blame ({@link NcclException#failedRanks()}); if it names none, this rank is.
   */
  void abort(Throwable cause);

  /**
   * Completes this rank's unfinished operations within the configuration's close timeout, then
   * leaves. Operations that are unfinished then are given up, and fail on the other ranks; on an
   * interrupted thread, nothing is waited for. Closing is local: other ranks may go on as long as
   * they need nothing more from this rank; if they do, they fail at once and say so. Closing twice
   * does nothing.
   *
   * @throws MismatchException if ranks contradicted each other in their last operations, and this
   *     rank's program has not been told yet; the communicator is closed nevertheless
   * @throws InvalidUsageException if operations lie in an open group, or cannot be given up because
   *     they are queued behind another communicator's; the communicator is not closed
   */
  @Override
  void close();
}
