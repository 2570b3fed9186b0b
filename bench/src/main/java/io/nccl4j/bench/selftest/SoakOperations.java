package io.nccl4j.bench.selftest;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.data.Wrong;
import io.nccl4j.bench.program.Case;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * How one rank does the operations of a step of the soak: in each of the ways to issue them, and
 * compared when they are complete. The rank's thread uses it.
 */
final class SoakOperations {
  private final int rank;
  private final SoakProcess process;
  private final Random random;
  private final SoakFamilies families;
  private final SoakStreams streams;
  private final SoakMemory memory;
  private final SoakOutcome outcome;

  /** Operations on these communicators and streams. */
  SoakOperations(
      int rank,
      SoakProcess process,
      Random random,
      SoakFamilies families,
      SoakStreams streams,
      SoakMemory memory,
      SoakOutcome outcome) {
    this.rank = rank;
    this.process = process;
    this.random = random;
    this.families = families;
    this.streams = streams;
    this.memory = memory;
    this.outcome = outcome;
  }

  /** A call on this rank, with its buffers. */
  private final class Trial {
    private final SoakEpisode.Call call;
    private final SoakFamilies.Member member;
    private final Case size;
    private final TestData data;
    private final DeviceBuffer send;
    private final DeviceBuffer recv;
    private final Contents contents;
    private final Set<Stream> used = new HashSet<>();
    private @Nullable DeviceBuffer copy;

    Trial(SoakEpisode.Call call, SoakFamilies.Member member) {
      this.call = call;
      this.member = member;
      this.size = call.on(member.ranks().size());
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
      return member.communicator().rank();
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
      operation().prepare(member.communicator(), send, recv, size, op, stream).issue(0);
      used.add(stream);
    }

    /** Copies the result on another stream, which waits for an event. */
    void copy(Stream from) {
      if (copy != null) {
        Stream other = streams.get((call.stream() + 1) % SoakEpisode.STREAMS);
        used.add(other);
        streams.after(from, other);
        other.copy(copy.slice(0, size.recvBytes()), recv);
        // What comes next on the first stream may write there again.
        streams.after(other, from);
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
      outcome.completed();
    }

    private void compare(String what, DeviceBuffer buffer, List<Block> blocks) {
      Wrong found = contents.check(buffer, blocks);
      outcome.compared(
          blocks.stream().mapToLong(Block::count).sum() * call.type().byteSize(), found.count());
      if (found.count() > 0) {
        outcome.problem(what + " of " + call + ", ranks " + member.ranks() + ": " + found, null);
      }
    }
  }

  /** Issues them, waits, and compares what they have done. */
  void run(SoakEpisode.Operate step) throws InterruptedException {
    List<Trial> trials = new ArrayList<>();
    for (SoakEpisode.Call call : step.calls()) {
      SoakFamilies.Member member = families.get(call.family());
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
    List<Stream> used = streams.used();
    Collections.shuffle(used, random);
    for (Stream stream : used) {
      try {
        streams.await(stream);
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
      outcome.close("graph", graph);
    }
    if (failure != null) {
      outcome.failed(failure.exception, ranks(failure, trials));
    }
  }

  private record Failure(NcclException exception, @Nullable Stream stream) {}

  /**
   * The ranks of the communicator that a failure is of: the one that failed, if there is but one.
   */
  private static @Nullable List<Integer> ranks(Failure failure, List<Trial> trials) {
    Set<SoakFamilies.Member> members = new HashSet<>();
    for (Trial trial : trials) {
      if (trial.member.communicator().state() != Communicator.State.READY
          && (failure.stream == null || trial.used.contains(failure.stream))) {
        members.add(trial.member);
      }
    }
    return members.size() == 1 ? members.iterator().next().ranks() : null;
  }

  private void issue(SoakEpisode.Operate step, List<Trial> trials, List<ExecutableGraph> graphs) {
    switch (step.way()) {
      case PLAIN -> plain(trials);
      case GROUP -> {
        Group.run(() -> trials.forEach(t -> t.issue(streams.get(t.call.stream()))));
        trials.forEach(t -> t.copy(streams.get(t.call.stream())));
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
      Stream stream = streams.get(trial.call.stream());
      trial.issue(stream);
      trial.copy(stream);
    }
  }

  /** On streams in turn, or all on one. */
  private void launch(ExecutableGraph graph, List<Trial> trials, int times) {
    boolean turns = random.nextBoolean();
    int first = random.nextInt(SoakEpisode.STREAMS);
    for (int i = 0; i < times; i++) {
      Stream stream = streams.get(turns ? (first + i) % SoakEpisode.STREAMS : first);
      trials.forEach(trial -> trial.used.add(stream));
      graph.launch(stream);
    }
  }

  private ExecutableGraph capture(SoakEpisode.Operate step, List<Trial> trials) {
    Stream root = streams.get(step.stream());
    root.beginCapture();
    RuntimeException refused = null;
    try {
      Set<Stream> others = new HashSet<>();
      trials.forEach(trial -> others.add(streams.get(trial.call.stream())));
      others.remove(root);
      others.forEach(other -> streams.after(root, other));
      Runnable all = () -> trials.forEach(trial -> trial.issue(streams.get(trial.call.stream())));
      if (step.way() == SoakEpisode.Way.GRAPH_OF_GROUP) {
        Group.run(all);
      } else {
        all.run();
      }
      others.forEach(other -> streams.after(other, root));
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
}
