package io.nccl4j.internal.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

final class DeferralTest {
  /** A report of memory waits for the ticker's sweep, so as not to count what that is freeing. */
  @Test
  void whatIsBeingRunStillWaits() {
    Deferral deferral = new Deferral();
    List<Boolean> seen = new ArrayList<>();
    boolean[] safe = {false};
    deferral.add(() -> safe[0], () -> seen.add(deferral.isEmpty()));
    deferral.add(() -> safe[0], () -> seen.add(deferral.isEmpty()));
    deferral.sweep();
    assertEquals(List.of(), seen);
    assertFalse(deferral.isEmpty());
    safe[0] = true;
    deferral.sweep();
    assertEquals(List.of(false, false), seen);
    assertTrue(deferral.isEmpty());
  }
}
