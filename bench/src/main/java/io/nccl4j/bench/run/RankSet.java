package io.nccl4j.bench.run;

import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.program.Case;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The ranks that one thread drives: one, or several through groups. */
public final class RankSet implements AutoCloseable, Iterable<LocalRank> {
  private final List<LocalRank> ranks;
  private final LocalRank first;
  private final boolean single;
  private int stages = 1;

  private final @Nullable Duration timeout;

  /** A set that owns the ranks from now on. */
  public RankSet(List<LocalRank> ranks) {
    this(ranks, null);
  }

  /**
   * A set that owns the ranks from now on.
   *
   * @param timeout how long to wait for operations; null for their own deadlines
   */
  public RankSet(List<LocalRank> ranks, @Nullable Duration timeout) {
    this.timeout = timeout;
    this.ranks = List.copyOf(ranks);
    this.first = ranks.getFirst();
    this.single = ranks.size() == 1;
  }

  /** Number of ranks. */
  public int size() {
    return ranks.size();
  }

  /** The rank with the lowest number. */
  public LocalRank first() {
    return first;
  }

  @Override
  public Iterator<LocalRank> iterator() {
    return ranks.iterator();
  }

  /** Makes every rank's slices for a case. */
  public void prepare(Case next, boolean inPlace, int iterations) {
    stages = next.program().stages(next.nranks());
    for (LocalRank rank : ranks) {
      rank.prepare(next, inPlace, iterations);
    }
  }

  /** Issues one operation on every rank. */
  public void launch(int position) {
    launch(position, 1);
  }

  /** Issues some operations on every rank, from a position on, as one group. */
  public void launch(int position, int count) {
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
  public void grouped(Consumer<LocalRank> task) {
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
  public void synchronize() {
    for (int i = 0; i < ranks.size(); i++) {
      if (timeout == null) {
        ranks.get(i).stream().synchronize();
      } else {
        ranks.get(i).stream().synchronize(timeout);
      }
    }
  }

  /** Captures what a task issues on the ranks' streams, and launches it so many times. */
  public void captured(Runnable task, int launches) {
    List<ExecutableGraph> executables = capture(task);
    try {
      for (int i = 0; i < launches; i++) {
        for (LocalRank rank : ranks) {
          executables.get(rank.index()).launch(rank.stream());
        }
      }
      synchronize();
    } finally {
      Closing.all(executables);
    }
  }

  /** Captures what a task issues on the ranks' streams: a graph for each. */
  List<ExecutableGraph> capture(Runnable task) {
    List<ExecutableGraph> executables = new ArrayList<>();
    for (Graph graph : graphs(task)) {
      try (graph) {
        executables.add(graph.instantiate());
      }
    }
    return executables;
  }

  /** Captures what a task issues: a graph for each rank. */
  public List<Graph> graphs(Runnable task) {
    ranks.forEach(rank -> rank.stream().beginCapture());
    @Nullable RuntimeException refused = null;
    try {
      task.run();
    } catch (RuntimeException e) {
      refused = e;
    }
    List<Graph> graphs = new ArrayList<>();
    for (LocalRank rank : ranks) {
      try {
        graphs.add(rank.stream().endCapture());
      } catch (RuntimeException e) {
        if (refused == null) {
          throw e;
        }
        refused.addSuppressed(e);
      }
    }
    if (refused != null) {
      Closing.all(graphs);
      throw refused;
    }
    return graphs;
  }

  @Override
  public void close() {
    Closing.all(ranks);
  }
}
