package io.nccl4j.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Provider;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.Unstable;
import io.nccl4j.internal.check.Require;
import io.nccl4j.memory.MemoryPool;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * Operations that only NCCL's communicators have, those of the {@code cuda} backend.
 *
 * <p><b>Versions.</b> Each method names the first NCCL that supports it; with an older one it
 * throws an {@link InvalidUsageException} that says what to install, and starts nothing.
 *
 * <p><b>Collective.</b> A method that all ranks must call waits for them, up to the init timeout of
 * the configuration (the new communicator's, if it creates one). If they do not come, or NCCL
 * fails, this communicator has failed, and the exception says why. If the rank has unfinished
 * operations, or the thread an open group, it throws an {@link InvalidUsageException} and starts
 * nothing.
 *
 * <p><b>Threads.</b> As for {@link Communicator}: one at a time.
 */
@Unstable
public interface NcclCommunicator extends Communicator {
  /**
   * Returns {@code communicator} as one of NCCL's.
   *
   * @throws InvalidUsageException if it is not, as on the host backend
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
   * Joins, as a new rank, a communicator that others create with {@link #grow}. NCCL 2.29.2 or
   * newer.
   *
   * <p>The existing ranks must already be growing: NCCL does not wait for them, but fails.
   *
   * @param device where this rank runs, of the cuda backend
   * @param nranks number of ranks of the grown communicator
   * @param id from {@link #createGrowId}
   * @param rank from the old number of ranks to nranks−1, each taken by one caller
   * @throws DeadlineException if not all ranks came within the init timeout
   */
  static NcclCommunicator join(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return Provider.get(NcclProvider.class).joinGrowing(device, nranks, id, rank, config);
  }

  /**
   * Estimates how long operations would take, by NCCL's own model. They are planned as one group
   * and not started: no buffer is touched, and the communicators' FIFOs do not change. NCCL 2.22 or
   * newer.
   *
   * <p>All their communicators must be blocking, the default, see {@link
   * NcclOptions.Builder#blocking}: for others NCCL has no estimate, and would run the operations.
   * All ranks should simulate the same; NCCL may connect them.
   *
   * @param operations calls operations, and nothing else, of communicators of this thread
   * @return NCCL's estimate, in microseconds; if NCCL divides the group into several, of the last
   *     one only. Zero if it has none, as for a single rank
   * @throws InvalidUsageException if a group is open, a communicator is not blocking, or nothing
   *     was called
   */
  static Duration simulate(Runnable operations) {
    return Provider.get(NcclProvider.class).simulate(operations);
  }

  /**
   * Creates a communicator without the excluded ranks; all other ranks call it, the excluded ones
   * must not. Ranks keep their order. NCCL 2.27.3 or newer.
   *
   * <p>With {@code abortParentsOperations}, unfinished operations of this communicator are given
   * up: they and their streams fail with {@link AbortedException}, and this communicator can only
   * be closed. Otherwise it stays usable. A failed communicator cannot be shrunk: NCCL has already
   * ended it. Excluded ranks can take part in no later split, shrink or grow of this communicator,
   * which is refused on the others.
   *
   * @param excludedRanks one or more distinct ranks, not including this one
   */
  NcclCommunicator shrink(
      int[] excludedRanks, boolean abortParentsOperations, CommunicatorConfig config);

  /**
   * Creates the id with which new ranks {@link #join}. The rank that calls this is the root of the
   * next {@link #grow}, and must pass the id to it. NCCL 2.29.2 or newer.
   *
   * <p>All existing ranks must call {@code grow} only after this has returned on the root, and must
   * not split or shrink in between. An id is good for one grow; it contains a secret.
   */
  UniqueId createGrowId();

  /**
   * Creates a communicator of this one's ranks, which keep their numbers, and new ranks, which
   * {@link #join}. All ranks call it; this communicator stays usable. NCCL 2.29.2 or newer.
   *
   * @param nranks number of ranks of the new communicator, more than this one has
   * @param id on the root, the result of {@link #createGrowId}; null on all others
   */
  NcclCommunicator grow(int nranks, @Nullable UniqueId id, CommunicatorConfig config);

  /**
   * Stops unfinished operations without ending the communicator: they and their streams fail with
   * {@link AbortedException}. Every rank should call it, in any order; it does not wait for others.
   * Afterwards the communicator is {@link Communicator.State#ABORTED}, and can be split, shrunk and
   * closed. NCCL 2.28.7 or newer.
   *
   * @throws InvalidUsageException if the communicator is closed, has failed or was already revoked
   */
  void revoke();

  /**
   * Releases the memory that NCCL can do without until {@link #resume()}; operations are refused
   * meanwhile. All ranks call it. NCCL refuses it if communicators share resources. NCCL 2.29.7 or
   * newer.
   *
   * @throws InvalidUsageException if it is already suspended
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
   * Registers a buffer, so that operations on it may avoid copies. Local. The buffer cannot be
   * closed before the registration, which ends with the communicator at the latest.
   *
   * @throws InvalidArgumentException if the buffer is empty or not on this communicator's device
   */
  Registration register(DeviceBuffer buffer);

  /**
   * Registers the chunks of a pool that are not yet registered, once each, so that operations on
   * all its buffers may avoid copies. Local. A registered chunk stays until its registration ends,
   * with the communicator at the latest. Call it again when the pool has grown.
   *
   * @return the registrations of all chunks, in the order in which the pool took them
   */
  List<Registration> register(MemoryPool pool);

  /**
   * Makes windows of a pool's chunks that are not yet windows, so that all its buffers lie in
   * windows. All ranks call it, with pools that have the same number of new chunks; otherwise it
   * works like {@link #registerWindow} and {@link #register(MemoryPool)}. Collectives on symmetric
   * windows need equal offsets on all ranks: give the pools an initial size, and let all ranks
   * allocate the same buffers in the same order before any is closed.
   */
  List<Window> registerWindows(MemoryPool pool, boolean symmetric, boolean strictOrdering);

  /**
   * Makes a buffer a window that other ranks can reach. All ranks call it; their buffers may have
   * different sizes. The buffer cannot be closed before the window, which ends with the
   * communicator at the latest. NCCL 2.27.3 or newer.
   *
   * @param buffer starts at a multiple of 4096 bytes, as allocated buffers do; not empty
   * @param symmetric whether collectives use it: each rank then uses the same offset in its window
   * @param strictOrdering whether one-sided writes arrive in order, as in NCCL 2.30
   * @return the window; see {@link Window#isSupported()}
   */
  Window registerWindow(DeviceBuffer buffer, boolean symmetric, boolean strictOrdering);

  /**
   * Creates what kernels need to communicate by themselves. All ranks call it, with the same
   * requirements. NCCL 2.29.2 or newer, and not older than the headers that the kernels were
   * compiled with.
   *
   * <p>NCCL takes memory of the device for it, at least one granule of 2 MiB.
   *
   * @throws InvalidUsageException if the library is older than the headers, or the communicator has
   *     no symmetric memory, no multicast or no network for kernels, but the requirements need it;
   *     see {@link NcclProperties}
   */
  NcclDeviceCommunicator createDeviceCommunicator(NcclDeviceRequirements requirements);

  /**
   * Queues a write into a peer's window and then a signal to the peer, and returns before they are
   * complete. Needs {@link NcclProperties#hostRmaSupport()}, and cannot be captured. NCCL 2.29.2 or
   * newer.
   *
   * @param buffer {@code count} elements, in a symmetric window of this rank
   * @param peer the rank whose window is written; bounds of its part are not checked
   * @param window a supported, symmetric window of this communicator
   * @param byteOffset offset in the peer's part of the window, in bytes
   */
  void putSignal(
      DeviceBuffer buffer,
      long count,
      DataType type,
      int peer,
      Window window,
      long byteOffset,
      Stream stream);

  /** Queues a signal to a peer, after earlier puts to it; otherwise like {@link #putSignal}. */
  void signal(int peer, Stream stream);

  /**
   * Makes the stream wait for signals, each of which counts once. Cannot be captured. NCCL 2.29.2
   * or newer.
   *
   * @param counts nranks numbers of signals, one per peer; not all 0
   */
  void waitSignals(int[] counts, Stream stream);

  /** A registered buffer. */
  interface Registration extends AutoCloseable {
    /** The buffer. */
    DeviceBuffer buffer();

    /**
     * Whether NCCL has registered it; false if {@code NCCL_LOCAL_REGISTER=0} disables registration
     * or it is not supported. Operations still work.
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
     * Whether there is a window: NCCL silently creates none if it cannot map the ranks' memory.
     * Collectives on the buffer still work; one-sided operations do not.
     */
    boolean isSupported();

    /**
     * The address at which this rank's kernels reach the part of a rank, {@code
     * ncclGetPeerDevicePointer}; empty if its memory is out of reach of loads and stores. It holds
     * until the window is closed. NCCL 2.29.2 or newer.
     *
     * @param rank a rank of the communicator, this one included
     * @param byteOffset offset in its part, in bytes; this rank's part has such a byte, too
     * @throws InvalidArgumentException if there is no such rank or byte
     * @throws InvalidUsageException if the window is closed or not supported
     */
    OptionalLong peerAddress(int rank, long byteOffset);

    /**
     * The same by the rank's place among those whose memory can be reached, {@code
     * ncclGetLsaDevicePointer}.
     *
     * @param lsaRank from 0; {@link NcclDeviceCommunicator#lsaSize} is their number
     * @throws InvalidArgumentException if there is no such rank or byte
     */
    long lsaAddress(int lsaRank, long byteOffset);

    /**
     * The address by which kernels reach the parts of all those ranks at once, {@code
     * ncclGetLsaMultimemDevicePointer}; empty without multicast (NVLS). NCCL 2.29.2 or newer.
     */
    OptionalLong multimemAddress(long byteOffset);

    /**
     * Ends this rank's part. Local: let the ranks meet first, so that none still writes to it.
     * Closing twice does nothing.
     *
     * @throws InvalidUsageException if operations of the communicator are unfinished, or a kernel
     *     that was launched with it has not run
     */
    @Override
    void close();
  }
}
