package io.nccl4j.cuda;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Unstable;
import java.lang.foreign.MemorySegment;
import java.util.OptionalLong;

/**
 * One rank's communicator for kernels, NCCL's {@code ncclDevComm}: with it a kernel of the
 * program's own meets the other ranks' kernels, and reads and writes their windows. {@link
 * NcclCommunicator#createDeviceCommunicator} creates it.
 *
 * <p>It is an argument of {@link CudaKernel#launch}, for a parameter {@code ncclDevComm} passed by
 * value; likewise a {@link NcclCommunicator.Window}, for an {@code ncclWindow_t}.
 *
 * <p>The caller owns it. It ends with its communicator at the latest. Neither can be closed before
 * the kernels that were launched with it have run, but for a communicator that has failed.
 *
 * <p><b>Waiting.</b> All ranks launch the kernel, in the same order relative to their other work.
 * NCCL cannot end a kernel that waits for a rank which never comes: wait for streams with {@link
 * io.nccl4j.Stream#synchronize(java.time.Duration)}, or let the kernel's barriers time out. Kernels
 * that wait for each other must all fit on their GPUs at once. If the communicator fails, NCCL
 * takes the memory of windows and device communicators away: kernels that still run then break
 * their device's context, see {@link CudaException#isSticky()}.
 *
 * <p><b>Threads.</b> As for its communicator.
 */
@Unstable
public interface NcclDeviceCommunicator extends AutoCloseable {
  /** The communicator it was created with. */
  NcclCommunicator communicator();

  /** What it was asked to hold. */
  NcclDeviceRequirements requirements();

  /** This rank's place among the ranks whose memory it can reach, from 0. */
  int lsaRank();

  /** Number of ranks, this one included, whose memory this rank can reach by load and store. */
  int lsaSize();

  /**
   * The structure, {@code ncclDevComm} of the requirements' headers, read-only: for kernels that
   * take it as a part of a structure of their own. Valid until this is closed.
   *
   * @throws InvalidUsageException if it is closed
   */
  MemorySegment structure();

  /**
   * The address by which a kernel reaches all ranks' parts of a window at once, {@code
   * ncclGetMultimemDevicePointer}; empty without multicast.
   *
   * @param window a supported window of the communicator
   * @param byteOffset offset in each rank's part, in bytes
   * @throws InvalidArgumentException if the window is of another communicator, or the offset is not
   *     inside this rank's part
   * @throws InvalidUsageException if this or the window is closed, or the window is not supported
   */
  OptionalLong multimemAddress(NcclCommunicator.Window window, long byteOffset);

  /**
   * Closes it on this rank alone; first let all ranks be done with it. Closing twice does nothing.
   *
   * @throws InvalidUsageException if a kernel that was launched with it has not run, or operations
   *     of the communicator are unfinished; nothing has happened then
   */
  @Override
  void close();
}
