package io.nccl4j.conformance;

import io.nccl4j.Communicator;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Ranks in processes of their own. Each child generates the same list of cases, runs its ranks'
 * part of all of them and reports over its standard output.
 */
final class ProcessRanks {
  /** The environment variable in which a child gets the unique id. */
  static final String ID = "NCCL4J_TEST_ID";

  private static final String FAILED = "FAILED ";
  private static final String AGREED = "AGREED ";
  private static final String STOPPED = "STOPPED ";
  private static final String DONE = "DONE";

  private ProcessRanks() {}

  /** Starts a JVM like this one with the same class path. */
  static ProcessBuilder java(Class<?> main, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"));
    // Not the module of the vectors, which are objects without the optimizing compiler: processes
    // have the plain kernels, threads those with vectors.
    ManagementFactory.getRuntimeMXBean().getInputArguments().stream()
        .filter(a -> a.startsWith("--enable-native-access"))
        .forEach(command::add);
    for (String property :
        new String[] {
          "nccl4j.test.backend", "nccl4j.test.case", "nccl4j.cuda.library", "nccl4j.nccl.library"
        }) {
      if (System.getProperty(property) != null) {
        command.add("-D" + property + "=" + System.getProperty(property));
      }
    }
    command.add("-Dnccl4j.test.seed=" + TestBackend.SEED);
    command.addAll(ChildJvm.classPath());
    command.add(main.getName());
    command.addAll(List.of(arguments));
    return new ProcessBuilder(command).redirectErrorStream(true);
  }

  /**
   * Runs the generated cases.
   *
   * @param all the complete list instead of the sample
   * @return a description of each failure
   */
  static List<String> run(RankLayout layout, int nranks, boolean all, int seconds)
      throws Exception {
    TestBackend.requireRoomFor(nranks);
    int size = Selection.cases(layout, nranks, all).size();
    List<String> failures = Collections.synchronizedList(new ArrayList<>());
    int next = 0;
    while (next < size && failures.size() < RankLayout.MAX_FAILURES) {
      next = runFrom(next, layout, nranks, all, seconds, failures);
    }
    return failures;
  }

  private static int runFrom(
      int start, RankLayout layout, int nranks, boolean all, int seconds, List<String> failures)
      throws Exception {
    boolean hosts = layout.isOverHosts();
    UniqueId.Reach reach = hosts ? UniqueId.Reach.NETWORK : UniqueId.Reach.MACHINE;
    String id = UniqueId.create(TestBackend.BACKEND, reach).toString();
    int ranksOfProcess = layout == RankLayout.MIXED ? nranks / 2 : 1;
    List<Child> children = new ArrayList<>();
    try {
      Map<String, String> agreed = new ConcurrentHashMap<>();
      for (int first = 0; first < nranks; first += ranksOfProcess) {
        ProcessBuilder builder =
            java(
                ProcessRanks.class,
                layout.name(),
                Integer.toString(nranks),
                Boolean.toString(all),
                Integer.toString(start),
                Integer.toString(first),
                Integer.toString(ranksOfProcess));
        builder.environment().put(ID, id);
        if (hosts) {
          builder.environment().put("NCCL4J_HOSTID", Integer.toString(2 * first / nranks));
        }
        if (layout == RankLayout.TLS) {
          builder.environment().put("NCCL4J_NETWORK_SECURITY", "tls");
        }
        if (layout == RankLayout.UCX) {
          builder.environment().put("NCCL4J_NETWORK_SECURITY", "trusted");
          builder.environment().put("NCCL4J_NETWORK", "ucx");
        }
        children.add(new Child(builder.start(), failures, agreed));
      }
      long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
      int next = Integer.MAX_VALUE;
      for (Child child : children) {
        next = Math.min(next, child.await(deadline));
      }
      return next;
    } finally {
      children.forEach(Child::kill);
    }
  }

  /** What the parent knows of one child. */
  private static final class Child {
    private final Process process;
    private final Thread reader;
    private final List<String> failures;
    private final StringBuilder other = new StringBuilder();
    private volatile int stoppedAt = Integer.MAX_VALUE;
    private volatile boolean done;

    Child(Process process, List<String> failures, Map<String, String> agreed) {
      this.process = process;
      this.failures = failures;
      this.reader = Thread.ofPlatform().daemon().name("child-output").unstarted(() -> read(agreed));
      reader.start();
    }

