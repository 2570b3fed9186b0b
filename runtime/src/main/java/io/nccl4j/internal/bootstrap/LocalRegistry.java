package io.nccl4j.internal.bootstrap;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * The rendezvous that this process created: the open ones, and the last failed ones, so that a rank
 * that comes too late still hears why. Threads: any.
 */
final class LocalRegistry {
  private static final int MAX_FAILED = 64;

  private final Map<UUID, Meeting> open = new LinkedHashMap<>();
  private final Map<UUID, Meeting> failed =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<UUID, Meeting> eldest) {
          return size() > MAX_FAILED;
        }
      };

  /** A rendezvous and its id. */
  record Meeting(RendezvousId id, Gathering gathering) {}

  /** Adds a rendezvous that nobody can know yet; it is forgotten when it has succeeded. */
  void add(RendezvousId id, Gathering gathering) {
    Meeting meeting = new Meeting(id, gathering);
    synchronized (this) {
      open.put(id.name(), meeting);
    }
    gathering.onEnd(outcome -> ended(meeting, outcome));
  }

  /** The rendezvous of that name, or null. */
  synchronized @Nullable Meeting find(UUID name) {
    Meeting meeting = open.get(name);
    return meeting != null ? meeting : failed.get(name);
  }

  private synchronized void ended(Meeting meeting, Gathering.Outcome outcome) {
    open.remove(meeting.id.name());
    if (outcome.failure() != null) {
      failed.put(meeting.id.name(), meeting);
    }
  }
}
