package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import java.util.OptionalDouble;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class LineProbeTest {
  static final int MOST_TRIES = 20;

  static boolean possible() throws InterruptedException {
    boolean[] bound = new boolean[1];
    Thread.ofPlatform().start(() -> bound[0] = Device.get(Backend.HOST, 0).bindThread()).join();
    return bound[0] && Runtime.getRuntime().availableProcessors() > 1;
  }

  @Test
  void measuresWhereThreadsCanBeBound() throws InterruptedException {
    boolean possible = possible();
    OptionalDouble nanos = LineProbe.nanos(2);
    // A busy machine may not run both threads at once while they try.
    for (int i = 0; possible && nanos.isEmpty() && i < MOST_TRIES; i++) {
      nanos = LineProbe.nanos(2);
    }
    assertEquals(possible, nanos.isPresent());
    // From two threads of one core to two sockets, and a machine that is busy with something else.
    assertTrue(
        nanos.isEmpty() || nanos.getAsDouble() > 1 && nanos.getAsDouble() < 1e6, nanos::toString);
  }
}
