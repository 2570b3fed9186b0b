package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import java.lang.foreign.MemorySegment;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A buffer that NCCL knows of. It holds the buffer, which cannot be closed before it; it ends with
 * its communicator at the latest.
 */
abstract class CudaRegistered {
  private static final Logger LOG = LogManager.getLogger(CudaRegistered.class);

  private final CudaRegistrations all;
  private final CudaBuffer buffer;
  private final MemorySegment handle;
  private boolean closed;

  /** Over a buffer that is held already. */
  CudaRegistered(CudaRegistrations all, CudaBuffer buffer, MemorySegment handle) {
    this.all = all;
    this.buffer = buffer;
    this.handle = handle;
    all.add(this);
  }

  /** NCCL's call that ends it. */
  abstract int deregister(MemorySegment comm, MemorySegment registration);

  /** Those of its communicator. */
  final CudaRegistrations all() {
    return all;
  }

  /** NCCL's handle; NULL if there is none. */
  final MemorySegment handle() {
    return handle;
  }

  public final DeviceBuffer buffer() {
    return buffer;
  }

  public final synchronized boolean isClosed() {
    return closed;
  }

  public final void close() {
    if (isClosed()) {
      return;
    }
    all.closeAlone("close of a registration", this, this::end);
  }

  /** Ends it; nothing uses it any more. */
  final synchronized void end() {
    if (closed) {
      return;
    }
    closed = true;
    all.remove(this);
    try {
      if (!handle.equals(MemorySegment.NULL) && !all.haveEnded()) {
        all.calls().run("deregistration", comm -> deregister(comm, handle));
      }
    } catch (NcclException e) {
      LOG.warn("NCCL has not ended a registration of {}", all.owner().name(), e);
    } finally {
      buffer.release();
    }
  }
}
