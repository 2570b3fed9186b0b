package io.nccl4j.internal.host.memory;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import org.junit.jupiter.api.Test;

/** A peer becomes quiet while somebody looks who is not. */
class QuarantineRaceTest {
  /** Its last step ends after so many looks. */
  private static final class Peer implements Quarantine.Peers {
    private int looks;

    Peer(int looks) {
      this.looks = looks;
    }

    @Override
    public String name() {
      return "comm-1";
    }

    @Override
    public boolean peersAreQuiet() {
      return looks-- <= 0;
    }

    @Override
    public String restless() {
      return peersAreQuiet() ? "" : "rank 1";
    }
  }

  @Test
  void nobodyIsRefusedForAPeerThatHasBecomeQuiet() {
    for (int looks = 0; looks < 5; looks++) {
      Quarantine quarantine = new Quarantine();
      try (DeviceBuffer buffer = Device.get(Backend.HOST, 0).allocate(64)) {
        quarantine.add((HostBuffer) buffer, new Peer(looks), true);
        // One look notes the buffer, one finds the peer, and one names it.
        if (looks < 3) {
          quarantine.requireQuiet((HostBuffer) buffer, "copyFrom");
          assertTrue(quarantine.isQuiet(((HostBuffer) buffer).address(), 64), "after " + looks);
        } else {
          InvalidUsageException refused =
              assertThrows(
                  InvalidUsageException.class,
                  () -> quarantine.requireQuiet((HostBuffer) buffer, "copyFrom"));
          assertTrue(refused.getMessage().contains("rank 1"), refused.getMessage());
          assertEquals(looks > 3, !quarantine.isQuiet(((HostBuffer) buffer).address(), 64));
        }
      }
    }
  }
}
