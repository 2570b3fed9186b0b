package io.nccl4j.launch;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.check.Require;
import io.nccl4j.launch.RankOutput.Channel;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntFunction;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The processes of a job on this machine. Each runs the same program with its own number in its
 * environment, where {@link io.nccl4j.Launch#detect()} finds it.
 *
 * <pre>{@code
 * try (RankProcesses ranks =
 *     RankProcesses.builder().processes(4).command("java", "-cp", path, "Main").start()) {
 *   JobExit exit = ranks.await(Duration.ofMinutes(1));
 *   assertTrue(exit.succeeded(), exit::describe);
 * }
 * }</pre>
 *
 * <p>They end together. After the first one has ended with an exit code other than 0, the others
 * have 2 s to say what they have noticed; then they get SIGTERM, and after the grace SIGKILL. What
 * a process started and left behind in its process group is killed as soon as it has ended.
 *
 * <p>No process outlives this one, even if it is killed: a shell watches for that, and sends the
 * same two signals then. That holds for any program, whether it uses nccl4j or not; only what a
 * program starts in a process group of its own escapes. If somebody kills the shell, the processes
 * are killed at once.
 *
 * <p>The standard input of the processes is empty. Needs the programs {@code sh} and {@code
 * setsid}. Thread-safe.
 */
public final class RankProcesses implements AutoCloseable {
  private static final long SETTLE_SECONDS = 2;
  private static final long OUTPUT_SECONDS = 2;

  private sealed interface Happening {}

  private record Ended(Child child, int code) implements Happening {}

  private record Stop(String signal) implements Happening {}

  /** Whatever cannot go on; null if somebody wants no more. */
  private record Kill(@Nullable RuntimeException failure) implements Happening {}

  private record Child(int rank, Process process) {}

  /** How far the end is; later ones include earlier ones. */
  private enum Phase {
    RUNNING,
    FAILED,
    STOPPED,
    KILLED
  }

  private final Duration grace;
  private final RankOutput output;
  private final Guard guard;
  private final List<Child> children = new ArrayList<>();
  private final List<Thread> relays = new ArrayList<>();
  private final BlockingQueue<Happening> happenings = new LinkedBlockingQueue<>();
  private final CompletableFuture<JobExit> exit = new CompletableFuture<>();

  /** Guarded by {@link #output}. */
  private boolean outputEnded;

  // Used by the supervising thread only.
  private final List<Child> running = new ArrayList<>();
  private final List<RankExit> ended = new ArrayList<>();
  private Phase phase = Phase.RUNNING;
  private long phaseEnd;
  private @Nullable RuntimeException failure;

  private RankProcesses(Builder builder, Guard guard) {
    this.grace = builder.grace;
    this.output = builder.output;
    this.guard = guard;
  }

  /** Describes the processes to start. */
  public static Builder builder() {
    return new Builder();
  }

  /** The processes, by rank; those that have ended, too. */
  public List<ProcessHandle> processes() {
    return children.stream().map(child -> child.process.toHandle()).toList();
  }

  /**
   * Sends a signal to all processes and what they have started; SIGKILL follows after the grace, or
   * with the next call.
   *
   * @param signal {@code HUP}, {@code INT} or {@code TERM}
   */
  public void stop(String signal) {
    if (!List.of("HUP", "INT", "TERM").contains(Require.present(signal, "signal"))) {
      throw new InvalidArgumentException("the signal is " + signal, "use HUP, INT or TERM");
    }
    happenings.add(new Stop(signal));
  }

  /**
   * Waits until all processes have ended.
   *
   * @param timeout how long; the processes go on after it, until {@link #close}
   * @throws DeadlineException if some are still running after that time
   * @throws InterruptedWaitException if the thread is interrupted; the processes go on
   * @throws SystemErrorException if the processes were killed because they could not be watched any
   *     more
   * @throws RuntimeException what {@link RankOutput} has thrown; the processes were killed
   */
  public JobExit await(Duration timeout) {
    try {
      return exit.get(
          TimeUnit.NANOSECONDS.convert(Require.present(timeout, "timeout")), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw (DeadlineException)
          new DeadlineException(
                  "still running after " + timeout + ": " + alive(),
                  "give them more time, or see what they wait for")
              .causedBy(e);
    } catch (ExecutionException e) {
      throw rethrown(e);
    } catch (InterruptedException e) {
      throw interrupted(e);
    }
  }

  /** Waits until all processes have ended, however long; otherwise as {@link #await(Duration)}. */
  public JobExit await() {
    try {
      return exit.get();
    } catch (ExecutionException e) {
      throw rethrown(e);
    } catch (InterruptedException e) {
      throw interrupted(e);
    }
  }

  private static RuntimeException rethrown(ExecutionException e) {
    return e.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(e);
  }

  private static NcclException interrupted(InterruptedException e) {
    Thread.currentThread().interrupt();
    return new InterruptedWaitException("interrupted while ranks were running", "").causedBy(e);
  }

  private String alive() {
    return children.stream()
        .filter(child -> child.process.isAlive())
        .map(child -> "rank " + child.rank)
        .collect(Collectors.joining(", "));
  }

  /** Kills what is still running, and waits until it has ended. */
  @Override
  public void close() {
    happenings.add(new Kill(null));
    // Not even an interrupted thread leaves processes behind; they end without being asked.
    exit.handle((result, thrown) -> result).join();
  }

  // ---- starting

  private void start(Builder builder) {
    try {
      for (int p = 0; p < builder.processes; p++) {
        start(builder, p);
      }
    } catch (RuntimeException e) {
      happenings.add(new Kill(e));
      throw e;
    } finally {
      running.addAll(children);
      Thread.ofPlatform().daemon().name("nccl4j-ranks").start(this::supervise);
    }
    guard
        .ended()
        .thenRun(
            () ->
                happenings.add(
                    new Kill(
                        new SystemErrorException(
                            "the shell that watches the ranks has ended",
                            "do not kill it: it ends with the process that started it"))));
  }

  private void start(Builder builder, int number) {
    int rank = builder.firstRank(number);
    ProcessBuilder process =
        RankCommand.of(builder.command, builder.directory, builder.environment(number));
    Path folder = builder.outputFolder;
    if (folder != null) {
      Path file = folder.resolve("rank-" + rank + ".log");
      process.redirectErrorStream(true).redirectOutput(Redirect.to(file.toFile()));
    }
    try {
      Child child = new Child(rank, process.start());
      children.add(child);
      Thread.ofPlatform().daemon().name("nccl4j-wait-" + rank).start(() -> awaitEnd(child));
      if (folder == null) {
        relay(child, Channel.OUT, child.process.getInputStream());
        relay(child, Channel.ERR, child.process.getErrorStream());
      }
      guard.watch(child.process.pid());
      go(child);
    } catch (IOException e) {
      throw cannotStart("rank " + rank, e);
    }
  }

  private static void go(Child child) {
    try (OutputStream input = child.process.getOutputStream()) {
      input.write(RankCommand.GO);
    } catch (IOException e) {
      // It has ended already; at least it must not wait for this any more.
      kill(child);
    }
  }

  private static NcclException cannotStart(String what, IOException e) {
    return new SystemErrorException(
            "cannot start " + what + ": " + e.getMessage(),
            "check that sh and setsid (of util-linux) are installed, and the limits on processes"
                + " and memory")
        .causedBy(e);
  }

  private void relay(Child child, Channel channel, InputStream from) {
    relays.add(
        Thread.ofPlatform()
            .daemon()
            .name("nccl4j-relay-" + child.rank)
            .start(() -> pass(child.rank, channel, from)));
  }

  private void pass(int rank, Channel channel, InputStream from) {
    try {
      OutputRelay.drain(from, bytes -> write(rank, channel, bytes));
    } catch (IOException e) {
      happenings.add(
          new Kill(
              (RuntimeException)
                  new SystemErrorException("the output of rank " + rank + " is lost: " + e, "")
                      .causedBy(e)));
    } catch (RuntimeException e) {
      happenings.add(new Kill(e));
    }
  }

  private void write(int rank, Channel channel, byte[] bytes) {
    synchronized (output) {
      if (!outputEnded) {
        output.write(rank, channel, bytes);
      }
    }
  }

  private void awaitEnd(Child child) {
    while (true) {
      try {
        happenings.add(new Ended(child, child.process.waitFor()));
        return;
      } catch (InterruptedException e) {
        // Nobody interrupts this thread on purpose; the process still has to be waited for.
        continue;
      }
    }
  }

  // ---- supervising

  private void supervise() {
    try {
      while (!running.isEmpty()) {
        switch (next()) {
          case null -> proceed();
          case Ended end -> end(end);
          case Stop stop when phase.compareTo(Phase.STOPPED) < 0 -> stopAll(stop.signal);
          case Stop again -> killAll();
          case Kill kill -> {
            failure = failure == null ? kill.failure : failure;
            killAll();
          }
        }
      }
      finish();
    } catch (InterruptedException | RuntimeException e) {
      running.forEach(RankProcesses::kill);
      exit.completeExceptionally(e);
    }
  }

  private @Nullable Happening next() throws InterruptedException {
    return phase == Phase.RUNNING || phase == Phase.KILLED
        ? happenings.take()
        : happenings.poll(phaseEnd - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  private void proceed() {
    if (phase == Phase.FAILED) {
      stopAll("TERM");
    } else {
      killAll();
    }
  }

  private void end(Ended end) {
    Child child = end.child;
    running.remove(child);
    boolean stopped = phase.compareTo(Phase.STOPPED) >= 0;
    RankExit one = new RankExit(child.rank, child.process.pid(), end.code, stopped);
    ended.add(one);
    tell(() -> guard.forget(child.process.pid()));
    if (one.failed() && phase == Phase.RUNNING) {
      enter(Phase.FAILED, TimeUnit.SECONDS.toNanos(SETTLE_SECONDS));
    }
  }

  private void stopAll(String signal) {
    enter(Phase.STOPPED, TimeUnit.NANOSECONDS.convert(grace));
    running.forEach(child -> tell(() -> guard.signal(signal, child.process.pid())));
  }

  private void killAll() {
    phase = Phase.KILLED;
    for (Child child : running) {
      if (guard.isAlive()) {
        tell(() -> guard.signal("KILL", child.process.pid()));
      } else {
        child.process.descendants().forEach(ProcessHandle::destroyForcibly);
      }
      kill(child);
    }
  }

  /** Without closing its pipes, as the process object would: what it has written is passed on. */
  private static void kill(Child child) {
    child.process.toHandle().destroyForcibly();
  }

  private void enter(Phase next, long nanos) {
    phase = next;
    phaseEnd = System.nanoTime() + nanos;
  }

  private interface Message {
    void send() throws IOException;
  }

  private void tell(Message message) {
    try {
      message.send();
    } catch (IOException e) {
      // The guard is gone; its end is on its way here, too.
      happenings.add(
          new Kill(
              (RuntimeException)
                  new SystemErrorException("the shell that watches the ranks has ended: " + e, "")
                      .causedBy(e)));
    }
  }

  private void finish() throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(OUTPUT_SECONDS);
    for (Thread relay : relays) {
      // What left its session may keep the pipe open for ever; nobody waits for its output.
      relay.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())));
    }
    while (happenings.poll() instanceof Happening last) {
      failure = failure == null && last instanceof Kill kill ? kill.failure : failure;
    }
    synchronized (output) {
      outputEnded = true;
      output.end();
    }
    guard.close();
    if (failure != null) {
      exit.completeExceptionally(failure);
      return;
    }
    Optional<RankExit> first = firstFailure();
    ended.sort(Comparator.comparingInt(RankExit::rank));
    exit.complete(new JobExit(ended, first));
  }

  private Optional<RankExit> firstFailure() {
    List<RankExit> failed = ended.stream().filter(RankExit::failed).toList();
    return failed.stream()
        .filter(one -> one.signal() > 0)
        .findFirst()
        .or(() -> failed.stream().findFirst());
  }

  /** What to start, and how. */
  public static final class Builder {
    private static final List<String> MEETING =
        List.of("NCCL4J_UNIQUE_ID", "NCCL4J_UNIQUE_ID_FILE", "NCCL4J_RENDEZVOUS");

    private List<String> command = List.of();
    private int processes = 1;
    private int ranksPerProcess = 1;
    private int node;
    private int nodes = 1;
    private String rendezvous = "";
    private @Nullable Path secretFile;
    private Path directory = Path.of("").toAbsolutePath();
    private @Nullable Path outputFolder;
    private RankOutput output = RankOutput.prefixed(System.out, System.err);
    private Duration grace = Duration.ofSeconds(10);
    private IntFunction<Map<String, String>> variables = rank -> Map.of();
    private final String job = "run-" + ProcessHandle.current().pid() + "-" + UUID.randomUUID();

    private Builder() {}

    /** The program and its arguments; the program is looked for in {@code PATH}. */
    public Builder command(List<String> words) {
      command = List.copyOf(Require.present(words, "words"));
      return this;
    }

    /** The program and its arguments; the program is looked for in {@code PATH}. */
    public Builder command(String... words) {
      return command(List.of(words));
    }

    /** How many processes to start; default 1. */
    public Builder processes(int count) {
      processes = count;
      return this;
    }

    /** How many ranks each process has, numbered in a row; default 1. */
    public Builder ranksPerProcess(int count) {
      ranksPerProcess = count;
      return this;
    }

    /**
     * Which of several machines this is; each starts as many processes, and ranks are numbered
     * machine by machine. All need the same secret, from {@link #secretFile} or the environment.
     *
     * @param number of this machine, from 0
     * @param count of machines
     * @param address where the machine with number 0 listens, as {@code tcp://host:port}, the same
     *     on each
     */
    public Builder node(int number, int count, String address) {
      node = number;
      nodes = count;
      rendezvous = Require.present(address, "address");
      return this;
    }

    /** The file with the secret that ranks on several machines share. */
    public Builder secretFile(Path file) {
      secretFile = Require.present(file, "file").toAbsolutePath();
      return this;
    }

    /** Where the processes run; default where this one does. */
    public Builder directory(Path folder) {
      directory = Require.present(folder, "folder").toAbsolutePath();
      return this;
    }

    /**
     * Further variables. The processes have those of this one, these, and those that say which
     * ranks they have.
     *
     * @param ofRank asked with the first rank of each process
     */
    public Builder environment(IntFunction<Map<String, String>> ofRank) {
      variables = Require.present(ofRank, "variables");
      return this;
    }

    /** Who gets the output; default {@link RankOutput#prefixed} on this process's own streams. */
    public Builder output(RankOutput receiver) {
      output = Require.present(receiver, "receiver");
      return this;
    }

    /**
     * Lets each process write both of its streams to a file {@code rank-<rank>.log}, which replaces
     * an older one; nothing goes to {@link #output}.
     *
     * @param folder made if it is not there
     */
    public Builder outputFolder(Path folder) {
      outputFolder = Require.present(folder, "folder").toAbsolutePath();
      return this;
    }

    /** The time between SIGTERM and SIGKILL; default 10 s. */
    public Builder grace(Duration time) {
      grace = Require.present(time, "time");
      return this;
    }

    /**
     * Starts the processes.
     *
     * @throws InvalidArgumentException if something is missing, out of range, or no program
     * @throws SystemErrorException if a process cannot be started; none is left
     */
    public RankProcesses start() {
      check();
      makeFolder();
      RankProcesses ranks;
      try {
        ranks = new RankProcesses(this, Guard.start(grace));
      } catch (IOException e) {
        throw cannotStart("a shell", e);
      }
      try {
        ranks.start(this);
      } catch (RuntimeException e) {
        ranks.close();
        throw e;
      }
      return ranks;
    }

    private void check() {
      if (command.isEmpty()) {
        throw new InvalidArgumentException("there is no command", "name a program");
      }
      if (processes < 1 || ranksPerProcess < 1) {
        throw new InvalidArgumentException(
            processes + " processes with " + ranksPerProcess + " ranks each", "use 1 or more");
      }
      if (nodes < 1 || node < 0 || node >= nodes) {
        throw new InvalidArgumentException(
            "node " + node + " of " + nodes, "number nodes from 0 to nodes-1");
      }
      if ((long) nodes * processes * ranksPerProcess > Integer.MAX_VALUE) {
        throw new InvalidArgumentException("there are too many ranks", "use fewer");
      }
      if (nodes > 1 && rendezvous.isEmpty()) {
        throw new InvalidArgumentException(
            "nothing says where the ranks of " + nodes + " nodes meet",
            "name the machine with node 0 and a free TCP port there: tcp://node0:29400");
      }
      if (grace.isNegative()) {
        throw new InvalidArgumentException("the grace is " + grace, "use 0 or more");
      }
    }

    private void makeFolder() {
      if (outputFolder == null) {
        return;
      }
      try {
        Files.createDirectories(outputFolder);
      } catch (IOException e) {
        throw (InvalidArgumentException)
            new InvalidArgumentException(
                    "cannot create " + outputFolder + ": " + e, "name a folder that can be written")
                .causedBy(e);
      }
    }

    private int firstRank(int process) {
      return (node * processes + process) * ranksPerProcess;
    }

    /** Also says that no other launcher's variables count. */
    private Map<String, String> environment(int process) {
      int rank = firstRank(process);
      Map<String, String> all = new HashMap<>(System.getenv());
      all.keySet().removeAll(MEETING);
      all.putAll(variables.apply(rank));
      all.put("NCCL4J_LAUNCHER", "nccl4j");
      all.put("NCCL4J_RANK", Integer.toString(rank));
      all.put("NCCL4J_NRANKS", Integer.toString(nodes * processes * ranksPerProcess));
      all.put("NCCL4J_LOCAL_RANK", Integer.toString(process * ranksPerProcess));
      all.put("NCCL4J_LOCAL_NRANKS", Integer.toString(processes * ranksPerProcess));
      if (!rendezvous.isEmpty()) {
        all.put("NCCL4J_RENDEZVOUS", rendezvous);
      } else {
        all.put("NCCL4J_JOB", job);
      }
      if (secretFile != null) {
        all.remove("NCCL4J_SECRET");
        all.put("NCCL4J_SECRET_FILE", secretFile.toString());
      }
      return all;
    }
  }
}
