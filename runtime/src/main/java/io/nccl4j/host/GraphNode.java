package io.nccl4j.host;

import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** One step of a graph: a plan of works, a copy or a fill, with the nodes it comes after. */
final class GraphNode {
  final int kind;
  final int[] after;
  final List<HostWork> works;

  /** The copy or fill; for a plan an empty one. */
  final StreamTask task;

  /** A plan. */
  GraphNode(List<HostWork> works, int[] after) {
    this(StreamTask.WORKS, after, works, new StreamTask());
  }

  /** A copy or fill, which is the node's from now on. */
  GraphNode(StreamTask task, int[] after) {
    this(task.kind, after, List.of(), task);
  }

  private GraphNode(int kind, int[] after, List<HostWork> works, StreamTask task) {
    this.kind = kind;
    this.after = after;
    this.works = works;
    this.task = task;
    note(task.sourceOwner);
    note(task.targetOwner);
    for (HostWork work : works) {
      note(work.send);
      note(work.recv);
      note(work.op.deviceScalar());
    }
  }

  private static void note(@Nullable Object owner) {
    if (owner instanceof HostBuffer buffer) {
      buffer.capture();
    }
  }

  /**
   * A node with works of its own, so that executable graphs of one capture do not share progress.
   */
  GraphNode copy() {
    if (kind != StreamTask.WORKS) {
      return this;
    }
    return new GraphNode(works.stream().map(HostWork::copy).toList(), after);
  }

  /** What keeps {@code other} from taking this node's place in an update; null if nothing does. */
  @Nullable String differenceFrom(GraphNode other) {
    if (kind != other.kind) {
      return "it is another kind of step";
    }
    if (!Arrays.equals(after, other.after)) {
      return "it comes after other steps";
    }
    if (works.size() != other.works.size()) {
      return "it has " + works.size() + " operations instead of " + other.works.size();
    }
    for (int i = 0; i < works.size(); i++) {
      HostWork mine = works.get(i);
      HostWork theirs = other.works.get(i);
      if (mine.communicator != theirs.communicator) {
        return "it is on communicator "
            + mine.communicator.name()
            + " instead of "
            + theirs.communicator.name();
      }
      if (mine.code() != theirs.code()) {
        return "it is "
            + mine.kind.label()
            + " instead of "
            + theirs.kind.label()
            + ", or of another type, reduction or root";
      }
      if (mine.order != theirs.order) {
        return "it was called as operation " + mine.order + " instead of " + theirs.order;
      }
    }
    return null;
  }

  boolean uses(Object root) {
    if (task.uses(root)) {
      return true;
    }
    for (HostWork work : works) {
      if (isPart(work.send, root)
          || isPart(work.recv, root)
          || isPart(work.op.deviceScalar(), root)) {
        return true;
      }
    }
    return false;
  }

  /** Whether {@code owner} is the buffer {@code root} or a slice of it. */
  static boolean isPart(@Nullable Object owner, Object root) {
    return owner == root || owner instanceof HostBuffer part && part.root() == root;
  }

  /** Whether a buffer of this node was closed. */
  boolean usesClosed() {
    if (isClosed(task.sourceOwner) || isClosed(task.targetOwner)) {
      return true;
    }
    for (HostWork work : works) {
      if (isClosed(work.send) || isClosed(work.recv) || isClosed(work.op.deviceScalar())) {
        return true;
      }
    }
    return false;
  }

  private static boolean isClosed(@Nullable Object owner) {
    return owner instanceof HostBuffer buffer && buffer.isClosed()
        || owner instanceof HostPinnedBuffer pinned && pinned.isClosed();
  }
}
