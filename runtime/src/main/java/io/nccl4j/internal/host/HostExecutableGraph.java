package io.nccl4j.internal.host;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.host.engine.Lookahead;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.memory.BufferUser;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import io.nccl4j.internal.schedule.StreamEngine;
import io.nccl4j.internal.spi.Resource;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Nodes with works of their own. The launching thread reserves numbers and queues an entry; whoever
 * drives that entry carries out all nodes whose predecessors are done, so that branches of a graph
 * run side by side as streams do.
 */
final class HostExecutableGraph implements GraphEngine<HostWork>, BufferUser {
  private static final Logger LOG = LogManager.getLogger(HostExecutableGraph.class);

  private GraphStep[] steps;
  private GraphNumbers[] numbers;

  /** All buffers in it, each once. */
  private Resource[] resources;

  private final boolean[] done;
  private @Nullable Lookahead lookahead;
  private int first;
  private long launched;
  private volatile long finished;
  private @Nullable HostQueue lastStream;
  private long lastPosition;
  private volatile boolean closed;

  private HostExecutableGraph(List<GraphNode<HostWork>> nodes) {
    steps = GraphStep.of(nodes);
    numbers = numbersOf(steps);
    resources = resourcesOf(nodes);
    done = new boolean[steps.length];
    lookahead = isChain(steps) ? lookahead(steps) : null;
  }

  static HostExecutableGraph of(List<GraphNode<HostWork>> nodes) {
    HostExecutableGraph graph = new HostExecutableGraph(nodes);
    ProcessMemory.self().add(graph);
    return graph;
  }

  private static GraphNumbers[] numbersOf(GraphStep[] steps) {
    List<HostWork> works = new ArrayList<>();
    for (GraphStep step : steps) {
      works.addAll(List.of(step.works));
    }
    return works.stream()
        .map(work -> work.rank)
        .distinct()
        .map(rank -> new GraphNumbers(rank, works))
        .toArray(GraphNumbers[]::new);
  }

