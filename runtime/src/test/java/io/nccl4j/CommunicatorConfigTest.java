package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.cuda.NcclOptions;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Settings keep their sources, wherever they come from. */
class CommunicatorConfigTest {
  @Test
  void budgetsComeFromTheEnvironment() {
    CommunicatorConfig config =
        CommunicatorConfig.builder(
                Map.of("NCCL4J_MEMORY_BUDGET", "3G", "NCCL4J_MEMORY_POLICY", "strict"))
            .build();
    assertEquals(3L << 30, config.memoryBudget());
    assertEquals(MemoryPolicy.STRICT, config.memoryPolicy());
    assertTrue(
        config
            .settings()
            .contains(new Setting("memory-budget", "3221225472 B", "NCCL4J_MEMORY_BUDGET")));
    NcclOptions lower = NcclOptions.of(config).with(Map.of(NcclOptions.Option.MAX_CTAS, 4), "test");
    CommunicatorConfig lowered = config.toBuilder().with(lower).build();
    assertEquals(config.settings(), lowered.settings().subList(0, config.settings().size()));
    assertTrue(lowered.settings().contains(new Setting("nccl.maxCTAs", "4", "test")));
    for (String wrong : new String[] {"", "0", "much", "1T", "-1", "99999999999G", "1.5G"}) {
      assertThrows(
          InvalidArgumentException.class,
          () -> CommunicatorConfig.builder(Map.of("NCCL4J_MEMORY_BUDGET", wrong)),
          wrong);
    }
  }

  @Test
  void laterOptionsReplaceThoseOfTheSameClass() {
    NcclOptions first = NcclOptions.builder().maxCtas(3).build();
    NcclOptions second = NcclOptions.builder().minCtas(2).build();
    CommunicatorConfig config = CommunicatorConfig.builder().with(first).with(second).build();
    assertEquals(List.of(second), config.options());
    assertEquals(Optional.of(second), config.options(NcclOptions.class));
    assertEquals(Optional.empty(), CommunicatorConfig.defaults().options(NcclOptions.class));
    assertThrows(InvalidArgumentException.class, () -> CommunicatorConfig.builder().with(null));
  }
}
