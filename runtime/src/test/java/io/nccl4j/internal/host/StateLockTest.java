package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Any thread may ask for the state, also while another one finds that a peer has failed. */
@Timeout(30)
final class StateLockTest {
  @Test
  void askingForTheStateTakesNoLockThatFindingAFailureNeeds() throws Exception {
    Communicators all = Communicator.initAll(Backend.HOST, 2);
    HostCommunicator communicator = (HostCommunicator) all.get(0);
    CompletableFuture<Communicator.State> state = new CompletableFuture<>();
    all.get(1).abort();
    Thread asking = new Thread(() -> state.complete(communicator.state()));
    asking.setDaemon(true);
    // As the ticker does: it holds the health, and then finds the communicator idle.
    Thread finding =
        new Thread(
            () -> {
              synchronized (communicator.health()) {
                asking.start();
                while (asking.getState() != Thread.State.BLOCKED) {
                  Thread.onSpinWait();
                }
                communicator.own().becomeQuietIfIdle();
              }
            });
    finding.setDaemon(true);
    finding.start();
    assertTrue(finding.join(java.time.Duration.ofSeconds(10)), "deadlock");
    assertEquals(Communicator.State.ABORTED, state.get(10, TimeUnit.SECONDS));
    all.close();
  }
}
