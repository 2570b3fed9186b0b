package io.nccl4j.internal.cuda.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.cuda.MemoryFeature;
import org.junit.jupiter.api.Test;

/** Why a device lacks something. */
class MemorySupportTest {
  @Test
  void whatMulticastLacksIsSaid() {
    assertEquals("", multicast(true, 1, 2));
    requireText(multicast(false, 1, 8), "no cuMulticastCreate");
    requireText(multicast(true, -1, 8), "does not know");
    requireText(multicast(true, 1, 1), "one device");
  }

  private static String multicast(boolean hasCall, int says, int devices) {
    return MemorySupport.reason(MemoryFeature.MULTICAST, hasCall, says, devices);
  }

  private static void requireText(String reason, String text) {
    assertTrue(reason.contains(text), reason);
  }
}
