package io.nccl4j.internal.spi;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.UniqueId;
import java.util.List;

/** One backend: its devices, and how ranks join through it. */
public interface BackendRuntime {
  /** Which backend this is, never {@link Backend#AUTO}. */
  Backend backend();

  /** The device with this ordinal; the same object at every call. */
  Device device(int ordinal);

  /** All devices, or on the host one per available processor. */
  List<Device> devices();

  /** A new rendezvous token of {@value UniqueId#BYTES} bytes, for ranks as far apart as that. */
  byte[] createUniqueId(UniqueId.Reach reach);

  /**
   * Refuses a number of ranks in one process that cannot be, before anything is made for them.
   *
   * @throws io.nccl4j.InvalidArgumentException if there cannot be so many
   */
  void checkRanks(int nranks);

  /**
   * Puts the calling thread onto the processor that serves a device best, and leaves it as free as
   * it was; best effort.
   */
  void placeThread(Device device);

  /** Communicators for ranks that all live in this process. */
  List<Communicator> initAll(List<Device> devices, CommunicatorConfig config);

  /** Joins as one rank and waits for the others. */
  Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config);

  /** Joins with one or more ids, none of them null or there twice. */
  default Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    if (ids.size() > 1) {
      throw new InvalidUsageException(
          "the " + backend().label() + " backend takes one unique id, not " + ids.size(),
          "pass one id: its ranks are on one machine");
    }
    return initRank(device, nranks, ids.getFirst(), rank, config);
  }
}
