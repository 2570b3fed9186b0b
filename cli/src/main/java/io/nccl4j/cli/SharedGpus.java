package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Feature;
import java.util.HashMap;
import java.util.Map;

/** How the ranks of a test share GPUs where there are fewer, as far as NCCL can be made to. */
final class SharedGpus {
  private static final String SHARED_GPU_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE";
  private static final String HOST_ID_VARIABLE = "NCCL_HOSTID";

  private SharedGpus() {}

  /** A context whose processes may have several ranks on a GPU, if NCCL can do that. */
  static Context allowedIn(Context context, Backend backend) {
    if (backend == Backend.HOST) {
      return context;
    }
    Map<String, String> environment = new HashMap<>(context.environment());
    environment.put(SHARED_GPU_VARIABLE, "1");
    return context.withEnvironment(environment);
  }

  /** An NCCL that takes one rank a GPU is told that the processes are on different machines. */
  static Map<String, String> ofProcess(Backend backend, int rank) {
    if (backend == Backend.HOST
        || Backend.CUDA.info().devices().size() > 1
        || Backend.CUDA.info().hasFeature(Feature.SHARED_GPU)) {
      return Map.of();
    }
    return Map.of(HOST_ID_VARIABLE, "nccl4j-selftest-" + rank);
  }
}
