package io.nccl4j;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What only NCCL's communicators can do: those of the {@code cuda} backend.
 *
 * <p><b>Versions.</b> Each method says since which NCCL it works; with an older one it throws an
 * {@link InvalidUsageException} that says what to install. Nothing was started then.
 *
 * <p><b>Collective.</b> Where a method says that all ranks call it, it waits for them, up to the
 * init timeout of the configuration, the new communicator's if it makes one. If they do not come,
 * or NCCL fails, this communicator has failed, and the exception says why. No operation of the rank
 * may be unfinished, and no group open on the thread, or an {@link InvalidUsageException} is thrown
 * and nothing started.
 *
 * <p><b>Threads.</b> As for {@link Communicator}: one at a time.
 */
public interface NcclCommunicator extends Communicator {
  /**
   * The communicator as one of NCCL's.
   *
   * @throws InvalidUsageException if it is not one, as those of the host backend
   */
  static NcclCommunicator of(Communicator communicator) {
    if (Require.present(communicator, "communicator") instanceof NcclCommunicator nccl) {
      return nccl;
    }
    throw new InvalidUsageException(
        "communicator "
            + communicator.name()
            + " is of the "
            + communicator.device().backend().label()
            + " backend, which has nothing of NCCL's own",
        "create it on devices of Backend.CUDA");
  }

  /**
   * Joins, as a new rank, a communicator that others make with {@link #grow}. NCCL 2.29.2 or newer.
   *
   * <p>The existing ranks must have begun to grow: NCCL does not wait for them, but fails.
   *
   * @param device where this rank runs, of the cuda backend
   * @param nranks number of ranks of the grown communicator
   * @param id of {@link #createGrowId}
   * @param rank from the old number of ranks to nranks−1, each taken by one caller
   * @throws DeadlineException if not all ranks came within the init timeout
   */
  static NcclCommunicator join(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Provider.get().joinGrowing(device, nranks, id, rank, config);
  }

  /**
   * Estimates how long operations would take, as NCCL's own model has it. They are planned as one
   * group and not started: no buffer is touched, and the communicators' FIFO is as before. NCCL
   * 2.22 or newer.
   *
   * <p>All their communicators must block, as they do by default, see {@link
   * NcclOptions.Builder#blocking}: for others NCCL has no estimate, it would run the operations.
   * All ranks should simulate the same; NCCL may connect them.
   *
   * @param operations calls operations of communicators of this thread; nothing else of them
   * @return NCCL's estimate, in microseconds; of the last aggregate only, where NCCL divides the
   *     group into several. Zero if it has none, as for a single rank
   * @throws InvalidUsageException if a group is open, a communicator does not block, or nothing was
   *     called
   */
  static Duration simulate(Runnable operations) {
    return Provider.get().simulate(Require.present(operations, "operations"));
  }

  /**
   * Makes a communicator without some ranks, which must not call it; all others do. Ranks keep
   * their order. NCCL 2.27.3 or newer.
   *
   * <p>With {@code abortParentsOperations} unfinished operations of this communicator are given up:
   * they fail with {@link AbortedException}, as does a stream that they are in, and this
   * communicator can only be closed. Without, it stays usable. A communicator that has failed
   * cannot be shrunk: NCCL has ended it already. Excluded ranks can take part in no later split,
   * shrink or grow of this communicator, which is refused on the others.
   *
   * @param excludedRanks at least one rank, not this one, none twice
   */
  NcclCommunicator shrink(
      int[] excludedRanks, boolean abortParentsOperations, CommunicatorConfig config);

  /**
   * The id with which new ranks {@link #join}; the rank that calls this is the root of the next
   * {@link #grow}, and has to call that with it. NCCL 2.29.2 or newer.
   *
   * <p>All existing ranks must call {@code grow} only after this has returned on the root, and must
   * not split or shrink in between. An id serves one grow; it contains a secret.
   */
  UniqueId createGrowId();

