package io.nccl4j.internal.diagnose;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.property.Property;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The catalogue of NCCL's variables, and how misspelt ones find their name. */
class NcclVariableTest {
  @Test
  void entriesAreWhole() {
    assertTrue(NcclVariable.all().size() >= 290, () -> NcclVariable.all().size() + " variables");
    NcclVariable.all()
        .values()
        .forEach(
            variable -> {
              assertTrue(variable.name().matches("NCCL_[A-Z0-9_]+"), variable::toString);
              assertFalse(variable.text().isEmpty(), variable::toString);
              assertTrue(variable.since() >= 20400, variable::toString);
              assertTrue(
                  variable.removed() == 0 || variable.removed() > variable.since(),
                  variable::toString);
            });
  }

  /** What this project reads or advises is a variable that there is. */
  @Test
  void whatOptionsNameIsThere() {
    for (NcclOptions.Option option : NcclOptions.Option.values()) {
      if (!option.variable().isEmpty()) {
        NcclVariable variable = NcclVariable.all().get(option.variable());
        assertTrue(variable != null && variable.removed() == 0, option::variable);
      }
    }
    for (String name : List.of("NCCL_SHM_DISABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_LEVEL")) {
      assertTrue(NcclVariable.all().containsKey(name), name);
    }
  }

  @Test
  void releasesAreNumbersAsNcclCounts() {
    NcclVariable copies = NcclVariable.all().get("NCCL_SHM_USE_CUDA_MEMCPY");
    assertEquals(21304, copies.since());
    assertEquals(23007, copies.removed());
    assertEquals("2.30.7", NcclVariable.release(23007));
  }

  @ParameterizedTest
  @CsvSource({
    "NCCL_CUMEM_ENABEL, NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLED, NCCL_NVLS_ENABLE",
    "NCCL_BUFSIZE, NCCL_BUFFSIZE",
    "NCCL_SHM_DISABLED, NCCL_SHM_DISABLE",
    "NCCL_MAX_P2P_PEERS,",
    "NCCL_SOMETHING_ELSE,"
  })
  void misspeltNamesFindTheirOwn(String name, String near) {
    Optional<String> nearest = NcclVariable.nearest(name, NcclVariable.all().keySet());
    assertEquals(Optional.ofNullable(near), nearest);
  }

  @Test
  void distanceIsAMetricOfNames() {
    Property.holds(
        200,
        draw -> {
          String a = draw.letters("a", 8);
          String b = draw.letters("b", 8);
          assertEquals(NcclVariable.distance(a, b), NcclVariable.distance(b, a));
          assertEquals(a.equals(b), NcclVariable.distance(a, b) == 0);
          assertTrue(NcclVariable.distance(a, b) <= Math.max(a.length(), b.length()));
          assertTrue(NcclVariable.distance(a, b) >= Math.abs(a.length() - b.length()));
          assertEquals(1, NcclVariable.distance(a, a + "x"));
        });
  }
}
