package io.nccl4j.internal.host;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.UniqueId;
import java.util.ServiceLoader;

/** How ranks of several machines come into a communicator, found as a service. */
public interface SpanProvider {
  /** As {@link Communicator#initRank}, with an id of {@link UniqueId.Reach#NETWORK}. */
  Communicator join(Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config);

  /** The one that there is. */
  static SpanProvider find() {
    return ServiceLoader.load(SpanProvider.class, SpanProvider.class.getClassLoader())
        .findFirst()
        .orElseThrow(
            () ->
                new BackendUnavailableException(
                    "this application has nothing that reaches other machines",
                    "use all of the nccl4j-runtime jar, with its services"));
  }
}
