package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Memory;
import org.jspecify.annotations.Nullable;

/**
 * Whether a file that another process hands over can be mapped and touched without danger to this
 * one: an access behind the end of a file, or to a huge page that is not there, would kill it.
 */
public final class HeapFile {
  private static final int SEALS = Memory.F_SEAL_SHRINK | Memory.F_SEAL_GROW | Memory.F_SEAL_SEAL;

  private HeapFile() {}

  /** The kernel's own file system of ordinary memory files; those of huge pages are on another. */
  private static long deviceOfMemoryFiles() {
    int fd = Memory.memfdCreate("nccl4j-probe", Memory.MFD_CLOEXEC);
    try {
      return Descriptors.fstat(fd).device();
    } finally {
      Descriptors.close(fd);
    }
  }

  /**
   * What is wrong with a heap, in words that follow "it"; null if it can be mapped. What was found
   * right stays so, because the seals keep the file's size as it is.
   *
   * @param fd the file, a descriptor of this process
   * @param bytes how large its owner says that it is
   * @throws LibcException if this process may not open another file, or the descriptor is not open
   */
  public static @Nullable String flaw(int fd, long bytes) {
    if (Descriptors.fstat(fd).device() != deviceOfMemoryFiles()) {
      return "is not a memory file of ordinary pages";
    }
    int seals = Memory.getSeals(fd);
    if ((seals & SEALS) != SEALS) {
      return "is not sealed against changes of its size (seals 0x"
          + Integer.toHexString(seals)
          + ")";
    }
    long size = Descriptors.fstat(fd).size();
    if (size != bytes || bytes <= 0 || bytes % Memory.pageSize() != 0) {
      return "has " + size + " B, but is said to have " + bytes + " B";
    }
    return null;
  }
}
