package io.nccl4j.bench;

import io.nccl4j.Group;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The ranks that one thread drives: one, or several through groups. */
final class RankSet implements AutoCloseable, Iterable<LocalRank> {
  private final List<LocalRank> ranks;
  private final LocalRank first;
  private final boolean single;
  private int stages = 1;

  private final @Nullable Duration timeout;

  /** A set that owns the ranks from now on. */
  RankSet(List<LocalRank> ranks) {
    this(ranks, null);
  }

  /**
   * A set that owns the ranks from now on.
   *
   * @param timeout how long to wait for operations; null for their own deadlines
   */
  RankSet(List<LocalRank> ranks, @Nullable Duration timeout) {
    this.timeout = timeout;
    this.ranks = List.copyOf(ranks);
    this.first = ranks.getFirst();
    this.single = ranks.size() == 1;
  }

  /** Number of ranks. */
  int size() {
    return ranks.size();
  }

  /** The rank with the lowest number. */
  LocalRank first() {
    return first;
  }

  @Override
  public Iterator<LocalRank> iterator() {
    return ranks.iterator();
  }

  /** Makes every rank's slices for a case. */
  void prepare(Case next, boolean inPlace, int iterations) {
    stages = next.program().stages(next.nranks());
    for (LocalRank rank : ranks) {
      rank.prepare(next, inPlace, iterations);
    }
  }

  /** Issues one operation on every rank. */
  void launch(int position) {
    launch(position, 1);
  }

  /** Issues some operations on every rank, from a position on, as one group. */
  void launch(int position, int count) {
    for (int stage = 0; stage < stages; stage++) {
      if (single && count == 1) {
        first.launch(position, stage);
      } else {
        launchGroup(position, count, stage);
      }
    }
  }

  private void launchGroup(int position, int count, int stage) {
    try (Group group = Group.start()) {
      int at = position;
      for (int c = 0; c < count; c++) {
        for (int i = 0; i < ranks.size(); i++) {
          ranks.get(i).launch(at, stage);
        }
        at = at + 1 == first.positions() ? 0 : at + 1;
      }
      group.launch();
    }
  }

  /** Issues something on every rank, as a group if there are several. */
  void grouped(Consumer<LocalRank> task) {
    if (single) {
      task.accept(first);
    } else {
      Group.run(() -> ranks.forEach(task));
    }
  }

  /** Puts a mark into every rank's stream. */
  void mark(int number) {
    for (int i = 0; i < ranks.size(); i++) {
      ranks.get(i).mark(number);
    }
  }

  /** Waits until everything issued is complete. */
  void synchronize() {
    for (int i = 0; i < ranks.size(); i++) {
      if (timeout == null) {
        ranks.get(i).stream().synchronize();
      } else {
        ranks.get(i).stream().synchronize(timeout);
      }
    }
  }

  @Override
  public void close() {
    Closing.all(ranks);
  }
}