    private void read(Map<String, String> agreed) {
      try (BufferedReader lines = process.inputReader(StandardCharsets.UTF_8)) {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
          if (line.startsWith(FAILED)) {
            failures.add(line.substring(FAILED.length()).replace("\\n", "\n"));
          } else if (line.startsWith(STOPPED)) {
            stoppedAt = Math.min(stoppedAt, Integer.parseInt(line.substring(STOPPED.length())));
          } else if (line.startsWith(AGREED)) {
            String[] words = line.split(" ");
            String first = agreed.putIfAbsent(words[1], words[2]);
            if (first != null && !first.equals(words[2])) {
              failures.add("case " + words[1] + ": ranks received different bits");
            }
          } else if (line.equals(DONE)) {
            done = true;
          } else if (other.length() < 4000) {
            other.append("\n    ").append(line);
          }
        }
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    /** Waits for the end; returns the place of the case to go on with. */
    int await(long deadline) throws InterruptedException {
      if (!process.waitFor(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
        failures.add("a child process did not end in time; it printed:" + other);
        return Integer.MAX_VALUE;
      }
      reader.join();
      if (done) {
        return Integer.MAX_VALUE;
      }
      if (stoppedAt == Integer.MAX_VALUE) {
        failures.add("a child process ended with " + process.exitValue() + "; it printed:" + other);
      }
      return stoppedAt == Integer.MAX_VALUE ? Integer.MAX_VALUE : stoppedAt + 1;
    }

    void kill() {
      process.destroyForcibly();
    }
  }

  /** A child: layout, nranks, all, start, first rank, number of ranks. */
  public static void main(String[] arguments) throws Exception {
    RankLayout layout = RankLayout.valueOf(arguments[0]);
    int nranks = Integer.parseInt(arguments[1]);
    int start = Integer.parseInt(arguments[3]);
    int first = Integer.parseInt(arguments[4]);
    int ranks = Integer.parseInt(arguments[5]);
    List<Case> cases = Selection.cases(layout, nranks, Boolean.parseBoolean(arguments[2]));
    UniqueId id = UniqueId.parse(System.getenv(ID));
    Loop loop = new Loop(cases, start, System.out);
    List<Thread> threads = new ArrayList<>();
    for (int rank = first; rank < first + ranks; rank++) {
      int mine = rank;
      threads.add(
          Thread.ofPlatform().name("rank-" + rank).start(() -> join(mine, nranks, id, loop)));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (loop.next() == cases.size() && loop.stopped.isEmpty()) {
      System.out.println(DONE);
    }
  }

  private static void join(int rank, int nranks, UniqueId id, Loop loop) {
    try (Communicator communicator =
        Communicator.initRank(TestBackend.device(rank), nranks, id, rank, TestBackend.CONFIG)) {
      try {
        loop.run(communicator);
      } catch (RuntimeException e) {
        communicator.abort();
        throw e;
      }
    } catch (RuntimeException e) {
      loop.stopped.add(rank);
      Case at = loop.current();
      loop.print(FAILED + "rank " + rank + ", " + at + " failed: " + RankLayout.describe(e));
      loop.print(STOPPED + at.number());
    }
  }

  private static final class Loop extends RankLayout.CaseLoop {
    private final PrintStream out;
    private final List<Integer> stopped = Collections.synchronizedList(new ArrayList<>());

    Loop(List<Case> cases, int start, PrintStream out) {
      super(cases, start, failure -> out.println(FAILED + failure.replace("\n", "\\n")));
      this.out = out;
    }

    @Override
    void agreed(int rank, Case c, long checksum) {
      print(AGREED + c.number() + " " + checksum);
    }

    void print(String line) {
      out.println(line.replace("\n", "\\n"));
    }
  }

  /** The cases to run: the generated ones, or the one named by the property nccl4j.test.case. */
  static final class Selection {
    private Selection() {}

    static List<Case> cases(RankLayout layout, int nranks, boolean all) {
      List<Case> cases =
          all ? CaseGenerator.all(layout, nranks) : CaseGenerator.sample(layout, nranks);
      Integer only = Integer.getInteger("nccl4j.test.case");
      return only == null ? cases : cases.stream().filter(c -> c.number() == only).toList();
    }
  }
}
