package io.nccl4j.internal.cuda.nccl;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

/**
 * Teams by what tells them apart. Each is held by its ranks, from before the first has joined, and
 * forgotten when they no longer hold it. Thread-safe.
 */
public final class Teams<K> {
  private final Map<K, WeakReference<Team>> teams = new HashMap<>();

  /** The team with that key; one is made if there is none. */
  public synchronized Team get(K key, Supplier<Team> made) {
    teams.values().removeIf(team -> team.refersTo(null));
    WeakReference<Team> known = teams.get(key);
    Team team = known == null ? null : known.get();
    if (team == null) {
      team = made.get();
      teams.put(key, new WeakReference<>(team));
    }
    return team;
  }
}
