package io.nccl4j.bench;

import io.nccl4j.Group;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;

/** The ranks that one thread drives: one, or several through groups. */
final class RankSet implements AutoCloseable, Iterable<LocalRank> {
  private final List<LocalRank> ranks;
  private final LocalRank first;
  private final boolean single;
  private int stages = 1;

  /** A set that owns the ranks from now on. */
  RankSet(List<LocalRank> ranks) {
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
    for (int stage = 0; stage < stages; stage++) {
      launch(position, stage);
    }
  }

  private void launch(int position, int stage) {
    if (single) {
      first.launch(position, stage);
      return;
    }
    try (Group group = Group.start()) {
      for (int i = 0; i < ranks.size(); i++) {
        ranks.get(i).launch(position, stage);
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

  /** Waits until everything issued is complete. */
  void synchronize() {
    for (int i = 0; i < ranks.size(); i++) {
      ranks.get(i).stream().synchronize();
    }
  }

  @Override
  public void close() {
    Closing.all(ranks);
  }
}
