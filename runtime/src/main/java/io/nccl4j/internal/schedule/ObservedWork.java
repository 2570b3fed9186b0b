package io.nccl4j.internal.schedule;

import io.nccl4j.internal.observe.Observed;
import io.nccl4j.internal.spi.EngineStream;

/** A work as observers see it. */
final class ObservedWork implements Observed {
  private final Work work;

  ObservedWork(Work work) {
    this.work = work;
  }

  @Override
  public String communicatorName() {
    return work.owner().name();
  }

  @Override
  public int rank() {
    return work.owner().rank();
  }

  @Override
  public int nranks() {
    return work.owner().nranks();
  }

  @Override
  public String label() {
    return work.operation.label();
  }

  @Override
  public int kind() {
    return work.operation.number();
  }

  @Override
  public boolean isCollective() {
    return work.isCollective();
  }

  @Override
  public long sequence() {
    return work.seq;
  }

  @Override
  public String typeLabel() {
    return work.type.label();
  }

  @Override
  public String reductionLabel() {
    return work.operation.reducing() ? work.op.label() : "";
  }

  @Override
  public int rootOrPeer() {
    return work.operation.isRooted() ? work.root : -1;
  }

  @Override
  public long elements() {
    return work.count;
  }

  @Override
  public long bytes() {
    return work.bytes(rank(), nranks());
  }

  @Override
  public long streamNumber() {
    EngineStream stream = work.stream;
    return stream == null ? 0 : stream.number();
  }

  @Override
  public String protocol() {
    return work.protocol();
  }

  @Override
  public String awaited() {
    return work.awaited();
  }
}
