package io.nccl4j.internal.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryPolicy;
import io.nccl4j.internal.memory.Budget.Decision;
import io.nccl4j.internal.memory.Budget.Limit;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import io.nccl4j.property.Property;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Which levers are taken, and when a communicator is refused. */
class BudgetTest {
  private static final long MIB = 1 << 20;
  private static final MemoryQuery QUERY = MemoryQuery.of(Backend.CUDA);

  private static final List<Budget.Step> STEPS =
      List.of(Budget.set(Lever.NVLS, 0), Budget.halve(Lever.MAX_CTAS, 32, 1));

  private static MemoryPrediction predict(MemoryQuery query) {
    return new MemoryPrediction(query, NcclMemory.lines(query));
  }

  private static long bytes(MemoryQuery query) {
    return predict(query).bytes(MemoryPlace.DEVICE);
  }

  private static Decision decide(long limit, boolean firm, MemoryPolicy policy) {
    return Budget.decide(
        "it",
        QUERY,
        BudgetTest::predict,
        MemoryPlace.DEVICE,
        List.of(new Limit("the limit", limit, firm), new Limit("another", 1L << 40, true)),
        policy,
        STEPS);
  }

  /** A step is taken only if it is needed, and no step is taken when all fits. */
  @Test
  void stepsAreTakenInOrder() {
    long all = bytes(QUERY);
    long withoutNvls = bytes(QUERY.with(Lever.NVLS, 0));
    Decision fitting = decide(all, true, MemoryPolicy.STRICT);
    assertNull(fitting.exceeded());
    assertEquals(all, fitting.first());
    Decision first = decide(all - 1, true, MemoryPolicy.AUTO);
    assertEquals(0, first.query().value(Lever.NVLS));
    assertFalse(first.query().isSet(Lever.MAX_CTAS));
    assertEquals(all, first.first());
    assertTrue(first.fits());
    Decision second = decide(withoutNvls - 1, false, MemoryPolicy.AUTO);
    assertEquals(0, second.query().value(Lever.NVLS));
    assertEquals(16, second.query().value(Lever.MAX_CTAS));
    Decision nothing = decide(1, false, MemoryPolicy.AUTO);
    assertEquals(1, nothing.query().value(Lever.MAX_CTAS));
    assertFalse(nothing.fits());
  }

  /** Whatever the limit: what is decided keeps it, or it is refused, or it was no firm one. */
  @Test
  void limitIsKept() {
    Property.holds(
        200,
        draw -> {
          int mib = draw.integer("mib", 1, 3000);
          boolean firm = draw.flag("firm");
          boolean strict = draw.flag("strict");
          long limit = mib * MIB;
          MemoryPolicy policy = strict ? MemoryPolicy.STRICT : MemoryPolicy.AUTO;
          try {
            Decision decision = decide(limit, firm, policy);
            assertEquals(decision.prediction().bytes(MemoryPlace.DEVICE) <= limit, decision.fits());
            assertTrue(decision.fits() || !firm);
            assertEquals(bytes(QUERY) > limit, decision.exceeded() != null);
          } catch (MemoryBudgetException e) {
            assertTrue(strict || firm);
            MemoryPrediction refused = e.prediction().orElseThrow();
            assertTrue(refused.bytes(MemoryPlace.DEVICE) > limit);
            assertTrue(e.getMessage().contains(refused.toString()));
          }
        });
  }

  @Test
  void settings() {
    assertEquals(CommunicatorConfig.NO_BUDGET, CommunicatorConfig.builder().build().memoryBudget());
    assertThrows(
        InvalidArgumentException.class, () -> CommunicatorConfig.builder().memoryBudget(0));
    assertThrows(InvalidArgumentException.class, () -> MemoryPolicy.ofLabel("some"));
    assertEquals(MemoryPolicy.STRICT, MemoryPolicy.ofLabel("strict"));
  }
}
