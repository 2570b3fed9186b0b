package io.nccl4j.internal.observe;

import io.nccl4j.internal.observe.Recorder.StallEvent;
import org.jspecify.annotations.Nullable;

/**
 * How long an operation has been waited for. It belongs to the operation's place in the FIFO, which
 * another operation may take while somebody still looks at this one. Thread-safe.
 */
public final class StallWatch {
  private final Observed operation;
  private @Nullable StallEvent event;
  private int kind;
  private int peer;
  private long sequence;
  private long since;
  private long nextLook;

  /** Nobody waits. */
  public StallWatch(Observed operation) {
    this.operation = operation;
  }

  /** The operation is being waited for; looks whether that lasts. Called again and again. */
  public synchronized void waiting() {
    long now = System.nanoTime();
    StallEvent known = event;
    if (known == null || !isSame()) {
      event = Recorder.HERE.newStall();
      kind = operation.kind();
      peer = operation.rootOrPeer();
      sequence = operation.sequence();
      since = now;
      nextLook = 0;
    } else if (now - since >= nextLook && known.look(operation, now - since)) {
      // A wait that goes on is told of whenever it is twice as long.
      nextLook = 2 * (now - since);
    }
  }

  /** Whether it is the operation that was looked at last; no other has the same numbers. */
  private boolean isSame() {
    return sequence == operation.sequence()
        && kind == operation.kind()
        && peer == operation.rootOrPeer();
  }
}
