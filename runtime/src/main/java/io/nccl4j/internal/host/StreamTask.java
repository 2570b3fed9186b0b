package io.nccl4j.internal.host;

import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.schedule.GraphNode;
import io.nccl4j.internal.spi.Resource;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * An entry of a stream's queue that is not a plan of works: a graph, or a copy, fill or event.
 * Entries are used again and again.
 */
final class StreamTask implements GraphNode.Transfer {
  static final int WORKS = 0;
  static final int COPY = 1;
  static final int FILL = 2;
  static final int RECORD = 3;
  static final int WAIT = 4;
  static final int GRAPH = 5;

  /** Most that a step moves: about a millisecond. */
  static final long STEP_BYTES = 4 << 20;

  /** So many bytes may be moved with what comes next in one go. */
  private static final long SMALL_BYTES = 64 << 10;

  int kind;
  MemorySegment source = MemorySegment.NULL;
  MemorySegment target = MemorySegment.NULL;
  long sourceOffset;
  long targetOffset;
  long bytes;
  byte value;

  /** Bytes of a copy or fill that are done. */
  private long moved;

  @Nullable HostEvent event;

  /**
   * The number of a record or of a graph's launch; for a wait, how far {@link #awaited} must get.
   */
  long generation;

  /** The stream that is waited for. */
  @Nullable HostQueue awaited;

  /** Where that one was when it was last looked at, and since when; 0 before. */
  long seen;

  long seenSince;

  @Nullable HostExecutableGraph graph;

  /** Where the graph's communicators counted from at this launch. */
  long[] bases = {};

  boolean begun;

  /** The buffers a copy or fill uses, for refusing to close them. */
  @Nullable Resource sourceOwner;

  @Nullable Resource targetOwner;

  /** Carries out a copy or fill, all of it. */
  void move() {
    move(0, bytes);
  }

  /**
   * Carries out a part of a copy or fill, so that its driver can be interrupted soon.
   *
   * @return false if it must be called again; after a large part it must
   */
  boolean movePart() {
    long part = Math.min(bytes - moved, STEP_BYTES);
    move(moved, part);
    moved += part;
    if (moved < bytes || part > SMALL_BYTES) {
      return false;
    }
    moved = 0;
    return true;
  }

  private void move(long at, long length) {
    if (kind == COPY) {
      Copies.copy(source, sourceOffset + at, target, targetOffset + at, length);
    } else {
      Copies.fill(target, targetOffset + at, length, value);
    }
  }

  /** Whether a copy or fill uses a buffer or a part of it. */
  boolean uses(Object root) {
    return Resource.isPart(sourceOwner, root) || Resource.isPart(targetOwner, root);
  }

  @Override
  public String kind() {
    return kind == COPY ? "copy" : "fill";
  }

  @Override
  public List<Resource> resources() {
    return Stream.of(targetOwner, sourceOwner).filter(Objects::nonNull).toList();
  }

  void clear() {
    source = MemorySegment.NULL;
    target = MemorySegment.NULL;
    moved = 0;
    event = null;
    awaited = null;
    seenSince = 0;
    graph = null;
    sourceOwner = null;
    targetOwner = null;
  }
}
