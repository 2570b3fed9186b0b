package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.options.Options;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Random operations for as long as one likes, with processes that are killed and stopped meanwhile:
 * every result is compared, nobody may wait for ever, and nothing may grow.
 *
 * <p>An instance is the parent's part of a phase, in which the ranks are distributed in one way;
 * one thread uses it. The ranks are in {@link SoakProcess}es.
 */
public final class Soak {
  /** What is beyond this is hung: all deadlines are shorter. */
  private static final Duration PATIENCE = Duration.ofSeconds(240);

  private static final Duration REPORT = Duration.ofSeconds(10);
  private static final int SAMPLES = 40;
  private static final int MOST_PROBLEMS = 50;

  /**
   * How a phase is run.
   *
   * @param seed of everything that is drawn
   * @param ranks of the world
   * @param processes with as many of them each
   * @param kills whether processes are killed
   * @param stops whether processes are stopped
   */
  public record Settings(long seed, int ranks, int processes, boolean kills, boolean stops) {
    /**
     * Checks them.
     *
     * @throws InvalidArgumentException if the ranks cannot be distributed so
     */
    public Settings {
      if (ranks < 2 || ranks > Options.MAX_RANKS) {
        throw new InvalidArgumentException("ranks is " + ranks, "use 2 to " + Options.MAX_RANKS);
      }
      if (processes < 1 || ranks % processes != 0) {
        throw new InvalidArgumentException(
            processes + " processes for " + ranks + " ranks",
            "use a number that divides the ranks");
      }
    }
  }

  /**
   * Something that a process has said, or that it has ended.
   *
   * @param process its number
   * @param line what it said; null if it has ended
   * @param exitCode if it has
   */
  public record Event(int process, @Nullable String line, int exitCode) {}

  /** The processes, by number from 0. */
  public interface Processes {
    /** Says a line to one. */
    void say(int process, String line);

    /** The next that one of them says; null if that takes longer. */
    @Nullable Event next(Duration patience) throws InterruptedException;

    /** Kills one. Its end is an event. */
    void kill(int process);

    /** Stops one, and lets it go on after a while, whatever happens here; it does not wait. */
    void stop(int process, Duration lasts);

    /** Lets one that hangs say where. */
    void dump(int process);

    /** Starts one in the place of one that has ended. */
    void replace(int process);
  }

  /** Hears how far a phase is. */
  public interface Listener {
    /** Some more is done. */
    void progress(Result soFar, Duration of);

    /** Something is wrong. */
    void problem(String text);
  }

  /**
   * What came of a phase.
   *
   * @param settings how it was run
   * @param seconds how long it took
   * @param episodes that were run
   * @param operations that completed, of all ranks
   * @param bytes that were compared
   * @param faults how often something went wrong on purpose, by what
   * @param wrong elements
   * @param problems how often something was as it must not be
   * @param texts the first of them in words
   * @param slowestFailureMillis the longest from a kill to the end of the last survivor's episode
   * @param growths of each process that lived long enough, and last of the parent
   * @param leaks what grew by more than it may, in words
   */
  public record Result(
      Settings settings,
      double seconds,
      long episodes,
      long operations,
      long bytes,
      Map<String, Long> faults,
      long wrong,
      long problems,
      List<String> texts,
      long slowestFailureMillis,
      Map<String, List<SoakGrowth>> growths,
      List<String> leaks) {
    /** Copies. */
    public Result {
      faults = Map.copyOf(faults);
      texts = List.copyOf(texts);
      growths = Map.copyOf(growths);
      leaks = List.copyOf(leaks);
    }

    /** Whether all was as it must be. */
    public boolean passed() {
      return episodes > 0 && wrong == 0 && problems == 0 && leaks.isEmpty();
    }
  }

  private final Settings settings;
  private final Processes processes;
  private final Duration warmUp;
  private final Listener listener;
  private final long start = System.nanoTime();
  private final Map<SoakFault.Kind, Long> faults = new EnumMap<>(SoakFault.Kind.class);
  private final Map<Integer, List<SoakUsage>> samples = new HashMap<>();
  private final Set<Integer> fresh = new HashSet<>();
  private final List<SoakUsage> ownSamples = new ArrayList<>();
  private final List<String> texts = new ArrayList<>();
  private final List<String> leaks = new ArrayList<>();
  private final Map<String, List<SoakGrowth>> growths = new HashMap<>();
  private long episodes;
  private long operations;
  private long bytes;
  private long wrong;
  private long problems;
  private long slowestFailure;
  private long episodeNanos = TimeUnit.MILLISECONDS.toNanos(100);

