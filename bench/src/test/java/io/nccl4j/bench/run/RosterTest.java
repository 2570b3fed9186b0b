package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.bench.result.RankInfo;
import java.io.ByteArrayOutputStream;
import java.util.List;
import org.junit.jupiter.api.Test;

class RosterTest {
  @Test
  void recordsSurviveTheTrip() {
    List<RankInfo> ranks =
        List.of(
            new RankInfo(0, 0, 12, "alpha", 3, "host", "Prozessor mit Ümlaut"),
            new RankInfo(1, 0, 4_194_304, "beta", 0, "cuda", ""));
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    ranks.forEach(rank -> bytes.writeBytes(Roster.encode(rank)));
    assertEquals(ranks, Roster.decode(bytes.toByteArray()));
  }

  @Test
  void aNameTooLongIsCut() {
    RankInfo rank = new RankInfo(0, 0, 1, "h", 0, "host", "x".repeat(1000));
    String name = Roster.decode(Roster.encode(rank)).getFirst().deviceName();
    assertEquals("x".repeat(name.length()), name);
  }
}
