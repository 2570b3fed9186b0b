package io.nccl4j.internal.cuda;

import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** A captured CUDA graph, and what is known of its steps. It owns the graph. */
final class CudaGraph implements Graph, CudaHolders.Holder {
  private final CudaDevice device;
  private final MemorySegment handle;
  private final List<CudaNode> nodes;
  private final List<CudaCommunicator> communicators;
  private boolean closed;
  private boolean destroyed;

  private CudaGraph(CudaDevice device, MemorySegment handle, List<CudaNode> nodes) {
    this.device = device;
    this.handle = handle;
    this.nodes = nodes;
    this.communicators = CudaExecutableGraph.communicatorsOf(nodes);
  }

  static CudaGraph of(CudaDevice device, MemorySegment handle, List<CudaNode> nodes) {
    CudaGraph graph = new CudaGraph(device, handle, nodes);
    graph.communicators.forEach(communicator -> communicator.holders().add(graph));
    return graph;
  }

  /** Where the capture began. */
  CudaDevice device() {
    return device;
  }

  MemorySegment handle() {
    requireOpen();
    if (destroyed) {
      communicators.forEach(CudaCommunicator::requireReady);
    }
    return handle;
  }

  List<CudaNode> nodes() {
    requireOpen();
    return nodes;
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException("the graph is closed", "capture a new one");
    }
  }

  @Override
  public int nodeCount() {
    return nodes.size();
  }

  @Override
  public synchronized ExecutableGraph instantiate() {
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
    if (!closed) {
      closed = true;
      communicatorEnds();
      communicators.forEach(communicator -> communicator.holders().remove(this));
    }
  }
}