  /**
   * Makes a communicator of this one's ranks, which keep their numbers, and new ranks, which {@link
   * #join}. All ranks call it; this communicator stays usable. NCCL 2.29.2 or newer.
   *
   * @param nranks number of ranks of the new communicator, more than there are
   * @param id on the root what {@link #createGrowId} returned there, null on all others
   */
  NcclCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig config);

  /**
   * Stops unfinished operations, without ending the communicator: they fail with {@link
   * AbortedException}, as does a stream that they are in. Every rank should call it, in any order;
   * it does not wait for others. Afterwards the communicator is {@link Communicator.State#ABORTED},
   * and can be split, shrunk and closed. NCCL 2.28.7 or newer.
   *
   * @throws InvalidUsageException if the communicator is closed, has failed or was revoked before
   */
  void revoke();

  /**
   * Gives back the memory that NCCL can do without until {@link #resume()}; operations are refused
   * meanwhile. All ranks call it. Refused by NCCL where communicators share resources. NCCL 2.29.7
   * or newer.
   *
   * @throws InvalidUsageException if it is suspended already
   */
  void suspend();

  /**
   * Ends {@link #suspend()}. All ranks call it. NCCL 2.29.7 or newer.
   *
   * @throws InvalidUsageException if it is not suspended
   */
  void resume();

  /** What NCCL can do on this communicator. NCCL 2.29.2 or newer. */
  NcclProperties properties();

  /**
   * What NCCL has allocated on this rank's device for this communicator. NCCL 2.29.7 or newer, and
   * not with {@code NCCL_DISABLE_MEM_MANAGER=1}.
   */
  NcclMemoryStatistics memoryStatistics();

  /**
   * Registers a buffer, so that operations on it may do without copies. Local. The buffer cannot be
   * closed before the registration, which ends with the communicator at the latest.
   *
   * @throws InvalidArgumentException if the buffer is empty or not on this communicator's device
   */
  Registration register(DeviceBuffer buffer);

  /**
   * Registers the chunks of a pool that are not registered yet, once each, so that operations on
   * all its buffers may do without copies. Local. A registered chunk stays until its registration
   * ends, with the communicator at the latest. Call it again when the pool has grown.
   *
   * @return the registrations of all chunks, in the order in which the pool took them
   */
  List<Registration> register(MemoryPool pool);

  /**
   * Makes the chunks of a pool windows that are none yet, so that all its buffers lie in windows.
   * All ranks call it, with pools that have the same number of new chunks; otherwise as {@link
   * #registerWindow} and {@link #register(MemoryPool)}. For equal offsets on all ranks, which
   * symmetric windows ask of collectives, give the pools their initial size, and let all ranks
   * allocate the same buffers in the same order before any is closed.
   */
  List<Window> registerWindows(MemoryPool pool, boolean symmetric, boolean strictOrdering);

  /**
   * Makes a buffer a window, which other ranks can reach. All ranks call it; their buffers may have
   * different sizes. The buffer cannot be closed before the window, which ends with the
   * communicator at the latest. NCCL 2.27.3 or newer.
   *
   * @param buffer starts at a multiple of 4096 bytes, as allocated buffers do; not empty
   * @param symmetric whether collectives use it: each rank then uses the same offset in its window
   * @param strictOrdering whether one-sided writes arrive in order; as NCCL 2.30 has it
   * @return the window; see {@link Window#isSupported()}
   */
  Window registerWindow(DeviceBuffer buffer, boolean symmetric, boolean strictOrdering);

  /**
   * Writes into a peer's window and then signals the peer. It needs {@link
   * NcclProperties#hostRmaSupport()}, and does not work in a capture. NCCL 2.29.2 or newer.
   *
   * @param buffer {@code count} elements, in a symmetric window of this rank
   * @param peer whose window is written; its part must have the room, which is not checked
   * @param window a supported, symmetric window of this communicator
   * @param byteOffset where in the peer's part of the window, in bytes
   */
  void putSignal(
      DeviceBuffer buffer,
      long count,
      DataType type,
      int peer,
      Window window,
      long byteOffset,
      Stream stream);

  /** Signals a peer, after what was put to it before; otherwise as {@link #putSignal}. */
  void signal(int peer, Stream stream);

  /**
   * Lets the stream wait for signals; each is counted once. It does not work in a capture. NCCL
   * 2.29.2 or newer.
   *
   * @param counts nranks numbers of signals, by peer; not all 0
   */
  void waitSignals(int[] counts, Stream stream);

  /** A registered buffer. */
  interface Registration extends AutoCloseable {
    /** The buffer. */
    DeviceBuffer buffer();

    /**
     * Whether NCCL has noted it: not if registration is off, by {@code NCCL_LOCAL_REGISTER=0} or by
     * lack of support. Operations work all the same.
     */
    boolean isActive();

    /**
     * Ends the registration; local. Closing twice does nothing.
     *
     * @throws InvalidUsageException if operations of the communicator are unfinished
     */
    @Override
    void close();
  }

  /** A buffer that other ranks can reach. */
  interface Window extends AutoCloseable {
    /** This rank's part. */
    DeviceBuffer buffer();

    /**
     * Whether there is a window: NCCL makes none, and says nothing, where it cannot map the ranks'
     * memory. Collectives on the buffer work all the same; one-sided operations do not.
     */
    boolean isSupported();

    /**
     * Ends this rank's part. Local: let the ranks meet before, so that none still writes to it.
     * Closing twice does nothing.
     *
     * @throws InvalidUsageException if operations of the communicator are unfinished
     */
    @Override
    void close();
  }
}
