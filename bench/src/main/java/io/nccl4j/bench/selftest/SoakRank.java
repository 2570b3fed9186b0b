package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InternalErrorException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.Mix;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.data.Wrong;
import io.nccl4j.bench.program.Case;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank in one episode of the soak. Its thread uses it. Whatever fails is held against the
 * episode's fault; what is left becomes a problem, in words.
 */
final class SoakRank {
  private static final Duration PATIENCE = Duration.ofMinutes(3);
  private static final long LOOK_NANOS = 20_000;

  /**
   * What came of it.
   *
   * @param operations that completed on this rank
   * @param bytes that were compared
   * @param wrong elements of operations that were said to be complete
   * @param failed whether it ended by what the fault allows
   * @param problems what must not be
   */
  record Outcome(long operations, long bytes, long wrong, boolean failed, List<String> problems) {}

  /**
   * A communicator of this rank.
   *
   * @param ranks of the world, in its order
   */
  private record Member(Communicator communicator, List<Integer> ranks) {}

  /** What gives communicators to this rank. */
  @FunctionalInterface
  interface Joining {
    Communicator join();
  }

  private final SoakEpisode episode;
  private final int rank;
  private final SoakProcess process;
  private final Random own;
  private final Device device;
  private final List<@Nullable Member> families = new ArrayList<>();
  private final @Nullable Stream[] streams = new Stream[SoakEpisode.STREAMS];
  private final SoakMemory memory;
  private final List<String> problems = new ArrayList<>();
  private long operations;
  private long bytes;
  private long wrong;
  private boolean failed;
  private volatile String at = "joining";

  SoakRank(SoakEpisode episode, int rank, SoakProcess process) {
    this.episode = episode;
    this.rank = rank;
    this.process = process;
    // Another run with the same seed does the same, as far as its threads do.
    this.own = new Random(Mix.of(process.settings().seed(), episode.number(), rank));
    this.device = SelfTest.device(Backend.HOST, rank);
    this.memory = new SoakMemory(process, device, own, this::anyStream, this::closing);
  }

  /** Joins, does all steps, and closes everything. */
  Outcome run(Joining joining) {
    try {
      Communicator world = process.hook(joining.join());
      families.add(new Member(world, IntStream.range(0, episode.nranks()).boxed().toList()));
      process.joined(episode);
      steps();
    } catch (NcclException e) {
      // While joining, and from what waits for nobody.
      failed(e, IntStream.range(0, episode.nranks()).boxed().toList());
    } catch (RuntimeException | Error e) {
      problem(e.toString(), e);
    } catch (InterruptedException e) {
      problem("interrupted", e);
    }
    close();
    return new Outcome(operations, bytes, wrong, failed, List.copyOf(problems));
  }

  private void steps() throws InterruptedException {
    SoakFault fault = episode.fault();
    boolean mine = fault.ranks().contains(rank);
    Thread aborter = mine && fault.kind() == SoakFault.Kind.ABORT ? abortLater(fault) : null;
    try {
      for (int i = 0; i < episode.steps().size(); i++) {
        if (mine && i == fault.step() && fault.kind() == SoakFault.Kind.LEAVE) {
          return;
        }
        if (mine && fault.kind() == SoakFault.Kind.SLOW && own.nextBoolean()) {
          Thread.sleep(own.nextLong(fault.lasts().toMillis() + 1));
        }
        at = "step " + i;
        step(episode.steps().get(i));
        if (failed) {
          return;
        }
        memory.tidy();
      }
    } finally {
      if (aborter != null) {
        aborter.interrupt();
        aborter.join();
      }
    }
  }

  private Thread abortLater(SoakFault fault) {
    long nanos = (long) (Math.abs(fault.when()) * process.episodeNanos());
    return Thread.ofPlatform()
        .daemon()
        .name("soak-abort")
        .start(
            () -> {
              try {
                TimeUnit.NANOSECONDS.sleep(nanos);
              } catch (InterruptedException e) {
                // The episode is over.
                return;
              }
              List<@Nullable Member> all;
              synchronized (families) {
                all = new ArrayList<>(families);
              }
              for (Member member : all) {
                if (member != null) {
                  member.communicator.abort();
                }
              }
            });
  }

  private void step(SoakEpisode.Step step) throws InterruptedException {
    switch (step) {
      case SoakEpisode.Operate operate -> operate(operate);
      case SoakEpisode.Split split -> split(split);
      case SoakEpisode.Close close -> {
        Member member = families.get(close.family());
        if (member != null) {
          forget(close.family());
          closing("communicator", member.communicator);
        }
      }
    }
  }

