package io.nccl4j.internal.memory;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * What is freed later: memory that was closed while something used it. It is looked through
 * whenever memory is allocated, freed or reported, so that asking must be cheap and must not wait.
 * Thread-safe; actions run outside its lock.
 */
public final class Deferral {
  private record Entry(BooleanSupplier safe, Runnable action) {}

  private final List<Entry> entries = new ArrayList<>();
  private volatile boolean waiting;

  /** Runs {@code action} at the first {@link #sweep()} that finds it {@code safe}. */
  public synchronized void add(BooleanSupplier safe, Runnable action) {
    entries.add(new Entry(safe, action));
    waiting = true;
  }

  /** Whether nothing waits, and nothing that waited is being run. */
  public boolean isEmpty() {
    return !waiting;
  }

  /** Runs what can be run now, and what others waited for by that. */
  public void sweep() {
    for (List<Runnable> ready = takeSafe(); !ready.isEmpty(); ready = takeSafe()) {
      run(ready);
    }
  }

  private void run(List<Runnable> ready) {
    int done = 0;
    try {
      while (done < ready.size()) {
        ready.get(done++).run();
      }
    } finally {
      // One that fails takes none of the others with it.
      ready.subList(done, ready.size()).forEach(action -> add(() -> true, action));
    }
  }

  private synchronized List<Runnable> takeSafe() {
    List<Runnable> ready = new ArrayList<>();
    for (Iterator<Entry> i = entries.iterator(); i.hasNext(); ) {
      Entry entry = i.next();
      if (entry.safe.getAsBoolean()) {
        i.remove();
        ready.add(entry.action);
      }
    }
    if (ready.isEmpty()) {
      waiting = !entries.isEmpty();
    }
    return ready;
  }
}