  /**
   * A phase.
   *
   * @param warmUp how old processes are when what they have in use begins to count
   */
  Soak(Settings settings, Processes processes, Duration warmUp, Listener listener) {
    this.settings = settings;
    this.processes = processes;
    this.warmUp = warmUp;
    this.listener = listener;
  }

  /**
   * Runs a phase.
   *
   * @param first number of the first episode
   * @param most episodes
   * @param time after which no episode begins
   */
  public static Result run(
      Settings settings,
      Processes processes,
      int first,
      long most,
      Duration time,
      Listener listener)
      throws InterruptedException {
    return new Soak(settings, processes, SoakGrowth.WARM_UP, listener).run(first, most, time);
  }

  /** Runs it; see the other form. */
  Result run(int first, long most, Duration time) throws InterruptedException {
    for (int process = 0; process < settings.processes(); process++) {
      fresh.add(process);
    }
    long sampled = System.nanoTime();
    long reported = sampled;
    for (long i = 0; i < most && nanos() < time.toNanos(); i++) {
      ask();
      new OneEpisode(SoakEpisode.of(settings, (int) (first + i))).run();
      long now = System.nanoTime();
      if (now - sampled > time.toNanos() / SAMPLES || most < Integer.MAX_VALUE) {
        sampled = now;
        sample();
      }
      if (now - reported > REPORT.toNanos()) {
        reported = now;
        listener.progress(result(), time);
      }
    }
    for (int process = 0; process < settings.processes(); process++) {
      judge(process);
    }
    judge("parent", ownSamples);
    return result();
  }

  private long nanos() {
    return System.nanoTime() - start;
  }

  private Result result() {
    Map<String, Long> named = new HashMap<>();
    faults.forEach((kind, count) -> named.put(kind.label(), count));
    return new Result(
        settings,
        nanos() / 1e9,
        episodes,
        operations,
        bytes,
        named,
        wrong,
        problems,
        texts,
        TimeUnit.NANOSECONDS.toMillis(slowestFailure),
        growths,
        leaks);
  }

  private void problem(SoakEpisode episode, int process, String text) {
    problems++;
    String full = "episode " + episode.number() + ", process " + process + ": " + text;
    if (texts.size() < MOST_PROBLEMS) {
      texts.add(full);
      listener.problem(full);
    }
  }

  private void replace(int process) {
    processes.replace(process);
    fresh.add(process);
  }

  // ---- what is in use

  private void sample() throws InterruptedException {
    for (int process = 0; process < settings.processes(); process++) {
      fresh.add(process);
    }
    ask();
    ownSamples.add(SoakUsage.now(0, true));
  }

  /**
   * Asks what those in {@link #fresh} have in use, and waits for their answers: a process that was
   * just started is there then, and a unique id, which lasts for so long only, can be made.
   */
  private void ask() throws InterruptedException {
    fresh.forEach(process -> processes.say(process, "usage"));
    while (!fresh.isEmpty()) {
      Event event = processes.next(PATIENCE);
      if (event == null || event.line() == null) {
        throw new IllegalStateException("no answer about the usage: " + event);
      }
      if (event.line().startsWith("usage ")) {
        samples
            .computeIfAbsent(event.process(), p -> new ArrayList<>())
            .add(SoakUsage.parse(event.line().substring("usage ".length())));
        fresh.remove(event.process());
      }
    }
  }

  /** When a process is at its end. */
  private void judge(int process) {
    List<SoakUsage> own = samples.remove(process);
    if (own != null) {
      judge("process " + process, own);
    }
  }

  private void judge(String who, List<SoakUsage> own) {
    List<SoakGrowth> all = SoakGrowth.of(own, warmUp);
    if (!all.isEmpty()) {
      growths.put(who, all);
    }
    for (SoakGrowth growth : all) {
      if (growth.isLeak()) {
        String text =
            who
                + ": "
                + growth
                + "; in use before: "
                + own.get(own.size() / 4).details()
                + "; now: "
                + own.getLast().details();
        leaks.add(text);
        listener.problem(text);
      }
    }
  }

  // ---- one episode

  private final class OneEpisode {
    private final SoakEpisode episode;
    private final SoakFault fault;
    private final int victim;

    /** Those that have not said that they are done. */
    private final Set<Integer> busy = new HashSet<>();

    private int joined;

    /** When the victim was killed; 0 if it was not. */
    private long killed;

    private boolean ended;
    private boolean disturbed;
    private long failed;

