package io.nccl4j;

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
 * tells when they are complete. All ranks must issue the same collectives of a communicator in the
 * same order, whatever their streams. Counts are in elements, may exceed 2<sup>31</sup>, and may be
 * 0. Each buffer must lie on this communicator's device, be at least as large as the operation
 * needs, start at a multiple of the element size, and stay open until the operation is complete. A
 * null buffer is accepted only where a rank's argument is said to be unused.
 *
 * <p><b>In place.</b> Send and receive ranges must not overlap, except exactly as follows ({@code
 * send} and {@code recv} here are start addresses): allReduce, broadcast and reduce with {@code
 * send == recv}; allGather with {@code send == recv + rank·count}; reduceScatter with {@code recv
 * == send + rank·count}; gather on the root with {@code send == recv + root·count}; scatter on the
 * root with {@code recv == send + root·count}; the v-forms likewise with displacements. allToAll
 * has no in-place form.
 *
 * <p><b>Determinism.</b> On the host backend every rank gets the same bits, on every run with the
 * same number of ranks.
 *
 * <p><b>Threads.</b> One thread at a time; handing over is fine, overlapping calls are refused with
 * an {@link InvalidUsageException}. Only {@code abort}, {@link #state()}, {@link #failure()} and
 * {@link #counters()} may be called at any time by any thread.
 *
 * <p><b>Errors.</b> Wrong arguments throw {@link InvalidArgumentException} from the call, and
 * nothing is started. What goes wrong later is thrown by {@link Stream#synchronize()}: {@link
 * MismatchException} on every rank when ranks contradict each other, {@link PeerFailedException}
 * when another rank died or left, {@link DeadlineException} when the operation's deadline passed.
 * The communicator is failed then: it refuses operations and can only be aborted or closed.
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
   * @throws InvalidArgumentException if there is no device, or they are of different backends
   */
  static Communicators initAll(List<Device> devices, CommunicatorConfig config) {
    return new Communicators(Provider.get().initAll(devices, config));
  }

  /** Joins a communicator as one rank, with the default configuration; see the other form. */
  static Communicator initRank(Device device, int nranks, UniqueId id, int rank) {
    return initRank(device, nranks, id, rank, CommunicatorConfig.defaults());
  }

  /**
   * Joins a communicator as one rank, and waits for all others, which may be threads of this
   * process or other processes of this machine.
   *
   * @param device where this rank runs
   * @param nranks number of ranks, the same on all of them
   * @param id the same token on all ranks
   * @param rank 0 … nranks−1, each taken by one caller
   * @throws DeadlineException if not all ranks came within the configuration's init timeout; the
   *     message names them
   * @throws InvalidUsageException if ranks contradict each other (nranks, a rank taken twice,
   *     versions, a wrong secret), or the id was used before: it serves one communicator
   * @throws PeerFailedException if a rank died, gave up or was refused while it joined; the message
   *     has its reason
   * @throws SystemErrorException if the process that created the id cannot be reached
   * @throws BackendUnavailableException if ranks of other processes cannot be reached from this
   *     one; the message says why
   * @throws InterruptedWaitException if the calling thread was interrupted; no rank joins then
   */
  static Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Provider.get().initRank(device, nranks, id, rank, config);
  }

  /**
   * Joins as {@link #initRank(Device, int, UniqueId, int, CommunicatorConfig)} does, with several
   * ids that share the load of the rendezvous among the processes that created them, for many
   * ranks. On the cuda backend several ids need NCCL 2.23.4; the host backend takes one.
   *
   * @param ids 1 to nranks ids, none twice, the same in the same order on all ranks
   * @throws InvalidUsageException if there are several ids, and NCCL is older than 2.23.4 or the
   *     device of the host backend
   */
  static Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    return Provider.get().initRank(device, nranks, ids, rank, config);
  }

  /**
   * Like {@link #initRank} but does not wait: the future completes, or fails, when all ranks have
   * come. Cancelling the future gives up joining, for all ranks; so does completing it otherwise,
   * as {@link CompletableFuture#orTimeout} does.
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

  /** What hangs on a future is code of the program, and runs on threads of the program. */
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

  /** What may be done with this communicator now. Any thread may ask. */
  State state();

  /** Why this communicator is {@link State#FAILED} or {@link State#ABORTED}. Any thread may ask. */
  Optional<NcclException> failure();

  /** What this rank has submitted, and how full its work FIFO is. Any thread may ask. */
  CommunicatorCounters counters();

  /**
   * The memory that this rank has taken for this communicator, in bytes: what nccl4j has booked,
   * and on the cuda backend what NCCL says it took. Registered buffers of the program are among it,
   * the others are on their device's account, see {@link Device#memory()}. Any thread may ask; a
   * communicator that has failed, or is in a call of NCCL, has the lines that are known.
   */
  MemoryReport memory();

  /**
   * Reduces {@code count} elements of all ranks; every rank gets the result.
   *
   * @param send {@code count} elements
   * @param recv {@code count} elements; may be {@code send}
   */
  void allReduce(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op, Stream stream);

  /**
   * Copies {@code count} elements of the root to all ranks.
   *
   * @param send {@code count} elements on the root; unused on other ranks
   * @param recv {@code count} elements; may be {@code send}
   */
  void broadcast(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int root,
      Stream stream);

  /**
   * Reduces {@code count} elements of all ranks; the root gets the result.
   *
   * @param send {@code count} elements
   * @param recv {@code count} elements on the root; unused on other ranks
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
   * Gathers {@code sendCount} elements of each rank, in rank order, on every rank.
   *
   * @param send {@code sendCount} elements
   * @param recv {@code nranks·sendCount} elements
   */
  void allGather(
      DeviceBuffer send, DeviceBuffer recv, long sendCount, DataType type, Stream stream);

  /**
   * Reduces {@code nranks·recvCount} elements of all ranks; rank <i>r</i> gets block <i>r</i> of
   * the result.
   *
   * @param send {@code nranks·recvCount} elements
   * @param recv {@code recvCount} elements
   */
  void reduceScatter(
      DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      ReduceOp op,
      Stream stream);

  /**
   * Sends block <i>j</i> to rank <i>j</i>, which stores it as block <i>rank</i>.
   *
   * @param send {@code nranks·count} elements
   * @param recv {@code nranks·count} elements, apart from {@code send}
   * @param count elements of one block
   */
  void allToAll(DeviceBuffer send, DeviceBuffer recv, long count, DataType type, Stream stream);

  /**
   * Gathers {@code sendCount} elements of each rank, in rank order, on the root.
   *
   * @param recv {@code nranks·sendCount} elements on the root; unused on other ranks
   */
  void gather(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long sendCount,
      DataType type,
      int root,
      Stream stream);

  /**
   * Sends block <i>j</i> of the root to rank <i>j</i>.
   *
   * @param send {@code nranks·recvCount} elements on the root; unused on other ranks
   * @param recv {@code recvCount} elements
   */
  void scatter(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream);

  /**
   * Gathers a different number of elements from each rank, on every rank.
   *
   * @param send {@code recvCounts[rank]} elements
   * @param recv receives {@code recvCounts[j]} elements of rank <i>j</i> at element {@code
   *     recvDisplacements[j]}
   * @param recvCounts nranks counts, the same on all ranks
   * @param recvDisplacements nranks offsets in elements; blocks must not overlap
   */
  void allGatherV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream);

  /**
   * Reduces blocks of different sizes that lie behind each other; rank <i>r</i> gets block
   * <i>r</i>.
   *
   * @param send the sum of {@code recvCounts} elements
   * @param recv {@code recvCounts[rank]} elements
   * @param recvCounts nranks counts, the same on all ranks
   */
  void reduceScatterV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      DataType type,
      ReduceOp op,
      Stream stream);

  /**
   * Sends {@code sendCounts[j]} elements to each rank <i>j</i>. What rank <i>i</i> sends to
   * <i>j</i> must equal what <i>j</i> expects of <i>i</i>.
   *
   * @param sendDisplacements nranks offsets in elements
   * @param recvDisplacements nranks offsets in elements; received blocks must not overlap
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
   * Gathers a different number of elements from each rank, on the root.
   *
   * @param sendCount elements this rank sends; equals the root's {@code recvCounts[rank]}
   * @param recv on the root, receives {@code recvCounts[j]} elements of rank <i>j</i> at element
   *     {@code recvDisplacements[j]}; unused on other ranks, as are the two arrays
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
   * Sends a different number of elements of the root to each rank.
   *
   * @param send on the root, {@code sendCounts[j]} elements for rank <i>j</i> at element {@code
   *     sendDisplacements[j]}; unused on other ranks, as are the two arrays
   * @param recvCount elements this rank receives; equals the root's {@code sendCounts[rank]}
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
   * Sends {@code count} elements to a peer, whose matching {@link #recv} has the same count and
   * type. Sends to one peer match its receives in order. A send may complete only when the peer
   * receives (on the host backend, beyond 504 bytes or eight messages ahead): two ranks that
   * exchange data put both calls into one {@link Group}.
   */
  void send(DeviceBuffer send, long count, DataType type, int peer, Stream stream);

  /** Receives {@code count} elements from a peer; see {@link #send}. */
  void recv(DeviceBuffer recv, long count, DataType type, int peer, Stream stream);

  /** Completes on each rank's stream only after every rank has reached it. */
  void barrier(Stream stream);

  /**
   * Runs operations untimed until the JVM has compiled what they need and the ranks have touched
   * the memory they meet in, so that the first operations that count take no longer than later
   * ones. All ranks call it, with equal plans; it waits. It uses a stream and buffers of its own:
   * nothing of the caller's is read or written.
   *
   * <p>A program that issues several operations calls it once with all of them, right after the
   * communicator was made, as the code is compiled for the process: further communicators like it
   * need no warm-up for that, but for their memory a short one, with few iterations.
   *
   * @throws InvalidArgumentException if a peer of the plan does not exist
   * @throws InvalidUsageException if a group is open on this thread
   * @throws MismatchException on every rank, if the plans are not equal; nothing was run then, and
   *     the communicator stays usable
   * @throws InterruptedWaitException if the calling thread was interrupted; the communicator is
   *     aborted then
   * @throws NcclException if an operation failed, as {@link Stream#synchronize()} throws it
   */
  void warmUp(WarmUp plan);

  /** {@link #split(int, int, CommunicatorConfig)} with this communicator's configuration. */
  default @Nullable Communicator split(int color, int key) {
    return split(color, key, config());
  }

  /**
   * Divides the ranks into new communicators, one per color; all ranks call it. New ranks are
   * ordered by key, equal keys by old rank. No operation of this communicator may be unfinished.
   *
   * @param color 0 or more, or {@link #NO_COLOR}
   * @throws PeerFailedException if another rank was refused; this communicator stays usable on the
   *     host backend
   * @throws InvalidUsageException if operations of this rank are unfinished, or a group is open on
   *     this thread
   * @throws InterruptedWaitException if the calling thread was interrupted; there is no new
   *     communicator then, and this one may have failed: see {@link #state}
   * @return the new communicator of this rank's color, which its caller closes; null for {@link
   *     #NO_COLOR}
   */
  @Nullable Communicator split(int color, int key, CommunicatorConfig config);

  /**
   * Gives up all unfinished operations on all ranks: they fail with {@link AbortedException}, and
   * the communicator can only be closed. Bounded: it does not wait for other ranks. Any thread may
   * call it, at any time, more than once.
   */
  void abort();

  /**
   * As {@link #abort()}, and tells all ranks why: those of this process have {@code cause} among
   * the causes of their exception, the others its text. To blame ({@link
   * NcclException#failedRanks()}) are the ranks that it names; if it names none, this one.
   */
  void abort(Throwable cause);

  /**
   * Completes this rank's unfinished operations within the configuration's close timeout, then
   * leaves. It is local: other ranks may go on as long as they need nothing more of this rank; if
   * they do, they fail at once, saying so. Closing twice does nothing. What is unfinished after
   * that is given up, and fails on the other ranks; on an interrupted thread, what has to be waited
   * for at all.
   *
   * @throws MismatchException if ranks contradicted each other in their last operations, and this
   *     rank's program has not heard of it yet; it is closed all the same
   * @throws InvalidUsageException if operations lie in an open group, or cannot be given up because
   *     they are queued behind another communicator's; it is not closed then
   */
  @Override
  void close();
}
