package io.nccl4j.internal.observe.jmx;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.NcclException;
import io.nccl4j.internal.observe.Beans;
import io.nccl4j.management.CommunicatorMXBean;
import io.nccl4j.memory.MemoryReport;
import java.util.List;

/** One rank of a communicator. */
final class CommunicatorBean implements CommunicatorMXBean {
  private final Beans.Source source;
  private final Communicator communicator;

  CommunicatorBean(Beans.Source source) {
    this.source = source;
    communicator = source.communicator();
  }

  @Override
  public String getName() {
    return communicator.name();
  }

  @Override
  public int getRank() {
    return communicator.rank();
  }

  @Override
  public int getRankCount() {
    return communicator.nranks();
  }

  @Override
  public String getBackend() {
    return communicator.device().backend().label();
  }

  @Override
  public String getDevice() {
    return communicator.device().toString();
  }

  @Override
  public Communicator.State getState() {
    return communicator.state();
  }

  @Override
  public String getFailure() {
    NcclException failure = source.failure().get();
    return failure == null ? "" : failure.toString();
  }

  @Override
  public List<Integer> getFailedRanks() {
    NcclException failure = source.failure().get();
    return failure == null ? List.of() : failure.failedRanks();
  }

  @Override
  public CommunicatorCounters getCounters() {
    return communicator.counters();
  }

  @Override
  public List<MemoryReport.Line> getMemory() {
    return MemoryReport.of(communicator).lines();
  }

  @Override
  public List<List<Integer>> getHosts() {
    return communicator.hosts().map(CommunicatorHosts::ranks).orElse(List.of());
  }

  @Override
  public String getNetwork() {
    return communicator.hosts().map(CommunicatorHosts::network).orElse("");
  }
}
