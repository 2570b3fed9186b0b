package io.nccl4j.internal.host.join;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.NcclException;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.schedule.Work;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/**
 * A rank's place in a communicator that all ranks have agreed to come to.
 *
 * @param part has counted this rank
 * @param provisions what it has taken
 * @param start when the call began, which the init timeout counts from
 * @param whyNever says why a rank that has not come will not come any more; null if it may
 * @param outside its way to ranks on other hosts; null if all are on this one
 * @param <W> the works
 */
public record Place<W extends Work>(
    int rank,
    Device device,
    LocalPart part,
    CommunicatorConfig config,
    String name,
    Provisions<W> provisions,
    long start,
    IntFunction<@Nullable NcclException> whyNever,
    @Nullable Outside outside) {
  /** A place in a communicator of one host. */
  public Place(
      int rank,
      Device device,
      LocalPart part,
      CommunicatorConfig config,
      String name,
      Provisions<W> provisions,
      long start,
      IntFunction<@Nullable NcclException> whyNever) {
    this(rank, device, part, config, name, provisions, start, whyNever, null);
  }

  /** Until when the others must have come. */
  long deadline() {
    // Half the range of the clock is 146 years, and differences stay right.
    return start + Math.min(config.initTimeout().toNanos(), Long.MAX_VALUE / 2);
  }

  /** The rank cannot be made after all. */
  public void giveUp() {
    LocalPart.lost(part.control(), rank);
    part.leave();
    provisions.giveBack();
  }
}
