package io.nccl4j.internal.cuda;

import io.nccl4j.internal.cuda.memory.MemoryUsers;
import io.nccl4j.internal.memory.Uses;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The streams of a device that are open or not empty, to find out whether something is still in
 * use. Thread-safe.
 */
final class CudaStreams implements MemoryUsers {
  private final Set<CudaStream> open = ConcurrentHashMap.newKeySet();

  void add(CudaStream stream) {
    open.add(stream);
  }

  void remove(CudaStream stream) {
    open.remove(stream);
  }

  @Override
  public void learnPassed() {
    open.forEach(CudaStream::learnPassed);
  }

  @Override
  public Uses usesOf(Object buffer) {
    Uses uses = new Uses();
    for (CudaStream stream : open) {
      StreamQueue queue = stream.queue();
      stream.learnPassed();
      long end = queue.lastUse(buffer);
      if (end > 0) {
        uses.add(() -> queue.head() >= end);
      }
    }
    return uses;
  }

  @Override
  public @Nullable String userOf(Object buffer) {
    for (CudaStream stream : open) {
      String user = stream.userOf(buffer);
      if (user != null) {
        return user;
      }
    }
    return null;
  }
}
