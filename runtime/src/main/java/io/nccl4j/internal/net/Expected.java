package io.nccl4j.internal.net;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Receives that wait for data of one peer. */
public final class Expected<R extends Request> {
  private final List<R> receives = new ArrayList<>();

  public void add(R receive) {
    receives.add(receive);
  }

  /** Takes out the oldest receive with a tag; null if there is none. */
  public @Nullable R take(long tag) {
    for (int i = 0; i < receives.size(); i++) {
      if (receives.get(i).tag() == tag) {
        return receives.remove(i);
      }
    }
    return null;
  }

  /** Whether no data is waited for. */
  public boolean isEmpty() {
    return receives.isEmpty();
  }

  /** Nothing will come. */
  public void fail() {
    for (R receive : receives) {
      receive.end(Port.FAILED);
    }
    receives.clear();
  }
}
