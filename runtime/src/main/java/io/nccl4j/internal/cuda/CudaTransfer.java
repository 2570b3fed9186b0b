package io.nccl4j.internal.cuda;

import io.nccl4j.internal.schedule.GraphNode;
import io.nccl4j.internal.spi.Resource;
import java.util.List;

/** A copy, a fill or a kernel in a captured graph. */
record CudaTransfer(String kind, List<Resource> resources) implements GraphNode.Transfer {
  static final String COPY = "copy";
  static final String FILL = "fill";
  static final String KERNEL = "kernel";
}
