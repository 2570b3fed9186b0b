package io.nccl4j.bench.selftest;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.run.LocalRank;
import io.nccl4j.bench.run.RankSet;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** What the self test tries besides single operations; each gives the number of wrong elements. */
final class SelfTestScenes {
  private static final int COUNT = 1000;

  /** How long ranks may take to notice that one has aborted. */
  private static final Duration QUIET = Duration.ofSeconds(10);

  private static final byte BYTE = 0x5a;
  private static final int FOUR = 0x5a5a5a5a;

  private SelfTestScenes() {}

  /** Two buffers of a rank. */
  private record Pair(DeviceBuffer in, DeviceBuffer out) implements AutoCloseable {
    static List<Pair> of(RankSet ranks, int elements) {
      List<Pair> pairs = new ArrayList<>();
      for (LocalRank rank : ranks) {
        pairs.add(
            new Pair(
                rank.device().allocate(DataType.INT32, elements),
                rank.device().allocate(DataType.INT32, elements)));
      }
      return pairs;
    }

    void fill(int element) {
      int[] values = new int[(int) (in.byteSize() / Integer.BYTES)];
      Arrays.fill(values, element);
      in.copyFrom(values);
      Arrays.fill(values, ~element);
      out.copyFrom(values);
    }

    /**
     * Waits until no rank of a failed communicator can write to it; false if that takes too long.
     */
    boolean becomesQuiet() {
      try {
        return in.awaitQuiet(QUIET) && out.awaitQuiet(QUIET);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      }
    }

    @Override
    public void close() {
      in.close();
      out.close();
    }
  }

  private static int sum(int nranks, int factor) {
    return IntStream.range(0, nranks).map(rank -> factor * (rank + 1)).sum();
  }

  /** A graph is launched again and again on new inputs, then becomes another one. */
  static long graphs(RankSet ranks, int launches) {
    List<Pair> first = Pair.of(ranks, COUNT);
    List<Pair> second = Pair.of(ranks, COUNT);
    List<AutoCloseable> owned = new ArrayList<>();
    owned.addAll(first);
    owned.addAll(second);
    int nranks = ranks.first().communicator().nranks();
    long wrong = 0;
    try {
      List<ExecutableGraph> executables = new ArrayList<>();
      for (Graph graph : ranks.graphs(() -> allReduce(ranks, first))) {
        try (graph) {
          ExecutableGraph executable = graph.instantiate();
          executables.add(executable);
          owned.add(executable);
        }
      }
      for (int i = 1; i <= launches; i++) {
        wrong += launched(ranks, executables, first, i, nranks);
      }
      List<Graph> others = ranks.graphs(() -> allReduce(ranks, second));
      owned.addAll(others);
      for (LocalRank rank : ranks) {
        executables.get(rank.index()).update(others.get(rank.index()));
      }
      for (int i = 1; i <= launches; i++) {
        wrong += launched(ranks, executables, second, 7 * i, nranks);
      }
      return wrong;
    } finally {
      Closing.all(owned);
    }
  }

  private static long launched(
      RankSet ranks, List<ExecutableGraph> graphs, List<Pair> pairs, int factor, int nranks) {
    for (LocalRank rank : ranks) {
      pairs.get(rank.index()).fill(factor * (rank.rank() + 1));
    }
    for (LocalRank rank : ranks) {
      graphs.get(rank.index()).launch(rank.stream());
    }
    ranks.synchronize();
    return differing(pairs, sum(nranks, factor));
  }

  private static long differing(List<Pair> pairs, int expected) {
    return pairs.stream().mapToLong(pair -> SelfTest.differing(pair.out, expected)).sum();
  }

  private static void allReduce(RankSet ranks, List<Pair> pairs) {
    ranks.grouped(
        rank -> {
          Pair pair = pairs.get(rank.index());
          rank.communicator()
              .allReduce(pair.in, pair.out, COUNT, DataType.INT32, ReduceOp.SUM, rank.stream());
        });
  }

