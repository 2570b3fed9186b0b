package io.nccl4j.internal.schedule;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.internal.spi.Resource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One step of a captured graph, and the steps it comes after, by their places in the capture.
 *
 * @param <W> the backend's work
 */
public final class GraphNode<W extends Work> {
  /** A step that is no plan of works: a copy, a fill or a kernel. */
  public interface Transfer {
    /** What kind of step it is; only the same kind can replace it. */
    String kind();

    /** The buffers and kernels that it uses. */
    List<Resource> resources();
  }

  private final List<W> works;
  private final @Nullable Transfer transfer;
  private final int[] after;
  private final List<Resource> resources;

  private GraphNode(List<W> works, @Nullable Transfer transfer, int[] after) {
    this.works = works;
    this.transfer = transfer;
    this.after = after;
    this.resources = transfer == null ? resourcesOf(works) : transfer.resources();
    resources.forEach(Resource::capture);
  }

  static <W extends Work> GraphNode<W> plan(List<W> works, int[] after) {
    return new GraphNode<>(works, null, after);
  }

  static <W extends Work> GraphNode<W> transfer(Transfer transfer, int[] after) {
    return new GraphNode<>(List.of(), transfer, after);
  }

  private static List<Resource> resourcesOf(List<? extends Work> works) {
    List<Resource> resources = new ArrayList<>();
    for (Work work : works) {
      for (DeviceBuffer buffer :
          new @Nullable DeviceBuffer[] {work.send, work.recv, work.op.deviceScalar()}) {
        if (buffer instanceof Resource used) {
          resources.add(used);
        }
      }
    }
    return List.copyOf(resources);
  }

  /** The works of a plan, in the order of their calls; empty for other steps. */
  public List<W> works() {
    return works;
  }

  /** The copy, fill or kernel; null for a plan. */
  public @Nullable Transfer transfer() {
    return transfer;
  }

  /** The steps it comes after. */
  public int[] after() {
    return after;
  }

  /** What it uses. */
  public List<Resource> resources() {
    return resources;
  }

  /** What keeps this step from taking the place of {@code other}; null if nothing does. */
  @Nullable String differenceFrom(GraphNode<W> other) {
    if (!kind().equals(other.kind())) {
      return "it is another kind of step";
    }
    if (!Arrays.equals(after, other.after)) {
      return "it comes after other steps";
    }
    if (works.size() != other.works.size()) {
      return "it has " + works.size() + " operations instead of " + other.works.size();
    }
    for (int i = 0; i < works.size(); i++) {
      String difference = difference(works.get(i), other.works.get(i));
      if (difference != null) {
        return difference;
      }
    }
    return null;
  }

  private String kind() {
    return transfer == null ? "plan" : transfer.kind();
  }

  private static @Nullable String difference(Work mine, Work theirs) {
    if (mine.owner() != theirs.owner()) {
      return "it is on communicator "
          + mine.owner().name()
          + " instead of "
          + theirs.owner().name();
    }
    if (mine.code() != theirs.code()) {
      return "it is "
          + mine.operation.label()
          + " instead of "
          + theirs.operation.label()
          + ", or of another type, reduction or root";
    }
    return mine.order == theirs.order
        ? null
        : "it was called as operation " + mine.order + " instead of " + theirs.order;
  }
}
