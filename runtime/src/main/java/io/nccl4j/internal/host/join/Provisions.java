package io.nccl4j.internal.host.join;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What one rank of a communicator takes for itself, before the ranks agree to go on: none of it can
 * be refused any more when others count on this rank.
 *
 * @param account has all of it
 * @param fifo the works
 * @param fifoBooking of the FIFO
 * @param staging the staging area; null if no rank is in another process and none is forced
 * @param <W> the works
 */
public record Provisions<W extends Work>(
    MemoryBook.Account account,
    WorkFifo<W> fifo,
    MemoryBook.Booking fifoBooking,
    HostHeap.@Nullable Block staging) {
  /**
   * Takes what the rank needs.
   *
   * @param works makes one
   * @throws SystemErrorException if the memory is not there
   */
  public static <W extends Work> Provisions<W> take(
      int rank,
      Device device,
      CommunicatorConfig config,
      String name,
      boolean spansProcesses,
      Supplier<W> works) {
    WorkFifo<W> fifo = newFifo(config.fifoBytes(), works);
    ProcessMemory self = ProcessMemory.self();
    MemoryBook.Account account = self.book().open("communicator " + name + " rank " + rank, device);
    MemoryBook.Booking booking =
        account.book(MemoryPurpose.FIFO, MemoryPlace.HEAP, (long) fifo.capacity() * Work.BYTES);
    try {
      HostHeap.Block staging =
          spansProcesses || Tuning.isStaged(config)
              ? self.heap().allocate(account, MemoryPurpose.STAGING, Layout.STAGING_BYTES)
              : null;
      return new Provisions<>(account, fifo, booking, staging);
    } catch (RuntimeException | Error e) {
      booking.release();
      account.close();
      throw e;
    }
  }

  private static <W extends Work> WorkFifo<W> newFifo(long bytes, Supplier<W> works) {
    try {
      return new WorkFifo<>(bytes, works);
    } catch (OutOfMemoryError e) {
      throw new SystemErrorException(
              "the Java heap has no room for a work FIFO of " + bytes + " B: " + e.getMessage(),
              "lower fifo-bytes, or raise -Xmx")
          .causedBy(e);
    }
  }

  /** Gives them back: no communicator has them. */
  public void giveBack() {
    if (staging != null) {
      ProcessMemory.self().heap().free(staging);
    }
    fifoBooking.release();
    account.close();
  }
}
