package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** A captured CUDA graph, and what is known of its steps. It owns the graph. */
final class CudaGraph implements CapturedGraph<CudaWork>, CudaHolders.Holder {
  private final CudaGpu device;
  private final MemorySegment handle;
  private final List<GraphNode<CudaWork>> nodes;
  private final List<CudaCommunicator> communicators;
  private boolean destroyed;

  private CudaGraph(CudaGpu device, MemorySegment handle, List<GraphNode<CudaWork>> nodes) {
    this.device = device;
    this.handle = handle;
    this.nodes = nodes;
    this.communicators = CudaExecutableGraph.communicatorsOf(nodes);
  }

  static CudaGraph of(CudaGpu device, MemorySegment handle, List<GraphNode<CudaWork>> nodes) {
    CudaGraph graph = new CudaGraph(device, handle, nodes);
    graph.communicators.forEach(communicator -> communicator.holders().add(graph));
    return graph;
  }

  /** Where the capture began. */
  CudaGpu device() {
    return device;
  }

  MemorySegment handle() {
    if (destroyed) {
      communicators.forEach(CudaCommunicator::requireReady);
    }
    return handle;
  }

  @Override
  public List<GraphNode<CudaWork>> nodes() {
    return nodes;
  }

  @Override
  public synchronized GraphEngine<CudaWork> instantiate() {
    return CudaExecutableGraph.of(this);
  }

  @Override
  public synchronized void communicatorEnds() {
    if (!destroyed) {
      destroyed = true;
      Driver.check(Cuda.cuGraphDestroy(handle), "cuGraphDestroy");
    }
  }

  @Override
  public void close() {
    communicatorEnds();
    communicators.forEach(communicator -> communicator.holders().remove(this));
  }
}
