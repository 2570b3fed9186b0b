package io.nccl4j.management;

import io.nccl4j.memory.MemoryReport;
import java.util.List;

/** This process, {@code io.nccl4j:type=Process}, as long as it has a {@link CommunicatorMXBean}. */
public interface ProcessMXBean {
  /** Version of nccl4j. */
  String getVersion();

  /** Number of communicators that are MXBeans; each rank counts. */
  int getCommunicatorCount();

  /**
   * Memory that was taken on the devices of these communicators, by owner, purpose and place:
   * heaps, pools, buffers of the program and the communicators' own.
   */
  List<MemoryReport.Line> getMemory();
}