    OneEpisode(SoakEpisode episode) {
      this.episode = episode;
      this.fault = episode.fault();
      int perProcess = settings.ranks() / settings.processes();
      this.victim =
          fault.kind().isFromOutside()
              ? place(fault.ranks().stream().min(Integer::compare).orElseThrow() / perProcess)
              : -1;
    }

    /** Which process has a block of ranks: another one in each episode. */
    private int place(int block) {
      return (block + episode.number()) % settings.processes();
    }

    void run() throws InterruptedException {
      long begin = System.nanoTime();
      UniqueId id = episode.together() ? null : UniqueId.create(Backend.HOST);
      int perProcess = settings.ranks() / settings.processes();
      for (int block = 0; block < settings.processes(); block++) {
        busy.add(place(block));
        processes.say(
            place(block),
            "episode "
                + episode.number()
                + " "
                + (id == null ? SoakProcess.TOGETHER : id)
                + " "
                + block * perProcess);
      }
      if (victim >= 0) {
        disturb();
      }
      awaitAll();
      episodes++;
      boolean nothing = victim >= 0 && !disturbed;
      faults.merge(nothing ? SoakFault.Kind.NONE : fault.kind(), 1L, Long::sum);
      if (nothing && failed > 0) {
        problem(
            episode, victim, failed + " ranks failed, although no process was killed or stopped");
      }
      long end = System.nanoTime();
      if (killed != 0) {
        slowestFailure = Math.max(slowestFailure, end - killed);
        awaitEnd();
        judge(victim);
        replace(victim);
      } else if (victim < 0) {
        episodeNanos = (3 * episodeNanos + end - begin) / 4;
      }
    }

    private void disturb() throws InterruptedException {
      if (fault.when() >= 0) {
        while (joined < settings.processes() && busy.size() == settings.processes()) {
          take(PATIENCE);
        }
      }
      long until = System.nanoTime() + (long) (Math.abs(fault.when()) * episodeNanos);
      listen(until);
      // The process that is there from start to end shows whether anything grows.
      if (fault.kind() == SoakFault.Kind.KILL ? victim == 0 : !busy.contains(victim)) {
        return;
      }
      disturbed = true;
      if (fault.kind() == SoakFault.Kind.KILL) {
        processes.kill(victim);
        busy.remove(victim);
        killed = System.nanoTime();
      } else {
        processes.stop(victim, fault.lasts());
      }
    }

    private void listen(long until) throws InterruptedException {
      long left = until - System.nanoTime();
      while (left > 0) {
        event(processes.next(Duration.ofNanos(left)));
        left = until - System.nanoTime();
      }
    }

    private void awaitAll() throws InterruptedException {
      while (!busy.isEmpty()) {
        take(PATIENCE);
      }
    }

    private void awaitEnd() throws InterruptedException {
      while (!ended) {
        take(PATIENCE);
      }
    }

    private void take(Duration patience) throws InterruptedException {
      Event event = processes.next(patience);
      if (event == null) {
        hung();
      } else {
        event(event);
      }
    }

    /** Nobody says anything: each says where it is, and is replaced. */
    private void hung() throws InterruptedException {
      for (int process : Set.copyOf(busy)) {
        problem(episode, process, "hangs: no answer in " + PATIENCE.toSeconds() + " s");
        processes.dump(process);
      }
      listen(System.nanoTime() + TimeUnit.SECONDS.toNanos(2));
      for (int process : Set.copyOf(busy)) {
        busy.remove(process);
        processes.kill(process);
        samples.remove(process);
        replace(process);
      }
    }

    private void event(@Nullable Event event) {
      if (event == null) {
        return;
      }
      String line = event.line();
      if (line == null) {
        end(event);
        return;
      }
      String[] words = line.split(" ", 3);
      boolean ours = words.length > 1 && words[1].equals(Integer.toString(episode.number()));
      if (!ours || event.process() == victim && killed != 0) {
        return;
      }
      switch (words[0]) {
        case "joined" -> joined++;
        case "problem" -> problem(episode, event.process(), words[2]);
        case "done" -> {
          long[] counts = Arrays.stream(words[2].split(" ")).mapToLong(Long::parseLong).toArray();
          operations += counts[0];
          bytes += counts[1];
          wrong += counts[2];
          failed += counts[3];
          busy.remove(event.process());
        }
        default -> throw new IllegalStateException(line);
      }
    }

    private void end(Event event) {
      if (event.process() == victim && killed != 0) {
        ended = true;
        return;
      }
      problem(episode, event.process(), "ended with exit code " + event.exitCode());
      if (busy.remove(event.process())) {
        samples.remove(event.process());
        replace(event.process());
      }
    }
  }
}
