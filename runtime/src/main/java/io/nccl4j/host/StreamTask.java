package io.nccl4j.host;

import io.nccl4j.host.kernel.Copies;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * An entry of a stream's queue that is not a plan of works: a graph, or a copy, fill or event.
 * Entries are used again and again.
 */
final class StreamTask {
  static final int WORKS = 0;
  static final int COPY = 1;
  static final int FILL = 2;
  static final int RECORD = 3;
  static final int WAIT = 4;
  static final int GRAPH = 5;

  int kind;
  MemorySegment source = MemorySegment.NULL;
  MemorySegment target = MemorySegment.NULL;
  long sourceOffset;
  long targetOffset;
  long bytes;
  byte value;
  @Nullable HostEvent event;
  long generation;

  @Nullable HostExecutableGraph graph;

  /** Where the graph's communicators counted from at this launch. */
  long[] bases = {};

  boolean begun;

  /** The buffers a copy or fill uses, for refusing to close them. */
  @Nullable Object sourceOwner;

  @Nullable Object targetOwner;

  /** Carries out a copy or fill. */
  void move() {
    if (kind == COPY) {
      Copies.copy(source, sourceOffset, target, targetOffset, bytes);
    } else {
      Copies.fill(target, targetOffset, bytes, value);
    }
  }

  /** Whether a copy or fill uses a buffer or a part of it. */
  boolean uses(Object root) {
    return GraphNode.isPart(sourceOwner, root) || GraphNode.isPart(targetOwner, root);
  }

  void clear() {
    source = MemorySegment.NULL;
    target = MemorySegment.NULL;
    event = null;
    graph = null;
    sourceOwner = null;
    targetOwner = null;
  }
}
