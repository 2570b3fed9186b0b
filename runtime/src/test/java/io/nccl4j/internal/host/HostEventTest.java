package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** Deadlines of those who wait for an event. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class HostEventTest {
  private static final Duration SHORT = Duration.ofMillis(200);

  private static void assertText(NcclException e, String... parts) {
    for (String part : parts) {
      assertTrue(e.getMessage().contains(part), e.getMessage());
    }
  }

  /** The operation before the event has the deadline of its communicator, for all that wait. */
  @Test
  void whoWaitsBehindAnOperationHasItsDeadline() {
    CommunicatorConfig config = HostRanks.patient().operationTimeout(SHORT).build();
    try (HostRanks ranks = new HostRanks(2, 64, config);
        Stream second = ranks.get(0).device().newStream();
        Stream third = ranks.get(0).device().newStream();
        DeviceBuffer buffer = ranks.get(0).device().allocate(1);
        Event event = ranks.get(0).device().newEvent();
        Event behind = ranks.get(0).device().newEvent()) {
      ranks.sum(0, 1);
      ranks.streams.getFirst().record(event);
      second.waitFor(event);
      second.record(behind);
      third.waitFor(behind);
      third.fill(buffer, (byte) 1);
      assertText(
          assertThrows(DeadlineException.class, () -> third.synchronize(Duration.ofMillis(20))),
          "waiting for an event of another stream",
          "allReduce(1 int32, sum) #1",
          "rank 1");
      var future = behind.toFuture();
      long start = System.nanoTime();
      assertText(assertThrows(DeadlineException.class, third::synchronize), "allReduce(1 int32");
      assertText(assertThrows(DeadlineException.class, event::synchronize), "allReduce(1 int32");
      CompletionException e = assertThrows(CompletionException.class, future::join);
      assertText((NcclException) e.getCause(), "allReduce(1 int32");
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < 10_000, millis + " ms");
    }
  }

  /** A copy or fill has none; who waits for one that is never finished is told so all the same. */
  @Test
  void whoWaitsBehindAFillThatDoesNotEndHasTheDefaultDeadline() {
    HostDevice device = new HostDevice(0);
    CommunicatorConfig limits = HostRanks.patient().operationTimeout(SHORT).build();
    try (Stream stuck = device.newStream();
        Stream waiting = HostStream.open(device, device.ranks(), limits);
        DeviceBuffer buffer = device.allocate(1);
        Event event = device.newEvent()) {
      HostStream queue = HostStream.of(stuck);
      while (!queue.tryOwn()) {
        Thread.onSpinWait();
      }
      try {
        stuck.fill(buffer, (byte) 1);
        stuck.record(event);
        waiting.waitFor(event);
        assertText(
            assertThrows(DeadlineException.class, waiting::synchronize),
            "200 ms",
            "an event of another stream",
            "a copy, fill or event");
      } finally {
        queue.disown();
      }
      stuck.synchronize();
    }
  }

  /** A failure belongs to what lies behind it, and not to records that were complete before. */
  @Test
  void aFailureFailsNoEarlierRecord() {
    try (HostRanks ranks = new HostRanks(2, 64);
        Stream other = ranks.get(0).device().newStream();
        Event before = ranks.get(0).device().newEvent();
        Event after = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.getFirst();
      stream.record(before);
      ranks.sum(0, 1);
      stream.record(after);
      ranks.get(0).abort();
      assertThrows(NcclException.class, stream::synchronize);
      before.synchronize();
      before.toFuture().join();
      other.waitFor(before);
      other.synchronize();
      assertThrows(NcclException.class, after::synchronize);
      assertThrows(CompletionException.class, () -> after.toFuture().join());
    }
  }
}