  private static Resource[] resourcesOf(List<GraphNode<HostWork>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.resources().stream())
        .distinct()
        .toArray(Resource[]::new);
  }

  private static boolean isChain(GraphStep[] steps) {
    for (int i = 1; i < steps.length; i++) {
      if (steps[i].after.length != 1 || steps[i].after[0] != i - 1) {
        return false;
      }
    }
    return true;
  }

  private static Lookahead lookahead(GraphStep[] chain) {
    Lookahead lookahead = new Lookahead(Math.max(1, Integer.highestOneBit(chain.length) << 1));
    for (int i = 0; i < chain.length; i++) {
      HostWork[] own = chain[i].works;
      if (own.length == 1 && own[0].isCollective()) {
        lookahead.add(i, 0, own[0], own[0].rank.collectives());
      } else {
        lookahead.addOther(i);
      }
    }
    return lookahead;
  }

  @Override
  public void launch(StreamEngine<HostWork> on) {
    for (Resource resource : resources) {
      if (resource instanceof HostBuffer buffer) {
        ProcessMemory.self().quarantine().requireQuiet(buffer, "launch");
      }
    }
    // From here nothing can fail.
    HostQueue stream = (HostQueue) on;
    StreamTask task = stream.graphTask(this, ++launched, size());
    int at = 0;
    for (GraphNumbers part : numbers) {
      at = part.reserve(task.bases, at);
      part.rank().graphStarted();
    }
    lastStream = stream;
    lastPosition = stream.release();
  }

  private int size() {
    int size = 0;
    for (GraphNumbers part : numbers) {
      size += part.size();
    }
    return size;
  }

  // ---- driving, by the owner of the stream

  /**
   * Takes steps of one launch.
   *
   * @param patience how often a collective that nothing runs beside looks for its peers before it
   *     is said to be waiting
   */
  int step(HostQueue stream, StreamTask task, int patience) {
    if (!task.begun) {
      if (finished != task.generation - 1) {
        return Step.DEPENDS;
      }
      begin(task);
    }
    Lookahead ahead = lookahead;
    int result = ahead == null ? stepBranches(stream) : stepChain(stream, ahead, patience);
    if (first < steps.length) {
      return result;
    }
    for (GraphNumbers part : numbers) {
      part.rank().graphEnded();
    }
    finished = task.generation;
    if (closed) {
      forget();
    }
    return Step.DONE;
  }

  private int stepBranches(HostQueue stream) {
    int result = Step.BLOCKED;
    for (int i = first; i < steps.length; i++) {
      if (!done[i] && isReady(i)) {
        int one = step(stream, steps[i], 0);
        if (one == Step.DONE) {
          done[i] = true;
          result = Step.MOVED;
        } else if (result != Step.MOVED && one != Step.BLOCKED) {
          result = one;
        }
      }
      if (done[i] && i == first) {
        first++;
      }
    }
    return result;
  }

  private int stepChain(HostQueue stream, Lookahead ahead, int patience) {
    int before = first;
    while (first < steps.length) {
      if (stream.error() == null) {
        boolean ignored = ahead.advance(first);
        ahead.look(first);
      }
      HostWork collective = steps[first].collective();
      int one =
          collective != null
              ? stream.step(collective, behind(collective), patience)
              : step(stream, steps[first], patience);
      if (one != Step.DONE) {
        return first == before ? one : Step.MOVED;
      }
      done[first++] = true;
    }
    return Step.DONE;
  }

  /**
   * The step after the first unfinished one if both are collectives of one rank whose communicator
   * has one host; else null.
   */
  private @Nullable HostWork behind(HostWork collective) {
    HostWork next = first + 1 < steps.length ? steps[first + 1].collective() : null;
    boolean isAlone = !collective.rank.spansHosts();
    return isAlone && next != null && next.rank == collective.rank ? next : null;
  }

  private void begin(StreamTask task) {
    task.begun = true;
    first = 0;
    Arrays.fill(done, false);
    if (lookahead != null) {
      lookahead.rewind();
    }
    int at = 0;
    for (GraphNumbers part : numbers) {
      at = part.assume(task.bases, at);
    }
  }

  private boolean isReady(int i) {
    for (int before : steps[i].after) {
      if (!done[before]) {
        return false;
      }
    }
    return true;
  }

  private static int step(HostQueue stream, GraphStep step, int patience) {
    StreamTask task = step.task;
    if (task == null) {
      int result = Step.DONE;
      int polls = step.works.length == 1 ? patience : 0;
      for (HostWork work : step.works) {
        if (!work.finished) {
          int one = stream.step(work, null, polls);
          work.finished = one == Step.DONE;
          if (one != Step.DONE && (result == Step.DONE || one == Step.MOVED)) {
            result = one;
          }
        }
      }
      return result;
    }
    if (stream.error() == null) {
      try {
        task.move();
      } catch (IllegalStateException e) {
        // The launch ends all the same: later ones wait for it.
        stream.memoryWasClosed(e);
      }
    }
    return Step.DONE;
  }

  /** A work that was begun and is not complete, for messages; null if there is none. */
  @Nullable HostWork firstPending() {
    HostWork[] found = new HostWork[1];
    forEachPending((work, now) -> found[0] = found[0] == null ? work : found[0], 0);
    return found[0];
  }

  /** Calls {@code action} for every work that was begun and is not complete. */
  void forEachPending(Unfinished.PendingAction action, long now) {
    for (int i = first; i < steps.length; i++) {
      if (!done[i] && isReady(i)) {
        for (HostWork work : steps[i].works) {
          if (!work.finished) {
            action.apply(work, now);
          }
        }
      }
    }
  }

  // ---- changing

  @Override
  public void replace(CapturedGraph<HostWork> captured) {
    awaitIdle();
    List<GraphNode<HostWork>> nodes = captured.nodes();
    steps = GraphStep.of(nodes);
    numbers = numbersOf(steps);
    resources = resourcesOf(nodes);
    lookahead = lookahead == null ? null : lookahead(steps);
  }

  private void awaitIdle() {
    HostQueue stream = lastStream;
    if (stream != null && finished != launched) {
      Progress.drive(stream, lastPosition, Long.MAX_VALUE);
    }
  }

  /** The launches under way. */
  @Override
  public void addUses(Object root, Uses uses) {
    long last = launched;
    if (finished == last) {
      return;
    }
    for (Resource resource : resources) {
      if (resource.isPartOf(root)) {
        uses.add(() -> finished >= last);
        return;
      }
    }
  }

  /** The longest of its communicators; a graph of copies and fills has none. */
  Duration closeTimeout(Duration otherwise) {
    return Arrays.stream(numbers)
        .map(part -> part.rank().config().closeTimeout())
        .max(Comparator.naturalOrder())
        .orElse(otherwise);
  }

  /** Fails its communicators, so that launches under way end. */
  void giveUp(String problem) {
    for (GraphNumbers part : numbers) {
      part.rank().closeEarly(problem);
    }
  }

  @Override
  public void close() {
    HostQueue stream = lastStream;
    try {
      if (stream != null && finished != launched) {
        long timeout = closeTimeout(CommunicatorConfig.defaults().closeTimeout()).toNanos();
        if (!Progress.drive(stream, lastPosition, timeout)) {
          giveUp("a graph was unfinished when it was closed: " + stream.describeHead());
          boolean ignored = Progress.drive(stream, lastPosition, timeout);
        }
      }
    } catch (InterruptedWaitException e) {
      LOG.debug("the launches under way go on, and use their buffers until then", e);
    }
    closed = true;
    forget();
  }

  /** Lets go of the buffers, unless launches are under way: the last one does. */
  private void forget() {
    if (finished == launched) {
      ProcessMemory.self().remove(this);
    }
  }
}
