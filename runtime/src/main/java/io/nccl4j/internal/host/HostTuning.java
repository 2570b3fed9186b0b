package io.nccl4j.internal.host;

import io.nccl4j.BackendInfo.TuningInfo;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.join.Joining;
import java.util.List;

/** How the host backend carries out operations, for people. */
final class HostTuning {
  private HostTuning() {}

  static List<TuningInfo> collect(int nranks, CommunicatorConfig config) {
    Joining.requireRanks(nranks);
    return Tuning.of(config, nranks, false).ranges().stream().map(HostTuning::info).toList();
  }

  private static TuningInfo info(Tuning.Range range) {
    return new TuningInfo(
        range.operation().label(),
        range.memory(),
        range.least(),
        range.most(),
        range.algorithm().label(),
        range.protocol().label(),
        range.chunk(),
        range.why());
  }
}
