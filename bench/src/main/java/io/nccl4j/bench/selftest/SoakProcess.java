package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.TestData;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;

/**
 * A process with ranks of the soak: does what the parent says in lines, and answers in lines. Its
 * ranks are threads, of either kind.
 *
 * <pre>
 * episode 7 id 2     →  joined 7       when all its ranks have
 *                    →  done 7 …       and nothing of the episode is left
 *                    →  problem 7 …    before that, for each
 * usage              →  usage …
 * </pre>
 */
public final class SoakProcess {
  /** In place of an id where all ranks are here. */
  static final String TOGETHER = "-";

  private static final Duration INIT = Duration.ofSeconds(60);

  /** Who is killed before it is at the rendezvous is waited for. */
  private static final Duration SHORT_INIT = Duration.ofSeconds(5);

  private static final Duration CLOSE = Duration.ofSeconds(5);

  /** How long peers may take until they are done with memory. */
  private static final Duration REACHED = Duration.ofSeconds(20);

  private static final int MOST_PROBLEMS = 5;

  private record Reduction(DataType type, ReduceOp.Kind op, int nranks) {}

  private final Soak.Settings settings;
  private final Consumer<String> answer;
  private final UnaryOperator<Communicator> hook;
  private final Map<Reduction, TestData> data = new ConcurrentHashMap<>();
  private final Map<String, Contents> contents = new ConcurrentHashMap<>();
  private final SoakCanaries canaries = new SoakCanaries();
  private final Random random;
  private final AtomicInteger joined = new AtomicInteger();
  private final Queue<AutoCloseable> later = new ConcurrentLinkedQueue<>();
  private final Queue<DeviceBuffer> kept = new ConcurrentLinkedQueue<>();
  private volatile long episodeNanos = 10_000_000;

  /** A process that gives its lines to {@code answer}. */
  public SoakProcess(Soak.Settings settings, Consumer<String> answer) {
    this(settings, answer, UnaryOperator.identity());
  }

  /** The same, on communicators that a test has changed. */
  SoakProcess(Soak.Settings settings, Consumer<String> answer, UnaryOperator<Communicator> hook) {
    this.settings = settings;
    this.answer = answer;
    this.hook = hook;
    this.random = new Random(settings.seed());
  }

  Soak.Settings settings() {
    return settings;
  }

  Communicator hook(Communicator communicator) {
    return hook.apply(communicator);
  }

  TestData data(DataType type, ReduceOp.Kind op, int nranks) {
    return data.computeIfAbsent(
        new Reduction(type, op, nranks), r -> new TestData(type, op, nranks, Backend.HOST));
  }

  /** For the thread of a rank. */
  Contents contents(int rank, DataType type) {
    int thread = rank % (settings.ranks() / settings.processes());
    return contents.computeIfAbsent(thread + " " + type, key -> new Contents(type));
  }

  /** How long an episode takes, about. */
  long episodeNanos() {
    return episodeNanos;
  }

  /** A rank has joined. */
  void joined(SoakEpisode episode) {
    if (joined.incrementAndGet() == settings.ranks() / settings.processes()) {
      answer.accept("joined " + episode.number());
    }
  }

  /** Closes memory when no rank of this process is in the episode any more. */
  void closeAfterEpisode(AutoCloseable memory) {
    later.add(memory);
  }

  /** Leaves a buffer of a failed operation to this process, which sees who writes to it later. */
  void keep(DeviceBuffer buffer) {
    kept.add(buffer);
  }

  private void adopt(List<String> problems) throws InterruptedException {
    for (DeviceBuffer buffer : kept) {
      if (buffer.awaitQuiet(REACHED)) {
        canaries.adopt(buffer, random);
      } else {
        problems.add(
            "a buffer of a failed operation is still not quiet after "
                + REACHED.toSeconds()
                + " s");
        buffer.close();
      }
    }
    kept.clear();
  }

