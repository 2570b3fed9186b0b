package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.Processes;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * Tells NCCL which algorithm and protocol are forced. It reads them from the process's environment
 * when it makes communicators: so the first one of a process decides for all.
 */
public final class NcclTuning {
  private static final String ALGO = "NCCL_ALGO";
  private static final String PROTO = "NCCL_PROTO";

  /** What NCCL has read; empty where it was not set. */
  private static final Map<String, String> READ = new HashMap<>();

  private NcclTuning() {}

  /**
   * Sets what a communicator to be made forces.
   *
   * @throws InvalidUsageException if NCCL has read something else
   */
  public static synchronized void apply(CommunicatorConfig config) {
    require(ALGO, "algo", config.algorithm());
    require(PROTO, "proto", config.protocol());
    set(ALGO, config.algorithm());
    set(PROTO, config.protocol());
  }

  private static void require(String variable, String setting, Optional<String> wanted) {
    String read = READ.get(variable);
    if (read != null && wanted.isPresent() && !wanted.get().equals(read)) {
      throw new InvalidUsageException(
          setting
              + " is "
              + wanted.get()
              + ", but a communicator of this process was made with "
              + variable
              + (read.isEmpty() ? " unset" : "=" + read)
              + ", and NCCL is loaded with that",
          "force the same for all communicators of a process, from the first one on");
    }
  }

  private static void set(String variable, Optional<String> wanted) {
    if (!READ.containsKey(variable)) {
      String own = System.getenv(variable);
      wanted.ifPresent(value -> Processes.setenv(variable, value));
      READ.put(variable, wanted.orElse(own == null ? "" : own));
    }
  }
}
