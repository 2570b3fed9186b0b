package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.host.memory.HostMemory;
import io.nccl4j.internal.spi.BackendProvider;
import io.nccl4j.internal.spi.BackendRuntime;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import java.util.List;

/** The host backend as a service: it can always be used. */
public final class HostProvider implements BackendProvider {
  /** The one that {@link java.util.ServiceLoader} makes. */
  public HostProvider() {}

  @Override
  public Backend backend() {
    return Backend.HOST;
  }

  @Override
  public int preference() {
    return 0;
  }

  @Override
  public BackendInfo info() {
    return HostInfo.collect();
  }

  @Override
  public List<BackendInfo.TuningInfo> tuning(int nranks, CommunicatorConfig config) {
    return HostTuning.collect(nranks, config);
  }

  @Override
  public MemoryPrediction predictMemory(MemoryQuery query) {
    return HostMemory.predict(query);
  }

  @Override
  public BackendRuntime open() {
    return new HostBackend();
  }
}
