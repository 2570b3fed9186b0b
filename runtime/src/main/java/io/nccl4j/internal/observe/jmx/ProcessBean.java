package io.nccl4j.internal.observe.jmx;

import io.nccl4j.Provider;
import io.nccl4j.management.ProcessMXBean;
import io.nccl4j.memory.MemoryReport;
import java.util.List;

/** This process. */
final class ProcessBean implements ProcessMXBean {
  private final PlatformBeans beans;

  ProcessBean(PlatformBeans beans) {
    this.beans = beans;
  }

  @Override
  public String getVersion() {
    return Provider.get().version();
  }

  @Override
  public int getCommunicatorCount() {
    return beans.shown().size();
  }

  /** What belongs to the process as a whole is part of each device's report. */
  @Override
  public List<MemoryReport.Line> getMemory() {
    return beans.shown().stream()
        .map(source -> source.communicator().device())
        .distinct()
        .flatMap(device -> MemoryReport.of(device).lines().stream())
        .distinct()
        .toList();
  }
}