  /** What cannot be closed at once is used by ranks of other processes, which will be done soon. */
  private void closeMemory(List<String> problems) throws InterruptedException {
    long end = System.nanoTime() + REACHED.toNanos();
    for (AutoCloseable memory : later) {
      while (true) {
        try {
          memory.close();
          break;
        } catch (Exception e) {
          if (System.nanoTime() - end > 0) {
            problems.add("close() of a pool was refused for " + REACHED.toSeconds() + " s: " + e);
            break;
          }
          Thread.sleep(1);
        }
      }
    }
    later.clear();
  }

  /** Does what a line says. */
  public void handle(String line) throws InterruptedException {
    String[] words = line.split(" ");
    switch (words[0]) {
      case "episode" -> episode(Integer.parseInt(words[1]), words[2], Integer.parseInt(words[3]));
      case "usage" -> {
        canaries.clear();
        answer.accept(
            "usage " + SoakUsage.now(settings.ranks(), settings.processes() == 1).format());
      }
      default -> throw new IllegalArgumentException(line);
    }
  }

  private void episode(int number, String id, int firstRank) throws InterruptedException {
    SoakEpisode episode = SoakEpisode.of(settings, number);
    long start = System.nanoTime();
    joined.set(0);
    canaries.renew(random, settings.ranks());
    List<SoakOutcome> outcomes = ranks(episode, id, firstRank);
    List<String> problems = new ArrayList<>();
    adopt(problems);
    closeMemory(problems);
    problems.addAll(canaries.check());
    outcomes.forEach(outcome -> problems.addAll(outcome.problems()));
    problems.stream()
        .limit(MOST_PROBLEMS)
        .forEach(problem -> answer.accept("problem " + number + " " + problem.replace('\n', ' ')));
    episodeNanos = (episodeNanos + System.nanoTime() - start) / 2;
    answer.accept(
        "done "
            + number
            + " "
            + outcomes.stream().mapToLong(SoakOutcome::operations).sum()
            + " "
            + outcomes.stream().mapToLong(SoakOutcome::bytes).sum()
            + " "
            + outcomes.stream().mapToLong(SoakOutcome::wrong).sum()
            + " "
            + outcomes.stream().filter(SoakOutcome::hasFailed).count());
  }

  private List<SoakOutcome> ranks(SoakEpisode episode, String id, int firstRank)
      throws InterruptedException {
    int count = settings.ranks() / settings.processes();
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .name("soak-" + episode.number())
            .initTimeout(episode.fault().isEarly() ? SHORT_INIT : INIT)
            .operationTimeout(episode.operationTimeout())
            .closeTimeout(CLOSE)
            .build();
    List<Communicator> all = new ArrayList<>();
    if (id.equals(TOGETHER)) {
      List<Device> devices =
          IntStream.range(0, count).mapToObj(r -> SelfTest.device(Backend.HOST, r)).toList();
      // Each rank closes its own.
      Communicators made = Communicator.initAll(devices, config);
      made.forEach(all::add);
    }
    List<SoakOutcome> outcomes = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    boolean areVirtual = random.nextInt(8) == 0;
    for (int i = 0; i < count; i++) {
      int rank = firstRank + i;
      Supplier<Communicator> joining =
          all.isEmpty()
              ? () ->
                  Communicator.initRank(
                      SelfTest.device(Backend.HOST, rank),
                      episode.nranks(),
                      UniqueId.parse(id),
                      rank,
                      config)
              : () -> all.get(rank);
      Runnable task =
          () -> {
            SoakOutcome outcome = new SoakRank(episode, rank, this).run(joining);
            synchronized (outcomes) {
              outcomes.add(outcome);
            }
          };
      Thread.Builder builder = areVirtual ? Thread.ofVirtual() : Thread.ofPlatform();
      threads.add(builder.name("rank-" + rank).start(task));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    return outcomes;
  }
}
