package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Threads that hand a communicator over between calls, groups of theirs included, and threads that
 * do not: what is launched runs once, what is discarded never, and what overlaps is refused.
 */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class HandOverTest {
  private static final int THREADS = 3;
  private static final int HISTORIES = 40;
  private static final int ACTIONS = 80;
  private static final int MOST_OPERATIONS = 150;

  /** A thread that does what it is told, with a stream and groups of its own. */
  private static final class Actor implements AutoCloseable {
    final ExecutorService thread = Executors.newSingleThreadExecutor();
    final Stream stream = TestBackend.device(0).newStream();
    final Deque<Group> groups = new ArrayDeque<>();

    /** Operations of its open groups, by group, the innermost first. */
    final Deque<List<Integer>> collected = new ArrayDeque<>();

    void run(Runnable action) {
      get(Executors.callable(action));
    }

    <T> T get(Callable<T> action) {
      try {
        return thread.submit(action).get();
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    }

    @Override
    public void close() {
      stream.close();
      thread.close();
    }
  }

  private static void sum(Ranks ranks, int rank, int operation, Stream stream) {
    ranks
        .get(rank)
        .allReduce(
            ranks.in.get(rank).slice(4L * operation, 4),
            ranks.out.get(rank).slice(4L * operation, 4),
            1,
            DataType.INT32,
            ReduceOp.SUM,
            stream);
  }

  /** One history: rank 0 is handed from thread to thread, rank 1 follows with the same groups. */
  private static final class History {
    private final Ranks ranks;
    private final List<Actor> actors;
    private final Random random;
    private final List<List<Integer>> launched = new ArrayList<>();
    private int followed;
    private int operations;

    History(Ranks ranks, List<Actor> actors, long seed) {
      this.ranks = ranks;
      this.actors = actors;
      this.random = new Random(seed);
    }

    void act() {
      Actor actor = actors.get(random.nextInt(THREADS));
      int choice = random.nextInt(20);
      if (choice < 9 && operations < MOST_OPERATIONS) {
        int operation = operations++;
        actor.run(() -> sum(ranks, 0, operation, actor.stream));
        collect(actor, List.of(operation));
      } else if (choice < 13 && actor.groups.size() < 2) {
        actor.groups.push(actor.get(Group::start));
        actor.collected.push(new ArrayList<>());
      } else if (choice < 16 && !actor.groups.isEmpty()) {
        actor.run(actor.groups.pop()::launch);
        collect(actor, actor.collected.pop());
      } else if (choice < 18 && !actor.groups.isEmpty()) {
        actor.run(actor.groups.pop()::close);
        actor.collected.pop();
      } else if (choice == 18) {
        follow();
      }
      int unfinished = launched.stream().skip(followed).mapToInt(List::size).sum();
      for (Actor each : actors) {
        unfinished += each.collected.stream().mapToInt(List::size).sum();
      }
      assertEquals(unfinished, ranks.get(0).counters().unfinishedWorks());
    }

    /** Operations that are launched, or belong to the group that is open around them. */
    private void collect(Actor actor, List<Integer> works) {
      if (actor.collected.isEmpty()) {
        launched.add(works);
      } else {
        actor.collected.peek().addAll(works);
      }
    }

    void follow() {
      for (; followed < launched.size(); followed++) {
        List<Integer> works = launched.get(followed);
        Group.run(() -> works.forEach(work -> sum(ranks, 1, work, ranks.streams.get(1))));
      }
      actors.forEach(actor -> actor.run(actor.stream::synchronize));
      ranks.streams.get(1).synchronize();
    }

    void end() {
      for (Actor actor : actors) {
        while (!actor.groups.isEmpty()) {
          actor.run(actor.groups.pop()::close);
          actor.collected.pop();
        }
      }
      follow();
      assertEquals(0, ranks.get(0).counters().unfinishedWorks());
      int[] expected = new int[MOST_OPERATIONS];
      Arrays.fill(expected, -1);
      launched.forEach(works -> works.forEach(work -> expected[work] = 3 * work));
      assertArrayEquals(expected, ranks.got(0, MOST_OPERATIONS));
      assertArrayEquals(expected, ranks.got(1, MOST_OPERATIONS));
    }
  }

  @Test
  void whatIsLaunchedRunsOnceAndWhatIsDiscardedNever() {
    List<Actor> actors = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      actors.add(new Actor());
    }
    int[] numbers = new int[MOST_OPERATIONS];
    Arrays.setAll(numbers, i -> i);
    int[] twice = Arrays.stream(numbers).map(i -> 2 * i).toArray();
    int[] none = new int[MOST_OPERATIONS];
    Arrays.fill(none, -1);
    try (Ranks ranks = new Ranks(2)) {
      for (int i = 0; i < HISTORIES; i++) {
        long seed = TestBackend.SEED + i;
        ranks.put(0, numbers);
        ranks.put(1, twice);
        ranks.out.get(0).copyFrom(none);
        ranks.out.get(1).copyFrom(none);
        History history = new History(ranks, actors, seed);
        try {
          for (int action = 0; action < ACTIONS; action++) {
            history.act();
          }
          history.end();
        } catch (Throwable e) {
          ranks.communicators.forEach(Communicator::abort);
          throw new AssertionError("seed " + seed, e);
        }
      }
      actors.forEach(Actor::close);
      ranks.assertUsable();
    }
  }

  @Test
  void discardingAGroupLeavesTheRunningWorkOfAnotherThreadAlone() {
    try (Ranks ranks = new Ranks(2);
        Actor first = new Actor();
        Actor second = new Actor()) {
      ranks.put(0, 1, 2);
      ranks.put(1, 10, 20);
      Group group = first.get(Group::start);
      first.run(() -> sum(ranks, 0, 0, first.stream));
      second.run(() -> sum(ranks, 0, 1, second.stream));
      first.run(group::close);
      assertEquals(1, ranks.get(0).counters().unfinishedWorks());
      sum(ranks, 1, 1, ranks.streams.get(1));
      second.run(second.stream::synchronize);
      ranks.synchronize();
      assertEquals(22, ranks.got(0, 2)[1]);
      ranks.assertUsable();
    }
  }

  /** Two threads launch at the same time: each launch is whole or refused, and nothing is lost. */
  @Test
  void launchesThatOverlapAreRefused() throws Exception {
    int rounds = 30;
    int launches = 60;
    AtomicInteger refused = new AtomicInteger();
    try (Ranks ranks = new Ranks(2);
        ExecutorService threads = Executors.newFixedThreadPool(2)) {
      List<Stream> streams =
          List.of(TestBackend.device(0).newStream(), TestBackend.device(0).newStream());
      // On an idle machine one thread may be done before the other one begins.
      long end = System.nanoTime() + 20_000_000_000L;
      for (int round = 0;
          round < rounds || refused.get() == 0 && System.nanoTime() < end;
          round++) {
        AtomicInteger launched = new AtomicInteger();
        CyclicBarrier start = new CyclicBarrier(2);
        List<Throwable> wrong = Collections.synchronizedList(new ArrayList<>());
        List<Future<?>> running = new ArrayList<>();
        for (Stream stream : streams) {
          running.add(
              threads.submit(
                  () -> {
                    start.await();
                    for (int i = 0; i < launches; i++) {
                      try (Group group = Group.start()) {
                        sum(ranks, 0, 0, stream);
                        sum(ranks, 0, 1, stream);
                        group.launch();
                        launched.incrementAndGet();
                      } catch (InvalidUsageException e) {
                        refused.incrementAndGet();
                        if (!e.getMessage().contains("another thread is inside communicator")) {
                          wrong.add(e);
                        }
                      }
                    }
                    return null;
                  }));
        }
        for (Future<?> one : running) {
          one.get();
        }
        assertEquals(List.of(), wrong);
        assertEquals(2L * launched.get(), ranks.get(0).counters().unfinishedWorks());
        for (int i = 0; i < launched.get(); i++) {
          Group.run(
              () -> {
                sum(ranks, 1, 0, ranks.streams.get(1));
                sum(ranks, 1, 1, ranks.streams.get(1));
              });
        }
        streams.forEach(Stream::synchronize);
        ranks.synchronize();
        assertEquals(0, ranks.get(0).counters().unfinishedWorks());
        assertEquals(Communicator.State.READY, ranks.get(0).state());
      }
      System.out.println(refused + " overlapping launches refused");
      assertTrue(refused.get() > 0, "the threads never overlapped");
      streams.forEach(Stream::close);
      ranks.assertUsable();
    }
  }
}
