package io.nccl4j.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.UniqueId;
import io.nccl4j.Unstable;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** What the runtime does for this package; see {@link io.nccl4j.Provider#get(Class)}. */
@Unstable
public interface NcclProvider {
  /** See {@link NcclCommunicator#join}. */
  NcclCommunicator joinGrowing(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config);

  /** See {@link NcclCommunicator#simulate}. */
  Duration simulate(Runnable operations);

  /** See {@link NcclParameters#keys()}. */
  List<String> parameterKeys();

  /** See {@link NcclParameters#get}. */
  Optional<String> parameter(String key);
}
