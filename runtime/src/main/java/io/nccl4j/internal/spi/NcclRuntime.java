package io.nccl4j.internal.spi;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclCommunicator;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** What only a backend over NCCL can do. */
public interface NcclRuntime extends BackendRuntime {
  /** See {@link NcclCommunicator#join}. */
  NcclCommunicator joinGrowing(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config);

  /** See {@link NcclCommunicator#simulate}. */
  Duration simulate(Runnable operations);

  /** See {@link io.nccl4j.cuda.NcclParameters#keys()}. */
  List<String> parameterKeys();

  /** See {@link io.nccl4j.cuda.NcclParameters#get}. */
  Optional<String> parameter(String key);

  /** What NCCL takes at least in {@code /dev/shm} of a process with a rank on each GPU; bytes. */
  long sharedMemoryNeed();
}
