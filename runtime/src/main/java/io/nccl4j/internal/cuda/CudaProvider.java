package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.cuda.memory.CudaMemory;
import io.nccl4j.internal.spi.BackendProvider;
import io.nccl4j.internal.spi.BackendRuntime;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import java.util.List;

/** The cuda backend as a service; libraries are loaded when it is opened, or asked for. */
public final class CudaProvider implements BackendProvider {
  /** The one that {@link java.util.ServiceLoader} makes. */
  public CudaProvider() {}

  @Override
  public Backend backend() {
    return Backend.CUDA;
  }

  @Override
  public int preference() {
    return 1;
  }

  @Override
  public BackendInfo info() {
    return CudaInfo.collect();
  }

  /** NCCL chooses, and says so with {@code NCCL_DEBUG=INFO}, {@code NCCL_DEBUG_SUBSYS=TUNING}. */
  @Override
  public List<BackendInfo.TuningInfo> tuning(int nranks, CommunicatorConfig config) {
    return List.of();
  }

  @Override
  public MemoryPrediction predictMemory(MemoryQuery query) {
    return CudaMemory.predict(query, true);
  }

  @Override
  public BackendRuntime open() {
    return new CudaBackend();
  }
}
