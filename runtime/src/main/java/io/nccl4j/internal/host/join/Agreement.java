package io.nccl4j.internal.host.join;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Lets all ranks of a communicator go on with something, or none: each says in an exchange whether
 * it can, and if one cannot, all hear which one and why. Takes no memory of the heap, whose lack
 * may be the reason. Used by one thread.
 */
final class Agreement {
  /** Bytes of a reason; within what travels without the sender's memory being looked at. */
  private static final int REASON_BYTES = 1024;

  private final Communicator communicator;
  private final Health health;
  private final String what;
  private boolean refused;

  Agreement(Communicator communicator, Health health, String what) {
    this.communicator = communicator;
    this.health = health;
    this.what = what;
  }

  /**
   * Exchanges a few longs with all ranks, blocking.
   *
   * @param refusal why this rank cannot go on; null if it can
   * @return {@code nranks · values.length} longs in rank order
   * @throws NcclException the refusal, here; on other ranks {@code PeerFailedException} with the
   *     rank and the reason. The communicator stays usable. Or why that one has failed.
   */
  long[] reach(@Nullable NcclException refusal, long... values) {
    try {
      return exchange(refusal, values);
    } catch (NcclException e) {
      if (refusal != null && e != refusal) {
        refusal.addSuppressed(e);
        throw refusal;
      }
      throw e;
    }
  }

  /** Whether a rank has refused; then all ranks have read so. */
  boolean isRefused() {
    return refused;
  }

  private long[] exchange(@Nullable NcclException refusal, long[] values) {
    int nranks = communicator.nranks();
    int width = 1 + values.length;
    Arena arena = Arena.ofAuto();
    MemorySegment mine = arena.allocate(ValueLayout.JAVA_LONG, width);
    MemorySegment all = arena.allocate(ValueLayout.JAVA_LONG, (long) nranks * width);
    mine.set(ValueLayout.JAVA_LONG, 0, refusal == null ? 0 : 1);
    MemorySegment.copy(values, 0, mine, ValueLayout.JAVA_LONG, Long.BYTES, values.length);
    run(
        mine,
        all,
        (from, to, stream) -> communicator.allGather(from, to, width, DataType.INT64, stream));
    long[] answers = new long[nranks * values.length];
    int refuser = -1;
    for (int k = 0; k < nranks; k++) {
      long at = (long) k * width;
      if (refuser < 0 && all.getAtIndex(ValueLayout.JAVA_LONG, at) != 0) {
        refuser = k;
      }
      MemorySegment.copy(
          all,
          ValueLayout.JAVA_LONG,
          (at + 1) * Long.BYTES,
          answers,
          k * values.length,
          values.length);
    }
    if (refuser >= 0) {
      refused = true;
      String reason = reason(arena, refuser, refusal);
      throw refusal != null ? refusal : Wording.refused(what, refuser, communicator.name(), reason);
    }
    return answers;
  }

  /** The first refusing rank's reason, from that rank. */
  private String reason(Arena arena, int refuser, @Nullable NcclException own) {
    MemorySegment text = arena.allocate(REASON_BYTES);
    if (own != null && refuser == communicator.rank()) {
      byte[] bytes = own.problem().getBytes(StandardCharsets.UTF_8);
      MemorySegment.copy(
          bytes, 0, text, ValueLayout.JAVA_BYTE, 0, Math.min(bytes.length, REASON_BYTES));
    }
    run(
        text,
        text,
        (from, to, stream) ->
            communicator.broadcast(from, to, REASON_BYTES, DataType.UINT8, refuser, stream));
    byte[] bytes = text.toArray(ValueLayout.JAVA_BYTE);
    int length = 0;
    while (length < bytes.length && bytes[length] != 0) {
      length++;
    }
    return Failures.printable(Arrays.copyOf(bytes, length));
  }

  private interface Call {
    void issue(DeviceBuffer from, DeviceBuffer to, Stream stream);
  }

  /** Runs one operation to its end. If that fails here alone, it fails for all. */
  private void run(MemorySegment from, MemorySegment to, Call call) {
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer in = communicator.device().wrap(from);
        DeviceBuffer out = communicator.device().wrap(to)) {
      try {
        call.issue(in, out, stream);
        stream.synchronize();
      } catch (InterruptedWaitException e) {
        // The other ranks wait for what comes next, and nobody could go on with it later.
        health.fail(Interrupts.asFailure(e));
        throw e;
      }
    } catch (NcclException e) {
      health.fail(Interrupts.asFailure(e));
      throw e;
    } catch (RuntimeException | Error e) {
      NcclException failure =
          new SystemErrorException(what + " failed: " + e, "see the cause").causedBy(e);
      health.fail(failure);
      throw failure;
    }
  }
}
