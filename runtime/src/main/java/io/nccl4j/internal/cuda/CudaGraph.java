package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** A captured CUDA graph, and what is known of its steps. It owns the graph. */
final class CudaGraph implements CapturedGraph<CudaWork>, CudaHolders.Holder {
  private final Gpu gpu;
  private final MemorySegment handle;
  private final List<GraphNode<CudaWork>> nodes;
  private final List<CudaRank> ranks;
  private boolean destroyed;

  private CudaGraph(Gpu gpu, MemorySegment handle, List<GraphNode<CudaWork>> nodes) {
    this.gpu = gpu;
    this.handle = handle;
    this.nodes = nodes;
    this.ranks = CudaExecutableGraph.ranksOf(nodes);
  }

  static CudaGraph of(Gpu gpu, MemorySegment handle, List<GraphNode<CudaWork>> nodes) {
    CudaGraph graph = new CudaGraph(gpu, handle, nodes);
    graph.ranks.forEach(rank -> rank.holders().add(graph));
    return graph;
  }

  /** Where the capture began. */
  Gpu gpu() {
    return gpu;
  }

  MemorySegment handle() {
    if (destroyed) {
      ranks.forEach(CudaRank::requireReady);
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
    ranks.forEach(rank -> rank.holders().remove(this));
  }
}
