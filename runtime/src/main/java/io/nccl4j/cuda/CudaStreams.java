package io.nccl4j.cuda;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/** The open streams of a device, to find out whether something is still in use. Thread-safe. */
final class CudaStreams {
  private final Set<CudaStream> open = ConcurrentHashMap.newKeySet();

  void add(CudaStream stream) {
    open.add(stream);
  }

  void remove(CudaStream stream) {
    open.remove(stream);
  }

  /** What uses a device or pinned buffer, in words; null if nothing does. */
  @Nullable String userOf(Object buffer) {
    for (CudaStream stream : open) {
      String user = stream.userOf(buffer);
      if (user != null) {
        return user;
      }
    }
    return null;
  }
}
