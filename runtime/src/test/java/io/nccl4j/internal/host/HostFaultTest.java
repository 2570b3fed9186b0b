package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.RelayedId;
import io.nccl4j.internal.net.Relay;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * What can go wrong between two hosts with two ranks each, and when: each rank that is left gets an
 * exception that says what happened and names a rank at fault, in time, and nothing stays behind.
 * Here ranks are threads, and a relay is the cable between the hosts; {@link ProcessFaultTest} has
 * the faults that need processes, {@link CutLinkTest} a link that is cut below TCP.
 *
 * <p>There is no row for
 *
 * <ul>
 *   <li>an abort while ranks join: there is no communicator yet. Who is interrupted then is in
 *       {@code NetworkMeetingTest};
 *   <li>a deadline while ranks close: closing waits for no other rank, and what is queued when a
 *       rank closes is in {@code ClosingTest}.
 * </ul>
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class HostFaultTest {
  /** What goes wrong. */
  enum Fault {
    /** What is on its way between the hosts vanishes. */
    CUT,
    /** The connections between the hosts are reset. */
    RESET,
    /** One rank calls something else. */
    CONTRADICTION,
    /** One rank aborts. */
    ABORT,
    /** One rank does not come. */
    ABSENCE;

    /** Whether it is a rank that does it, in its turn. */
    boolean isByRank() {
      return this == CONTRADICTION || this == ABSENCE;
    }
  }

  /** What ranks do again and again meanwhile. */
  enum Stage {
    SMALL,
    LARGE,
    SPLIT,
    REPLAY
  }

  private static final int SMALL = 2;
  private static final int LARGE = 1 << 20;

  /** The rank at fault. */
  private static final int CULPRIT = 3;

  /** How often all goes well before. */
  private static final int ROUNDS = 3;

  /** What passes between the rendezvous and a rank before that rank waits for the others. */
  static final long JOINED_BYTES = 300;

  private static final Duration DEADLINE = Duration.ofMillis(800);

  /** What a busy machine may add to any time. */
  private static final double SLACK_SECONDS = 2;

  private static Held atFirst;

  /** What stays with the process when it was used once is there before anything is counted. */
  @BeforeAll
  static void use() throws Exception {
    try (RelayedRanks ranks = new RelayedRanks(HostRanks.patient().build(), LARGE, 0, 0, 1, 1)) {
      for (int rank = 0; rank < ranks.size(); rank++) {
        ranks.sum(rank, LARGE);
      }
      ranks.streams.forEach(Stream::synchronize);
    }
    atFirst = Held.now();
  }

  /** A rendezvous stays some seconds to tell those who come late how it ended. */
  @AfterAll
  static void nothingIsLeft() {
    Held.assertNoMoreThan(atFirst);
  }

  private static CommunicatorConfig config() {
    return CommunicatorConfig.builder()
        .initTimeout(DEADLINE)
        .operationTimeout(DEADLINE)
        .closeTimeout(DEADLINE)
        .build();
  }

  /** What one rank does. */
  private interface Task {
    void run(int rank) throws Exception;
  }

  /** Runs a task for each rank on a thread of its own; what each threw, null if nothing. */
  private static List<@Nullable Throwable> outcomes(int nranks, Runnable meanwhile, Task task)
      throws InterruptedException {
    @Nullable Throwable[] thrown = new Throwable[nranks];
    List<Thread> threads = new ArrayList<>();
    for (int r = 0; r < nranks; r++) {
      int rank = r;
      threads.add(
          Thread.ofPlatform()
              .name("rank-" + rank)
              .start(
                  () -> {
                    try {
                      task.run(rank);
                    } catch (Throwable e) {
                      thrown[rank] = e;
                    }
                  }));
    }
    meanwhile.run();
    for (Thread thread : threads) {
      thread.join();
    }
    List<@Nullable Throwable> all = new ArrayList<>();
    for (Throwable one : thrown) {
      all.add(one);
    }
    return all;
  }

  private static void assertWithin(double seconds, long start) {
    double took = (System.nanoTime() - start) / 1e9;
    assertTrue(took < seconds + SLACK_SECONDS, took + " s");
  }

  // ---- operations

  /** One round of a rank; the culprit of a contradiction calls what {@code differs} says. */
  private static void act(
      Stage stage, RelayedRanks ranks, int rank, List<ExecutableGraph> graphs, boolean differs) {
    switch (stage) {
      case SMALL -> ranks.sum(rank, differs ? SMALL - 1 : SMALL);
      case LARGE -> ranks.sum(rank, differs ? LARGE - 1 : LARGE);
      case REPLAY -> {
        if (differs) {
          ranks.get(rank).barrier(ranks.streams.get(rank));
        } else {
          graphs.get(rank).launch(ranks.streams.get(rank));
        }
      }
      case SPLIT -> {
        if (differs) {
          ranks.sum(rank, SMALL);
        } else {
          ranks.get(rank).split(0, 0).close();
        }
      }
      default -> throw new AssertionError(stage);
    }
    ranks.streams.get(rank).synchronize();
  }

  @ParameterizedTest
  @CsvSource({
    "CUT, SMALL",
    "CUT, LARGE",
    "CUT, SPLIT",
    "CUT, REPLAY",
    "RESET, SMALL",
    "RESET, LARGE",
    "RESET, SPLIT",
    "RESET, REPLAY",
    "CONTRADICTION, SMALL",
    "CONTRADICTION, LARGE",
    "CONTRADICTION, SPLIT",
    "CONTRADICTION, REPLAY",
    "ABORT, SMALL",
    "ABORT, LARGE",
    "ABORT, SPLIT",
    "ABORT, REPLAY",
    "ABSENCE, SMALL",
    "ABSENCE, LARGE",
    "ABSENCE, SPLIT",
    "ABSENCE, REPLAY"
  })
  void duringOperations(Fault fault, Stage stage) throws Exception {
    try (RelayedRanks ranks = new RelayedRanks(config(), LARGE, 0, 0, 1, 1)) {
      List<ExecutableGraph> graphs = new ArrayList<>();
      for (int rank = 0; rank < ranks.size(); rank++) {
        graphs.add(ranks.graph(rank, SMALL));
      }
      CountDownLatch good = new CountDownLatch(ranks.size() * ROUNDS);
      AtomicLong start = new AtomicLong();
      Runnable meanwhile =
          () -> {
            if (!fault.isByRank()) {
              await(good);
              start.set(System.nanoTime());
              inject(fault, ranks);
            }
          };
      List<@Nullable Throwable> thrown =
          outcomes(
              ranks.size(),
              meanwhile,
              rank -> {
                for (int round = 0; ; round++) {
                  boolean isNow = fault.isByRank() && rank == CULPRIT && round == ROUNDS;
                  if (isNow) {
                    start.set(System.nanoTime());
                  }
                  if (isNow && fault == Fault.ABSENCE) {
                    return;
                  }
                  act(stage, ranks, rank, graphs, isNow);
                  good.countDown();
                }
              });
      boolean waits = fault == Fault.CUT || fault == Fault.ABSENCE;
      assertWithin(waits ? DEADLINE.toMillis() / 1e3 : 0, start.get());
      for (int rank = 0; rank < ranks.size(); rank++) {
        if (rank == CULPRIT && fault == Fault.ABSENCE) {
          assertNull(thrown.get(rank));
        } else {
          check(fault, rank, thrown.get(rank));
        }
      }
      graphs.forEach(ExecutableGraph::close);
    }
  }

  private static void inject(Fault fault, RelayedRanks ranks) {
    switch (fault) {
      case CUT -> ranks.relay.cut();
      case RESET -> ranks.relay.reset();
      case ABORT -> ranks.get(CULPRIT).abort();
      default -> {}
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void check(Fault fault, int rank, @Nullable Throwable thrown) {
    String what = "rank " + rank + " got " + thrown;
    NcclException e = assertInstanceOf(NcclException.class, thrown, what);
    List<Integer> others = rank < 2 ? List.of(2, 3) : List.of(0, 1);
    switch (fault) {
      case CUT -> {
        assertDeadline(e, what);
        assertTrue(
            others.stream().anyMatch(k -> what.contains("rank " + k + " (on another")), what);
        assertTrue(what.contains("does not answer"), what);
      }
      case RESET -> {
        assertInstanceOf(PeerFailedException.class, e, what);
        assertTrue(!e.failedRanks().isEmpty() && !e.failedRanks().contains(rank), what);
      }
      case CONTRADICTION -> assertInstanceOf(MismatchException.class, e, what);
      case ABORT -> {
        assertInstanceOf(AbortedException.class, e, what);
        if (rank != CULPRIT) {
          assertEquals(List.of(CULPRIT), e.failedRanks(), what);
        }
      }
      case ABSENCE -> {
        assertDeadline(e, what);
        assertTrue(what.contains("rank " + CULPRIT + " ("), what);
      }
      default -> throw new AssertionError(fault);
    }
  }

  /** Its own, or that of a rank that was first and tells why it gave up. */
  private static void assertDeadline(NcclException e, String what) {
    if (e instanceof PeerFailedException) {
      assertTrue(what.contains("gave up because the deadline of an operation passed"), what);
    } else {
      assertInstanceOf(DeadlineException.class, e, what);
    }
  }

  // ---- closing

  /** Closing waits for no other rank, whatever has become of it. */
  @ParameterizedTest
  @CsvSource({"CUT", "RESET", "CONTRADICTION", "ABORT"})
  void duringClose(Fault fault) throws Exception {
    try (RelayedRanks ranks = new RelayedRanks(config(), LARGE, 0, 0, 1, 1)) {
      outcomes(
              ranks.size(),
              () -> {},
              rank -> {
                ranks.sum(rank, LARGE);
                ranks.streams.get(rank).synchronize();
              })
          .forEach(e -> assertNull(e));
      inject(fault, ranks);
      long start = System.nanoTime();
      List<@Nullable Throwable> thrown =
          outcomes(
              ranks.size(),
              () -> {},
              rank -> {
                if (rank != CULPRIT && fault == Fault.CONTRADICTION) {
                  ranks.sum(rank, SMALL);
                  ranks.streams.get(rank).synchronize();
                } else {
                  ranks.get(rank).close();
                }
              });
      assertWithin(DEADLINE.toMillis() / 1e3, start);
      for (int rank = 0; rank < ranks.size(); rank++) {
        String what = "rank " + rank + " got " + thrown.get(rank);
        if (rank != CULPRIT && fault == Fault.CONTRADICTION) {
          NcclException e = assertInstanceOf(PeerFailedException.class, thrown.get(rank), what);
          assertEquals(List.of(CULPRIT), e.failedRanks(), what);
        } else {
          assertNull(thrown.get(rank), what);
        }
      }
      assertEquals(0, ranks.network.openPorts());
    }
  }

  // ---- joining

  private static Communicator join(UniqueId id, int nranks, int rank) {
    return Communicator.initRank(Device.get(Backend.HOST, rank), nranks, id, rank, config());
  }

  /** The other ranks have joined, and wait for the last one, when it happens. */
  @ParameterizedTest
  @CsvSource({"CUT", "RESET", "CONTRADICTION", "ABSENCE"})
  void duringJoin(Fault fault) throws Exception {
    try (Relay relay = new Relay()) {
      UniqueId id = UniqueId.create(Backend.HOST, UniqueId.Reach.NETWORK);
      UniqueId relayed = RelayedId.through(relay, id);
      long start = System.nanoTime();
      Runnable meanwhile =
          () -> {
            while (relay.connections() == 0 || relay.carried() < JOINED_BYTES) {
              Thread.onSpinWait();
            }
            switch (fault) {
              case CUT -> relay.cut();
              case RESET -> relay.reset();
              default -> {}
            }
          };
      int last = 2;
      List<@Nullable Throwable> thrown =
          outcomes(
              4,
              meanwhile,
              rank -> {
                if (rank == last && fault != Fault.CONTRADICTION) {
                  return;
                }
                join(rank == CULPRIT ? relayed : id, rank == last ? 5 : 4, rank).close();
              });
      assertWithin(DEADLINE.toMillis() / 1e3, start);
      for (int rank = 0; rank < 4; rank++) {
        if (rank == last && fault != Fault.CONTRADICTION) {
          continue;
        }
        String what = "rank " + rank + " got " + thrown.get(rank);
        switch (fault) {
          case CUT -> {
            assertInstanceOf(DeadlineException.class, thrown.get(rank), what);
            assertTrue(what.contains(rank == CULPRIT ? "does not answer" : "" + last), what);
          }
          case RESET -> {
            NcclException e = assertInstanceOf(PeerFailedException.class, thrown.get(rank), what);
            if (rank == CULPRIT) {
              assertTrue(what.contains("has lost the rendezvous"), what);
            } else {
              assertEquals(List.of(CULPRIT), e.failedRanks(), what);
            }
          }
          case CONTRADICTION ->
              assertInstanceOf(InvalidUsageException.class, thrown.get(rank), what);
          default -> {
            assertInstanceOf(DeadlineException.class, thrown.get(rank), what);
            assertTrue(what.contains("" + last), what);
          }
        }
      }
    }
  }
}