  private void forget(int family) {
    synchronized (families) {
      families.set(family, null);
    }
  }

  // ---- splits

  private void split(SoakEpisode.Split split) {
    Member parent = families.get(split.parent());
    Member child = null;
    if (parent != null) {
      int color = split.colors().get(rank);
      Communicator made;
      try {
        made = parent.communicator.split(color, split.keys().get(rank));
      } catch (NcclException e) {
        failed(e, parent.ranks);
        return;
      }
      child = made == null ? null : new Member(process.hook(made), members(split, parent, color));
      check(split, color, child);
    }
    synchronized (families) {
      families.add(child);
    }
  }

  private static List<Integer> members(SoakEpisode.Split split, Member parent, int color) {
    List<Integer> ranks = new ArrayList<>(parent.ranks);
    ranks.removeIf(r -> split.colors().get(r) != color);
    // Stable: of equal keys the lower rank of the parent comes first.
    ranks.sort(Comparator.comparing(r -> split.keys().get(r)));
    return List.copyOf(ranks);
  }

  private void check(SoakEpisode.Split split, int color, @Nullable Member child) {
    if ((child == null) != (color == Communicator.NO_COLOR)) {
      problem(split + " gives color " + color + " " + child, null);
    } else if (child != null
        && (child.communicator.nranks() != child.ranks.size()
            || child.communicator.rank() != child.ranks.indexOf(rank))) {
      problem(split + " gives rank " + child.communicator.rank() + " of " + child.ranks, null);
    }
  }

  // ---- operations

  /** A call on this rank, with its buffers. */
  private final class Trial {
    private final SoakEpisode.Call call;
    private final Member member;
    private final Case size;
    private final TestData data;
    private final DeviceBuffer send;
    private final DeviceBuffer recv;
    private final Contents contents;
    private final Set<Stream> used = new HashSet<>();
    private @Nullable DeviceBuffer copy;

    Trial(SoakEpisode.Call call, Member member) {
      this.call = call;
      this.member = member;
      this.size = call.on(member.ranks.size());
      this.data = process.data(call.type(), call.op(), size.nranks());
      this.contents = process.contents(rank, call.type());
      if (call.inPlace()) {
        long from = size.sendInPlaceOffset(own());
        long to = size.recvInPlaceOffset(own());
        DeviceBuffer both = memory.take(Math.max(from + size.sendBytes(), to + size.recvBytes()));
        send = both.slice(from, size.sendBytes());
        recv = both.slice(to, size.recvBytes());
      } else {
        send = memory.take(size.sendBytes());
        recv = memory.take(size.recvBytes());
      }
      copy = call.copied() ? memory.take(size.recvBytes()) : null;
    }

    /** Its rank in the communicator. */
    int own() {
      return member.communicator.rank();
    }

    List<Block> expected() {
      return SelfTest.expected(operation(), size, data, own(), call.inPlace(), call.seed());
    }

    SelfTestOperation operation() {
      return (SelfTestOperation) size.program();
    }

    void prepare() {
      List<Block> expected = expected();
      contents.poison(recv, expected);
      contents.write(send, operation().sent(size, data, own(), call.seed()));
      if (copy != null) {
        contents.poison(copy, expected);
      }
    }

    void issue(Stream stream) {
      ReduceOp op = TestData.reduceOp(call.op(), own());
      operation().prepare(member.communicator, send, recv, size, op, stream).issue(0);
      used.add(stream);
    }

    /** Copies the result on another stream, which waits for an event. */
    void copy(Stream from) {
      if (copy != null) {
        Stream other = stream((call.stream() + 1) % SoakEpisode.STREAMS);
        used.add(other);
        after(from, other);
        other.copy(copy.slice(0, size.recvBytes()), recv);
        // What comes next on the first stream may write there again.
        after(other, from);
      }
    }

    void check() {
      List<Block> expected = expected();
      compare("result", recv, expected);
      if (copy != null) {
        compare("copied result", copy, expected);
      }
      if (!call.inPlace()) {
        compare("input", send, operation().sent(size, data, own(), call.seed()));
      }
      operations++;
    }

