package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.life.Health;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Of several ranks that failed, the one with which it began gives the reason. */
@Timeout(30)
@Tag("parallel")
final class FailureOriginTest {
  @Test
  void whoAbortedSaysSoThoughAnotherRankOnlyMissesIt() {
    try (HostRanks ranks = new HostRanks(3, 64)) {
      Health first = ranks.get(0).health();
      Health second = ranks.get(1).health();
      // Neither learns of one failure before there are both.
      synchronized (first) {
        synchronized (second) {
          ranks.get(2).abort(new IllegalStateException("no more data"));
          first.fail(new PeerFailedException(List.of(2), "rank 2 does not answer", "see there"));
        }
      }
      AbortedException e = assertThrows(AbortedException.class, () -> ranks.sum(1, 4));
      assertEquals(List.of(2), e.failedRanks());
      assertTrue(e.getMessage().contains("no more data"), e::getMessage);
    }
  }

  @Test
  void whoIsMissedAndSaysNothingIsNamedByWhoMissesIt() {
    try (HostRanks ranks = new HostRanks(3, 64)) {
      ranks
          .get(0)
          .health()
          .fail(new PeerFailedException(List.of(2), "rank 2 does not answer", "see there"));
      PeerFailedException e = assertThrows(PeerFailedException.class, () -> ranks.sum(1, 4));
      assertEquals(List.of(2), e.failedRanks());
      assertTrue(e.getMessage().contains(" reports that rank 2 is gone: "), e::getMessage);
    }
  }
}
