package io.nccl4j.bench.program;

import java.util.List;

/** The programs there are. */
public final class Programs {
  private Programs() {}

  /** All programs of nccl-tests, in the order of their usual lists. */
  public static List<Program> all() {
    return List.of(
        new AllReduceProgram(),
        SingleCall.allGather(),
        SingleCall.reduceScatter(),
        SingleCall.broadcast(),
        SingleCall.reduce(),
        new AllToAllProgram(),
        new AllToAllVProgram(),
        SingleCall.gather(),
        SingleCall.scatter(),
        new SendRecvProgram(),
        new HyperCubeProgram());
  }
}