    private void compare(String what, DeviceBuffer buffer, List<Block> blocks) {
      Wrong found = contents.check(buffer, blocks);
      bytes += blocks.stream().mapToLong(Block::count).sum() * call.type().byteSize();
      wrong += found.count();
      if (found.count() > 0) {
        problem(what + " of " + call + ", ranks " + member.ranks + ": " + found, null);
      }
    }
  }

  private void operate(SoakEpisode.Operate step) throws InterruptedException {
    List<Trial> trials = new ArrayList<>();
    for (SoakEpisode.Call call : step.calls()) {
      Member member = families.get(call.family());
      if (member != null) {
        trials.add(new Trial(call, member));
      }
    }
    if (!trials.isEmpty()) {
      trials.forEach(Trial::prepare);
      run(step, trials);
    }
    memory.giveBack();
  }

  private void run(SoakEpisode.Operate step, List<Trial> trials) throws InterruptedException {
    List<ExecutableGraph> graphs = new ArrayList<>();
    Failure failure = null;
    boolean issued = false;
    try {
      issue(step, trials, graphs);
      issued = true;
    } catch (NcclException e) {
      failure = new Failure(e, null);
    }
    Set<Stream> complete = new HashSet<>();
    List<Stream> used = usedStreams();
    Collections.shuffle(used, own);
    for (Stream stream : used) {
      try {
        await(stream);
        complete.add(stream);
      } catch (NcclException e) {
        failure = failure == null ? new Failure(e, stream) : failure;
      }
    }
    for (Trial trial : trials) {
      // Whatever another stream met: what is said to be complete is right.
      if (issued && complete.containsAll(trial.used)) {
        trial.check();
      }
    }
    for (ExecutableGraph graph : graphs) {
      closing("graph", graph);
    }
    if (failure != null) {
      failed(failure.exception, ranks(failure, trials));
    }
  }

  private record Failure(NcclException exception, @Nullable Stream stream) {}

  /**
   * The ranks of the communicator that a failure is of: the one that failed, if there is but one.
   */
  private static @Nullable List<Integer> ranks(Failure failure, List<Trial> trials) {
    Set<Member> members = new HashSet<>();
    for (Trial trial : trials) {
      if (trial.member.communicator.state() != Communicator.State.READY
          && (failure.stream == null || trial.used.contains(failure.stream))) {
        members.add(trial.member);
      }
    }
    return members.size() == 1 ? members.iterator().next().ranks : null;
  }

  private void issue(SoakEpisode.Operate step, List<Trial> trials, List<ExecutableGraph> graphs) {
    switch (step.way()) {
      case PLAIN -> plain(trials);
      case GROUP -> {
        Group.run(() -> trials.forEach(t -> t.issue(stream(t.call.stream()))));
        trials.forEach(t -> t.copy(stream(t.call.stream())));
      }
      case GRAPH, GRAPH_OF_GROUP -> {
        ExecutableGraph graph = capture(step, trials);
        graphs.add(graph);
        launch(graph, trials, step.launches());
      }
      case MIXED -> {
        // By the calls of the step: ranks may not take part in the same ones.
        List<SoakEpisode.Call> first = step.calls().subList(0, (step.calls().size() + 1) / 2);
        List<Trial> captured = trials.stream().filter(t -> first.contains(t.call)).toList();
        List<Trial> others = trials.stream().filter(t -> !first.contains(t.call)).toList();
        ExecutableGraph graph = captured.isEmpty() ? null : capture(step, captured);
        if (graph != null) {
          graphs.add(graph);
          launch(graph, captured, 1);
        }
        plain(others);
        if (graph != null) {
          launch(graph, captured, step.launches());
        }
      }
    }
  }

  private void plain(List<Trial> trials) {
    for (Trial trial : trials) {
      Stream stream = stream(trial.call.stream());
      trial.issue(stream);
      trial.copy(stream);
    }
  }

  /** On streams in turn, or all on one. */
  private void launch(ExecutableGraph graph, List<Trial> trials, int times) {
    boolean turns = own.nextBoolean();
    int first = own.nextInt(SoakEpisode.STREAMS);
    for (int i = 0; i < times; i++) {
      Stream stream = stream(turns ? (first + i) % SoakEpisode.STREAMS : first);
      trials.forEach(trial -> trial.used.add(stream));
      graph.launch(stream);
    }
  }

