package io.nccl4j.internal.host;

import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostPinnedBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** One step of a graph: a plan of works, a copy or a fill, with the nodes it comes after. */
final class GraphNode {
  final int kind;
  final int[] after;
  final HostWork[] works;

  /** The copy or fill; for a plan an empty one. */
  final StreamTask task;

  /** A plan. */
  GraphNode(HostWork[] works, int[] after) {
    this(StreamTask.WORKS, after, works, new StreamTask());
  }

  /** A copy or fill, which is the node's from now on. */
  GraphNode(StreamTask task, int[] after) {
    this(task.kind, after, new HostWork[0], task);
  }

  private GraphNode(int kind, int[] after, HostWork[] works, StreamTask task) {
    this.kind = kind;
    this.after = after;
    this.works = works;
    this.task = task;
    for (Object owner : owners()) {
      if (owner instanceof HostBuffer buffer) {
        buffer.capture();
      }
    }
  }

  /** The buffers it uses. */
  List<Object> owners() {
    List<Object> owners = new ArrayList<>();
    owners.add(task.sourceOwner);
    owners.add(task.targetOwner);
    for (HostWork work : works) {
      owners.add(work.send);
      owners.add(work.recv);
      owners.add(work.op.deviceScalar());
    }
    owners.removeIf(Objects::isNull);
    return owners;
  }

  /**
   * A node with works of its own, so that executable graphs of one capture do not share progress.
   */
  GraphNode copy() {
    if (kind != StreamTask.WORKS) {
      return this;
    }
    return new GraphNode(Arrays.stream(works).map(HostWork::copy).toArray(HostWork[]::new), after);
  }

  /** What keeps {@code other} from taking this node's place in an update; null if nothing does. */
  @Nullable String differenceFrom(GraphNode other) {
    if (kind != other.kind) {
      return "it is another kind of step";
    }
    if (!Arrays.equals(after, other.after)) {
      return "it comes after other steps";
    }
    if (works.length != other.works.length) {
      return "it has " + works.length + " operations instead of " + other.works.length;
    }
    for (int i = 0; i < works.length; i++) {
      HostWork mine = works[i];
      HostWork theirs = other.works[i];
      if (mine.communicator != theirs.communicator) {
        return "it is on communicator "
            + mine.communicator.name()
            + " instead of "
            + theirs.communicator.name();
      }
      if (mine.code() != theirs.code()) {
        return "it is "
            + mine.operation.label()
            + " instead of "
            + theirs.operation.label()
            + ", or of another type, reduction or root";
      }
      if (mine.order != theirs.order) {
        return "it was called as operation " + mine.order + " instead of " + theirs.order;
      }
    }
    return null;
  }

  /** Whether {@code owner} is the buffer {@code root} or a slice of it. */
  static boolean isPart(@Nullable Object owner, Object root) {
    return owner == root || owner instanceof HostBuffer part && part.root() == root;
  }

  /** Whether a buffer was closed. */
  static boolean isClosed(Object owner) {
    return owner instanceof HostBuffer buffer && buffer.isClosed()
        || owner instanceof HostPinnedBuffer pinned && pinned.isClosed();
  }
}
