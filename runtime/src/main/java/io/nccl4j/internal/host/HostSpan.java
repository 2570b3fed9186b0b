package io.nccl4j.internal.host;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.join.Joining;

/** Where a communicator that spans hosts gets its part on this one. */
public final class HostSpan {
  private HostSpan() {}

  /**
   * As {@link Communicator#initRank}, where some ranks are on other hosts.
   *
   * @param nranks of all hosts
   * @param id by which the ranks of this host meet
   * @param here those ranks, ascending
   * @param outside the way to the others; closed with the communicator, or when this fails
   */
  public static Communicator attach(
      Device device,
      int nranks,
      UniqueId id,
      int[] here,
      int rank,
      CommunicatorConfig config,
      Outside outside) {
    HostDevice own = (HostDevice) device;
    try {
      return HostCommunicator.attach(
          Joining.join(own, own.account(), nranks, id, here, rank, outside, config, HostWork::new));
    } catch (RuntimeException | Error e) {
      outside.close();
      throw e;
    }
  }
}