  private ExecutableGraph capture(SoakEpisode.Operate step, List<Trial> trials) {
    Stream root = stream(step.stream());
    root.beginCapture();
    RuntimeException refused = null;
    try {
      Set<Stream> others = new HashSet<>();
      trials.forEach(trial -> others.add(stream(trial.call.stream())));
      others.remove(root);
      others.forEach(other -> after(root, other));
      Runnable all = () -> trials.forEach(trial -> trial.issue(stream(trial.call.stream())));
      if (step.way() == SoakEpisode.Way.GRAPH_OF_GROUP) {
        Group.run(all);
      } else {
        all.run();
      }
      others.forEach(other -> after(other, root));
    } catch (RuntimeException e) {
      refused = e;
    }
    try (Graph graph = root.endCapture()) {
      if (refused == null) {
        // What ran was nothing; the launches say where it runs.
        trials.forEach(trial -> trial.used.clear());
        return graph.instantiate();
      }
    } catch (RuntimeException e) {
      if (refused == null) {
        throw e;
      }
    }
    throw refused;
  }

  /** Makes a stream wait for what another one has. */
  private void after(Stream first, Stream next) {
    try (Event event = device.newEvent()) {
      first.record(event);
      next.waitFor(event);
    }
  }

  private void await(Stream stream) throws InterruptedException {
    switch (own.nextInt(4)) {
      case 0 -> stream.synchronize();
      case 1 -> stream.synchronize(PATIENCE);
      case 2 -> {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!stream.query()) {
          if (System.nanoTime() - end > 0) {
            throw new InternalErrorException("query() has been false for " + PATIENCE, "");
          }
          // Virtual threads that only yield keep others, which were parked, from their carriers.
          LockSupport.parkNanos(LOOK_NANOS);
        }
      }
      default -> {
        try (Event event = device.newEvent()) {
          stream.record(event);
          event.toFuture().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException e) {
          if (e.getCause() instanceof NcclException cause) {
            throw cause;
          }
          throw new IllegalStateException(e);
        } catch (TimeoutException e) {
          throw new InternalErrorException("a future has not completed in " + PATIENCE, "");
        }
      }
    }
  }

  // ---- streams

  private Stream stream(int index) {
    Stream stream = streams[index];
    if (stream == null) {
      stream = device.newStream();
      streams[index] = stream;
    }
    return stream;
  }

  private Stream anyStream() {
    return stream(own.nextInt(SoakEpisode.STREAMS));
  }

  private List<Stream> usedStreams() {
    List<Stream> used = new ArrayList<>();
    for (Stream stream : streams) {
      if (stream != null) {
        used.add(stream);
      }
    }
    return used;
  }

  // ---- the end

  /** Closes everything that is open, in any order. */
  private void close() {
    at = "closing";
    List<Stream> used = usedStreams();
    List<Runnable> rest = memory.close(failed, () -> used.forEach(Stream::synchronize));
    used.forEach(stream -> rest.add(() -> closing("stream", stream)));
    for (Member member : families) {
      if (member != null) {
        rest.add(() -> closing("communicator", member.communicator));
      }
    }
    Collections.shuffle(rest, own);
    rest.forEach(Runnable::run);
  }

  private void closing(String what, AutoCloseable thing) {
    try {
      thing.close();
    } catch (Exception e) {
      problem("close() of a " + what + ": " + e, e);
    }
  }

  /**
   * Holds a failure against the fault.
   *
   * @param ranks of the communicator that failed; null if it may be one of several
   */
  private void failed(NcclException e, @Nullable List<Integer> ranks) {
    failed = true;
    Set<Integer> culprits = new HashSet<>();
    for (int culprit : e.failedRanks()) {
      if (ranks == null) {
        culprits.addAll(episode.fault().ranks());
      } else if (culprit < ranks.size()) {
        culprits.add(ranks.get(culprit));
      }
    }
    if (!episode.fault().allows(e, culprits, !episode.hasFamilies())) {
      problem(
          e
              + " (names "
              + culprits
              + "; "
              + episode.fault().kind().label()
              + " of "
              + episode.fault().ranks()
              + ")",
          e);
    }
  }

  private void problem(String text, @Nullable Throwable cause) {
    StringBuilder where = new StringBuilder();
    for (Throwable t = cause; t != null; t = t.getCause()) {
      if (t != cause) {
        where.append("; caused by ").append(t);
      }
      List<StackTraceElement> stack = List.of(t.getStackTrace());
      stack.stream().limit(8).forEach(element -> where.append(" | ").append(element));
    }
    problems.add(
        "rank "
            + rank
            + ", "
            + at
            + ", fault "
            + episode.fault().kind().label()
            + ": "
            + text
            + where);
  }
}
