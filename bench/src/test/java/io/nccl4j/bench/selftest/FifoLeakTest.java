package io.nccl4j.bench.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Tier;
import io.nccl4j.bench.selftest.FifoLeak.Result;
import io.nccl4j.bench.selftest.FifoLeak.Scenario;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.FieldSource;

@Timeout(120)
class FifoLeakTest {
  private static final int ITERATIONS = 300;
  static final List<Integer> RANKS = Tier.choose(List.of(2), List.of(1, 2, 4));

  @ParameterizedTest
  @FieldSource("RANKS")
  void nothingIsLost(int nranks) throws Exception {
    List<String> heard = new ArrayList<>();
    List<Result> results =
        FifoLeak.onThreads(
            Backend.HOST,
            nranks,
            ITERATIONS,
            (scenario, ranks, done, of, seconds) -> {
              assertEquals(nranks, ranks);
              if (done == of) {
                heard.add(scenario + " " + of);
              }
            });
    assertEquals(List.of("PUBLISHED 300", "SMALLEST 300", "CAPTURED 30"), heard);
    assertEquals(List.of(Scenario.values()), results.stream().map(Result::scenario).toList());
    for (Result result : results) {
      boolean captures = result.scenario() == Scenario.CAPTURED;
      long loop = captures ? 2 * ITERATIONS / 10 : ITERATIONS;
      // Two plain ones before; the captured one is launched before and after.
      assertEquals(4 + loop, withoutBarriers(result), result::toString);
      assertEquals(captures ? 2 + ITERATIONS / 10 : 2, result.launches(), result::toString);
      assertEquals(0, result.occupiedBytes(), result::toString);
      assertEquals(0, result.wrong(), result::toString);
      assertTrue(result.passed(), result::toString);
    }
    assertEquals(4096, results.get(1).fifoBytes());
  }

  /** Measuring memory takes two barriers. */
  private static long withoutBarriers(Result result) {
    return result.operations() - 2;
  }

  @Test
  void whateverIsLostFails() {
    long mib = 1 << 20;
    assertTrue(result(0, 0, mib, mib, 0).passed());
    assertTrue(result(0, 0, -8 * mib, -mib, 0).passed());
    assertFalse(result(128, 0, 0, 0, 0).passed());
    assertFalse(result(0, 1, 0, 0, 0).passed());
    assertFalse(result(0, 0, mib + 1, 0, 0).passed());
    assertFalse(result(0, 0, 0, mib + 1, 0).passed());
    assertFalse(result(0, 0, 0, 0, 1).passed());
  }

  private static Result result(long occupied, long unfinished, long heap, long shared, long wrong) {
    return new Result(
        Scenario.PUBLISHED, 2, 6, 2, 1, 4096, 128, 0, occupied, unfinished, heap, shared, wrong);
  }
}
