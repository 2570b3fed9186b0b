package io.nccl4j.internal.host;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.Joiner;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.join.Joining;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.util.UUID;

/** Where a communicator that spans hosts gets its part on this one. */
public final class HostSpan {
  private HostSpan() {}

  /** What ranks of all hosts must agree on. */
  public static Joiner joiner(int rank, int nranks) {
    boolean first = rank == 0;
    return new Joiner(
        rank, nranks, ProcessMemory.self().id(), Layout.VERSION, -1, 0, first ? 0 : -1);
  }

  /** As {@link Communicator#initRank}, where all ranks are on this host. */
  public static Communicator attach(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    HostDevice own = (HostDevice) device;
    return HostCommunicator.attach(
        Joining.join(own, own.account(), nranks, id, rank, config, HostWork::new));
  }

  /**
   * The same where some ranks are on other hosts.
   *
   * @param nranks of all hosts
   * @param id by which the ranks of this host meet
   * @param here those ranks, ascending
   * @param outside the way to the others; closed with the communicator, or when this fails
   * @param common name that all hosts know it by
   */
  public static Communicator attach(
      Device device,
      int nranks,
      UniqueId id,
      int[] here,
      int rank,
      CommunicatorConfig config,
      Outside outside,
      UUID common) {
    HostDevice own = (HostDevice) device;
    try {
      return HostCommunicator.attach(
          Joining.join(
              own, own.account(), nranks, id, here, rank, outside, common, config, HostWork::new));
    } catch (RuntimeException | Error e) {
      outside.close();
      throw e;
    }
  }
}
