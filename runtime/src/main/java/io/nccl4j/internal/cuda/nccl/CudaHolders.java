package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.NcclException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * The graphs and captures with operations of a communicator. NCCL cannot end before they let them
 * go. Thread-safe.
 */
public final class CudaHolders {
  /** What keeps operations of a communicator. */
  public interface Holder {
    /** Learns what has run by now. */
    default void poll() {}

    /** Lets go of them. Any thread; called once or more. */
    void communicatorEnds();
  }

  private static final Logger LOG = LogManager.getLogger(CudaHolders.class);

  private final String name;
  private final Set<Holder> holders = ConcurrentHashMap.newKeySet();
  private final AtomicInteger unfinished = new AtomicInteger();
  private final AtomicLong launches = new AtomicLong();
  private volatile @Nullable Thread releasing;

  /** Of the communicator with that name. */
  public CudaHolders(String name) {
    this.name = name;
  }

  public void add(Holder holder) {
    holders.add(holder);
  }

  public void remove(Holder holder) {
    holders.remove(holder);
  }

  public void graphStarted() {
    launches.incrementAndGet();
    unfinished.incrementAndGet();
  }

  public void graphEnded() {
    unfinished.decrementAndGet();
  }

  /** Launches that have not run. */
  public int unfinishedGraphs() {
    return unfinished.get();
  }

  /** Launches so far. */
  public long graphLaunches() {
    return launches.get();
  }

  /** Learns which launches have run by now. */
  public void poll() {
    holders.forEach(Holder::poll);
  }

  /** Whatever one of them says, such as that the device is lost, the others let go, too. */
  public void release() {
    for (Holder holder : holders) {
      try {
        holder.communicatorEnds();
      } catch (NcclException e) {
        LOG.warn("a graph of communicator {} is left to CUDA: {}", name, e.getMessage());
      }
    }
  }

  /** Destroying a graph waits until it has run, which it does once NCCL aborts. */
  void releaseInBackground() {
    releasing = NcclHandle.inBackground(this::release, name);
  }

  /** The thread of {@link #releaseInBackground}; null if there is none. */
  public @Nullable Thread releasing() {
    return releasing;
  }
}
