package io.nccl4j.internal.cuda;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import java.lang.foreign.MemorySegment;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A buffer that NCCL knows of. It holds the buffer, which cannot be closed before it; it ends with
 * its communicator at the latest.
 */
abstract class CudaRegistered {
  private static final Logger LOG = LogManager.getLogger(CudaRegistered.class);

  private final CudaCommunicator communicator;
  private final CudaBuffer buffer;
  private final MemorySegment handle;
  private boolean closed;

  /** Over a buffer that is held already. */
  CudaRegistered(CudaCommunicator communicator, CudaBuffer buffer, MemorySegment handle) {
    this.communicator = communicator;
    this.buffer = buffer;
    this.handle = handle;
    communicator.registrations().add(this);
  }

  /** NCCL's call that ends it. */
  abstract int deregister(MemorySegment comm, MemorySegment registration);

  final CudaCommunicator communicator() {
    return communicator;
  }

  /** NCCL's handle; NULL if there is none. */
  final MemorySegment handle() {
    return handle;
  }

  public final DeviceBuffer buffer() {
    return buffer;
  }

  final synchronized boolean isClosed() {
    return closed;
  }

  public final void close() {
    if (isClosed()) {
      return;
    }
    communicator.enterAlone("close of a registration");
    try {
      communicator.backlog().requireIdle("close of a registration");
      end();
    } finally {
      communicator.leave();
    }
  }

  /** Ends it; nothing uses it any more. */
  final synchronized void end() {
    if (closed) {
      return;
    }
    closed = true;
    communicator.registrations().remove(this);
    try {
      if (!handle.equals(MemorySegment.NULL) && communicator.health().failure() == null) {
        CudaCalls.run(communicator, "deregistration", comm -> deregister(comm, handle));
      }
    } catch (NcclException e) {
      LOG.warn("NCCL has not ended a registration of {}", communicator.name(), e);
    } finally {
      buffer.release();
    }
  }
}