  /** Collectives and a ring in one group. */
  static long groups(RankSet ranks) {
    List<Pair> reduced = Pair.of(ranks, COUNT);
    List<Pair> gathered = Pair.of(ranks, 1);
    List<Pair> passed = Pair.of(ranks, COUNT);
    List<AutoCloseable> owned = new ArrayList<>();
    owned.addAll(reduced);
    owned.addAll(gathered);
    owned.addAll(passed);
    int n = ranks.first().communicator().nranks();
    try {
      for (LocalRank rank : ranks) {
        reduced.get(rank.index()).fill(rank.rank() + 1);
        gathered.get(rank.index()).fill(rank.rank() + 100);
        passed.get(rank.index()).fill(rank.rank() + 1000);
      }
      Group.run(
          () -> {
            for (LocalRank rank : ranks) {
              Communicator c = rank.communicator();
              Stream stream = rank.stream();
              Pair one = reduced.get(rank.index());
              Pair two = gathered.get(rank.index());
              Pair three = passed.get(rank.index());
              c.allReduce(one.in, one.out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
              c.broadcast(two.in, two.out, 1, DataType.INT32, n - 1, stream);
              c.send(three.in, COUNT, DataType.INT32, (rank.rank() + 1) % n, stream);
              c.recv(three.out, COUNT, DataType.INT32, (rank.rank() + n - 1) % n, stream);
            }
          });
      ranks.synchronize();
      long wrong = differing(reduced, sum(n, 1)) + differing(gathered, n - 1 + 100);
      for (LocalRank rank : ranks) {
        int from = (rank.rank() + n - 1) % n;
        wrong += SelfTest.differing(passed.get(rank.index()).out, from + 1000);
      }
      return wrong;
    } finally {
      Closing.all(owned);
    }
  }

  /** One stream fills, an event tells another one, which copies; futures and times of events. */
  static long events(RankSet ranks) {
    List<Pair> pairs = Pair.of(ranks, COUNT);
    long wrong = 0;
    try {
      for (LocalRank rank : ranks) {
        Pair pair = pairs.get(rank.index());
        pair.fill(rank.rank());
        try (Stream other = rank.device().newStream();
            Event before = rank.device().newEvent();
            Event filled = rank.device().newEvent();
            Event copied = rank.device().newEvent()) {
          rank.stream().record(before);
          rank.stream().fill(pair.in, BYTE);
          rank.stream().record(filled);
          other.waitFor(filled);
          other.copy(pair.out, pair.in);
          other.record(copied);
          copied.toFuture().join();
          wrong += copied.isComplete() ? 0 : 1;
          wrong += filled.isComplete() && !filled.elapsedSince(before).isNegative() ? 0 : 1;
          wrong += SelfTest.differing(pair.out, FOUR);
          rank.stream().synchronize();
        }
      }
      return wrong;
    } finally {
      Closing.all(pairs);
    }
  }

  /** Two halves, each of which reduces; and some ranks that join neither. */
  static long split(RankSet ranks) {
    int n = ranks.first().communicator().nranks();
    List<Pair> pairs = Pair.of(ranks, COUNT);
    List<AutoCloseable> owned = new ArrayList<>(pairs);
    try {
      List<@Nullable Communicator> halves = onEach(ranks, c -> c.split(c.rank() % 2, n - c.rank()));
      halves.forEach(owned::add);
      for (LocalRank rank : ranks) {
        pairs.get(rank.index()).fill(rank.rank() + 1);
      }
      Group.run(
          () -> {
            for (LocalRank rank : ranks) {
              Pair pair = pairs.get(rank.index());
              halves
                  .get(rank.index())
                  .allReduce(pair.in, pair.out, COUNT, DataType.INT32, ReduceOp.SUM, rank.stream());
            }
          });
      ranks.synchronize();
      long wrong = 0;
      for (LocalRank rank : ranks) {
        int parity = rank.rank() % 2;
        int sum = IntStream.range(0, n).filter(r -> r % 2 == parity).map(r -> r + 1).sum();
        int size = (n + 1 - parity) / 2;
        Communicator half = halves.get(rank.index());
        // Higher ranks have lower keys.
        int place = (int) IntStream.range(rank.rank() + 1, n).filter(r -> r % 2 == parity).count();
        wrong += half.nranks() == size && half.rank() == place ? 0 : 1;
        wrong += SelfTest.differing(pairs.get(rank.index()).out, sum);
      }
      for (Communicator none :
          onEach(ranks, c -> c.split(c.rank() == 0 ? 0 : Communicator.NO_COLOR, 0))) {
        if (none != null) {
          wrong += none.nranks() == 1 ? 0 : 1;
          none.close();
        }
      }
      return wrong;
    } finally {
      Closing.all(owned);
    }
  }

  /**
   * An operation that one rank never joins is given up by the others, on a communicator of its own;
   * the first one stays usable.
   */
  static long abort(RankSet ranks) {
    int n = ranks.first().communicator().nranks();
    List<Pair> pairs = Pair.of(ranks, COUNT);
    List<AutoCloseable> owned = new ArrayList<>(pairs);
    try {
      List<@Nullable Communicator> own = onEach(ranks, c -> c.split(0, c.rank()));
      List<Stream> streams = new ArrayList<>();
      for (LocalRank rank : ranks) {
        streams.add(rank.device().newStream());
      }
      owned.addAll(own);
      owned.addAll(streams);
      ranks.forEach(rank -> pairs.get(rank.index()).fill(rank.rank() + 1));
      // Connected first, as programs that abort are.
      reduce(ranks, own, pairs, streams, n);
      streams.forEach(Stream::synchronize);
      long wrong = differing(pairs, sum(n, 1));
      barrier(ranks);
      reduce(ranks, own, pairs, streams, n - 1);
      // Who aborts, aborts all: nobody does before the others have called.
      barrier(ranks);
      own.forEach(Communicator::abort);
      for (LocalRank rank : ranks) {
        wrong += own.get(rank.index()).state() == Communicator.State.ABORTED ? 0 : 1;
        if (rank.rank() < n - 1) {
          wrong += isAborted(streams.get(rank.index())) ? 0 : 1;
        }
        // Another rank may not have noticed yet.
        wrong += pairs.get(rank.index()).becomesQuiet() ? 0 : 1;
      }
      ranks.forEach(rank -> pairs.get(rank.index()).fill(rank.rank() + 1));
      allReduce(ranks, pairs);
      ranks.synchronize();
      return wrong + differing(pairs, sum(n, 1));
    } finally {
      Closing.all(owned);
    }
  }

  private static void barrier(RankSet ranks) {
    ranks.grouped(rank -> rank.communicator().barrier(rank.stream()));
    ranks.synchronize();
  }

  private static boolean isAborted(Stream stream) {
    try {
      stream.synchronize();
      return false;
    } catch (NcclException e) {
      return e instanceof AbortedException;
    }
  }

  /** An allReduce on the ranks below {@code callers}. */
  private static void reduce(
      RankSet ranks,
      List<@Nullable Communicator> communicators,
      List<Pair> pairs,
      List<Stream> streams,
      int callers) {
    Group.run(
        () -> {
          for (LocalRank rank : ranks) {
            if (rank.rank() < callers) {
              int i = rank.index();
              Pair pair = pairs.get(i);
              communicators
                  .get(i)
                  .allReduce(
                      pair.in, pair.out, COUNT, DataType.INT32, ReduceOp.SUM, streams.get(i));
            }
          }
        });
  }

  /** Calls that wait for the other ranks: each on a thread of its own if there are several. */
  private static List<@Nullable Communicator> onEach(
      RankSet ranks, Function<Communicator, @Nullable Communicator> call) {
    if (ranks.size() == 1) {
      List<@Nullable Communicator> one = new ArrayList<>();
      one.add(call.apply(ranks.first().communicator()));
      return one;
    }
    List<CompletableFuture<@Nullable Communicator>> futures = new ArrayList<>();
    for (LocalRank rank : ranks) {
      CompletableFuture<@Nullable Communicator> future = new CompletableFuture<>();
      futures.add(future);
      Thread.ofPlatform()
          .daemon()
          .start(
              () -> {
                try {
                  future.complete(call.apply(rank.communicator()));
                } catch (RuntimeException e) {
                  future.completeExceptionally(e);
                }
              });
    }
    List<@Nullable Communicator> results = new ArrayList<>();
    for (CompletableFuture<@Nullable Communicator> future : futures) {
      try {
        results.add(future.join());
      } catch (CompletionException e) {
        throw e.getCause() instanceof RuntimeException cause ? cause : e;
      }
    }
    return results;
  }
}
