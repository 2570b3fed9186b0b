package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.bench.machine.CompilerThreads;
import io.nccl4j.bench.output.FirstCallJson;
import io.nccl4j.bench.run.FirstCall.Kind;
import io.nccl4j.bench.run.FirstCall.Summary;
import io.nccl4j.bench.run.FirstCall.Times;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
class FirstCallTest {
  private static final List<Times> COLD =
      List.of(times(Kind.SEND_RECV, 90), times(Kind.SEND_RECV, 70), times(80), times(60));
  private static final List<Times> WARM =
      List.of(times(Kind.SEND_RECV, 3), times(Kind.SEND_RECV, 4), times(40), times(30));

  @TempDir Path folder;

  private static Times times(double first) {
    return times(Kind.ALL_REDUCE, first);
  }

  private static Times times(Kind operation, double first) {
    return new Times(operation, first, 0.5, 2);
  }

  /** Both ranks get the same times, and the operations were called. */
  @Test
  void timesBothOperationsOnBothRanks() throws Exception {
    List<List<Times>> all = new ArrayList<>(List.of(List.of(), List.of()));
    try (Communicators ranks = Communicator.initAll(Backend.HOST, 2)) {
      ranks.run(
          communicator -> all.set(communicator.rank(), FirstCall.onRank(communicator, false)));
      // The first one, those for the compilers, and the steady ones.
      int calls = 1 + Math.max(3000, CompilerThreads.callsToOptimize()) + 4000;
      assertEquals(calls, ranks.get(0).counters().sends());
    }
    assertEquals(all.get(0), all.get(1));
    assertEquals(List.of(Kind.values()), all.get(0).stream().map(Times::operation).toList());
    for (Times times : all.get(0)) {
      assertTrue(times.median() > 0 && times.median() <= times.p99(), times::toString);
      assertTrue(times.first() >= times.median() / 2, times::toString);
    }
  }

  @Test
  void needsTwoRanks() {
    try (Communicators ranks = Communicator.initAll(Backend.HOST, 1)) {
      Communicator alone = ranks.get(0);
      assertThrows(IllegalArgumentException.class, () -> FirstCall.onRank(alone, false));
    }
  }

  @Test
  void timesPassThroughText() {
    assertEquals(times(1.25), Times.parse(times(1.25).format()));
  }

  @Test
  void sumsUp() {
    List<Summary> summaries = FirstCall.summarize(COLD, WARM);
    assertEquals(new Summary(Kind.SEND_RECV, 2, 80, 90, 3.5, 4, 0.5, 2), summaries.get(0));
    assertEquals(6, summaries.get(0).goal());
    assertTrue(summaries.get(0).meetsGoal());
    assertEquals(35, summaries.get(1).warmMedian());
    assertFalse(summaries.get(1).meetsGoal());
    assertEquals(5, new Summary(Kind.ALL_REDUCE, 1, 9, 9, 9, 9, 1, 1).goal());
  }

  @Test
  void writesJson() throws Exception {
    Path file =
        FirstCallJson.write(
            folder.resolve("a.json"), "1.2.3", "cuda", COLD, WARM, FirstCall.summarize(COLD, WARM));
    JsonNode root = new ObjectMapper().readTree(file.toFile());
    assertEquals(3.5, root.at("/results/0/warm_median_us").doubleValue());
    assertTrue(root.at("/results/0/goal_met").booleanValue());
    assertFalse(root.at("/results/1/goal_met").booleanValue());
    assertEquals("cuda", root.get("backend").textValue());
    assertEquals(4, root.get("cold").size());
    assertEquals(60, root.at("/cold/3/first_us").doubleValue());
  }
}
