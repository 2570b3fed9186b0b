package io.nccl4j.internal.host.memory;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.MemoryPolicy;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.memory.Budget;
import io.nccl4j.internal.memory.Budget.Limit;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPrediction.Basis;
import io.nccl4j.memory.MemoryPrediction.Line;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayList;
import java.util.List;

/** The memory that this backend takes for rank 0, which has the control block of all. */
public final class HostMemory {
  private HostMemory() {}

  /**
   * Refuses a communicator that would take too much: nothing of it can be lowered.
   *
   * @param perProcess ranks of this process
   * @throws io.nccl4j.memory.MemoryBudgetException if a rank would take more than it may
   */
  public static void require(Device device, int nranks, int perProcess, CommunicatorConfig config) {
    if (config.memoryPolicy() == MemoryPolicy.OFF) {
      return;
    }
    List<Limit> limits = new ArrayList<>();
    if (config.memoryBudget() != CommunicatorConfig.NO_BUDGET) {
      limits.add(new Limit("memory-budget", config.memoryBudget(), true));
    }
    if (Device.memoryBudget() != CommunicatorConfig.NO_BUDGET) {
      long taken = ProcessMemory.self().book().bytes(device, ProcessMemory.self().heap().place());
      limits.add(
          new Limit(
              "what is left of the budget of " + device, Device.memoryBudget() - taken, true));
    }
    String name = config.name();
    Budget.decide(
        name == null ? "a communicator of " + nranks + " ranks" : "communicator " + name,
        MemoryQuery.of(device.backend())
            .with(Lever.NRANKS, nranks)
            .with(Lever.RANKS_PER_PROCESS, perProcess)
            .with(config),
        HostMemory::predict,
        MemoryPlace.SHARED,
        limits,
        config.memoryPolicy(),
        List.of());
  }

  /** What rank 0 of a communicator will take. */
  public static MemoryPrediction predict(MemoryQuery query) {
    return new MemoryPrediction(query, lines(query));
  }

  private static List<Line> lines(MemoryQuery query) {
    int nranks = (int) Math.min(query.value(Lever.NRANKS), Layout.MAX_RANKS);
    boolean processes = nranks > query.value(Lever.RANKS_PER_PROCESS);
    List<Line> lines = new ArrayList<>();
    lines.add(
        line(
            MemoryPurpose.CONTROL,
            MemoryPlace.SHARED,
            When.JOIN,
            ControlBlock.bytes(nranks),
            "one for all ranks, on rank 0"));
    if (processes) {
      lines.add(
          line(
              MemoryPurpose.STAGING,
              MemoryPlace.SHARED,
              When.JOIN,
              Layout.STAGING_BYTES,
              "ranks are in several processes"));
      long wanted = query.value(Lever.PEERS) + query.value(Lever.SEND_PEERS);
      long peers = Math.min(wanted, nranks - 1L);
      if (peers > 0) {
        lines.add(
            line(
                MemoryPurpose.MESSAGE,
                MemoryPlace.SHARED,
                When.EXCHANGE,
                peers * Layout.MESSAGE_BYTES,
                "sends of private buffers to " + peers + " peers"));
      }
    }
    lines.add(
        line(
            MemoryPurpose.FIFO,
            MemoryPlace.HEAP,
            When.JOIN,
            query.value(Lever.FIFO),
            "fifo-bytes"));
    return lines;
  }

  private static Line line(
      MemoryPurpose purpose, MemoryPlace place, When when, long bytes, String source) {
    return new Line(purpose, place, when, bytes, Basis.OWN, source);
  }
}
