package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** What the ranks are. */
enum RankLayout {
  /** A platform thread each. */
  THREADS,
  /** A virtual thread each. */
  VIRTUAL_THREADS,
  /** One thread drives them all. */
  ONE_THREAD,
  /** A process each. */
  PROCESSES,
  /** Two processes with half of the ranks as threads each. */
  MIXED,
  /** A process each, which takes those of the other half for processes of another host. */
  HOSTS,
  /** The same, through TLS. */
  TLS,
  /** The same, on UCX. */
  UCX;

  /** After so many failures the rest is not worth waiting for. */
  static final int MAX_FAILURES = 8;

  boolean inProcess() {
    return this != PROCESSES && this != MIXED && !isOverHosts();
  }

  boolean isOverHosts() {
    return this == HOSTS || this == TLS || this == UCX;
  }

  /**
   * Runs cases with ranks of this process. A failed engine does not end the run: new communicators
   * continue behind the case that failed.
   *
   * @return a description of each failure
   */
  List<String> run(int nranks, List<Case> cases) throws Exception {
    TestBackend.requireRoomFor(nranks);
    return run(cases, () -> TestBackend.communicators(nranks));
  }

  /** Runs cases with ranks that come from elsewhere. */
  List<String> run(List<Case> cases, Supplier<Communicators> ranks) throws Exception {
    List<String> failures = Collections.synchronizedList(new ArrayList<>());
    int next = 0;
    while (next < cases.size() && failures.size() < MAX_FAILURES) {
      CaseLoop loop = new CaseLoop(cases, next, failures::add);
      try (Communicators all = ranks.get()) {
        switch (this) {
          case THREADS -> all.run(loop::run);
          case VIRTUAL_THREADS -> runOnVirtualThreads(all, loop);
          case ONE_THREAD -> loop.runAll(all);
          default -> throw new AssertionError(this);
        }
      } catch (Exception e) {
        failures.add(loop.current() + " failed: " + describe(e));
      }
      next = loop.next();
    }
    return failures;
  }

  private static void runOnVirtualThreads(Communicators all, CaseLoop loop) throws Exception {
    List<Throwable> thrown = Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    for (Communicator communicator : all) {
      threads.add(
          Thread.startVirtualThread(
              () -> {
                try {
                  loop.run(communicator);
                } catch (Throwable e) {
                  thrown.add(e);
                  communicator.abort();
                }
              }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (!thrown.isEmpty()) {
      throw new IllegalStateException(thrown.getFirst());
    }
  }

  static String describe(Throwable e) {
    StringBuilder text = new StringBuilder(e.toString());
    for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
      text.append(" / ").append(cause);
    }
    for (Throwable other : e.getSuppressed()) {
      text.append(" / also ").append(other);
    }
    Arrays.stream(e.getStackTrace())
        .limit(6)
        .forEach(frame -> text.append("\n      ").append(frame));
    return text.toString();
  }

  /**
   * Ranks that go through the same cases; what a rank finds wrong does not keep it from going on
   * with the others.
   */
  static class CaseLoop {
    /** Takes descriptions of failures from any thread. */
    interface Failures {
      void add(String failure);
    }

    private final List<Case> cases;
    private final int start;
    private final Failures failures;
    private final Map<Integer, Oracle> oracles = new ConcurrentHashMap<>();
    private final Map<Integer, Integer> places = new ConcurrentHashMap<>();

    CaseLoop(List<Case> cases, int start, Failures failures) {
      this.cases = cases;
      this.start = start;
      this.failures = failures;
    }

    /** Called for each result that all ranks must agree on. */
    void agreed(int rank, Case c, long checksum) {}

    void run(Communicator communicator) {
      int rank = communicator.rank();
      try (Stream stream = communicator.device().newStream()) {
        for (int i = start; i < cases.size(); i++) {
          places.put(rank, i);
          forget(i - 8);
          Case c = cases.get(i);
          try (CaseRunner runner = new CaseRunner(c, oracle(i), communicator)) {
            runner.submit(stream);
            stream.synchronize();
            long first = check(c, runner);
            if (twice(c)) {
              runner.reset();
              runner.submit(stream);
              stream.synchronize();
              compareRuns(c, first, check(c, runner));
            }
          }
        }
        places.put(rank, cases.size());
      }
    }

    void runAll(Communicators all) {
      List<Stream> streams = new ArrayList<>();
      try {
        all.forEach(communicator -> streams.add(communicator.device().newStream()));
        for (int i = start; i < cases.size(); i++) {
          places.put(0, i);
          forget(i - 1);
          runOne(all, streams, i);
        }
        places.put(0, cases.size());
      } finally {
        streams.forEach(Stream::close);
      }
    }

    private void runOne(Communicators all, List<Stream> streams, int i) {
      Case c = cases.get(i);
      List<CaseRunner> runners = new ArrayList<>();
      try {
        all.forEach(communicator -> runners.add(new CaseRunner(c, oracle(i), communicator)));
        long[] first = round(c, runners, streams);
        if (twice(c)) {
          runners.forEach(CaseRunner::reset);
          long[] second = round(c, runners, streams);
          for (int r = 0; r < first.length; r++) {
            compareRuns(c, first[r], second[r]);
          }
        }
      } finally {
        runners.forEach(CaseRunner::close);
      }
    }

    private long[] round(Case c, List<CaseRunner> runners, List<Stream> streams) {
      Runnable submissions =
          () -> {
            for (int r = 0; r < runners.size(); r++) {
              runners.get(r).submit(streams.get(r));
            }
          };
      if ((c.seed() & 4) == 0 || TestBackend.BACKEND == Backend.CUDA) {
        Group.run(submissions);
      } else {
        submissions.run();
      }
      streams.forEach(Stream::synchronize);
      return runners.stream().mapToLong(runner -> check(c, runner)).toArray();
    }

    private long check(Case c, CaseRunner runner) {
      try {
        long checksum = runner.check();
        if (c.op().sameEverywhere()) {
          agreed(runner.rank(), c, checksum);
        }
        return checksum;
      } catch (AssertionError e) {
        failures.add(c + ": " + e.getMessage());
        return -1;
      }
    }

    private void compareRuns(Case c, long first, long second) {
      if (first != second && first != -1 && second != -1) {
        failures.add(c + ": the second run gave other bits");
      }
    }

    private static boolean twice(Case c) {
      return (c.seed() & 0x70) == 0;
    }

    private Oracle oracle(int i) {
      return oracles.computeIfAbsent(i, key -> new Oracle(cases.get(key)));
    }

    private void forget(int i) {
      if (places.values().stream().allMatch(place -> place > i)) {
        oracles.keySet().removeIf(key -> key < i);
      }
    }

    /** The case that some rank has not finished. */
    Case current() {
      return cases.get(Math.min(place(), cases.size() - 1));
    }

    int next() {
      return place() == cases.size() ? cases.size() : place() + 1;
    }

    private int place() {
      return places.values().stream().mapToInt(Integer::intValue).min().orElse(start);
    }
  }
}
