package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.bootstrap.TwoNamespaces;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * The link between two machines is cut so that nobody is told: both sides notice by themselves,
 * whatever they are doing, long before any deadline. Two ranks on either side, in processes.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class CutLinkTest {
  private static final int NRANKS = 4;
  private static final int PORT = 29_401;

  /** What noticing takes, as documented, and what a busy machine may add. */
  private static final double WORST_SECONDS = 3 + 2;

  private static @Nullable TwoNamespaces machines;

  private final List<ChildJvm> ranks = new ArrayList<>();

  @BeforeAll
  static void connect() throws Exception {
    machines = TwoNamespaces.require("flt", "10.213.78");
  }

  @AfterAll
  static void disconnect() throws Exception {
    if (machines != null) {
      machines.remove();
    }
  }

  @BeforeEach
  void start() throws Exception {
    TwoNamespaces both = Objects.requireNonNull(machines);
    both.mend();
    for (int rank = 0; rank < NRANKS; rank++) {
      Map<String, String> environment =
          Map.of(
              "NCCL4J_RENDEZVOUS", "tcp://" + both.address(0) + ":" + PORT,
              "NCCL4J_SECRET", "of the test that cuts the link",
              "NCCL4J_NRANKS", "" + NRANKS,
              "NCCL4J_RANK", "" + rank);
      ranks.add(ChildJvm.startInside(both.inside(rank / 2), environment, RankMain.class));
    }
    for (ChildJvm rank : ranks) {
      rank.expect("ready");
    }
    tell("launch");
    for (ChildJvm rank : ranks) {
      rank.expect("joined");
    }
  }

  @AfterEach
  void end() {
    ranks.forEach(ChildJvm::close);
  }

  private void tell(String command) throws IOException {
    for (ChildJvm rank : ranks) {
      rank.tell(command);
    }
  }

  @Test
  void itIsNoticedOnBothSidesWhileDataIsOut() throws Exception {
    itIsNoticedOnBothSides("loop 2000000", "looping");
  }

  @ParameterizedTest
  @Tag("long")
  @CsvSource({
    "loop 2, looping",
    "replay 2 1000000000, replaying",
    "dividing, dividing",
    "wait 3, waiting"
  })
  void itIsNoticedOnBothSides(String command, String begun) throws Exception {
    // A rank that waits for a message waits alone, and the leaders have nothing to do.
    boolean waits = command.startsWith("wait");
    List<ChildJvm> busy = waits ? ranks.subList(1, 2) : ranks;
    for (ChildJvm rank : busy) {
      rank.tell(command);
    }
    for (ChildJvm rank : busy) {
      rank.expect(begun);
    }
    TwoNamespaces both = Objects.requireNonNull(machines);
    for (int machine = 0; machine < 2; machine++) {
      while (!both.run(machine, "ss -tno").contains("timer:(keepalive")) {
        Thread.onSpinWait();
      }
    }
    long start = System.nanoTime();
    both.cut();
    for (ChildJvm rank : busy) {
      check(ranks.indexOf(rank), rank.expect("failed"), start);
    }
    if (waits) {
      // The next operation of those that did nothing ends at once.
      for (int rank : new int[] {0, 2, 3}) {
        ranks.get(rank).tell("sum 2 1");
      }
      for (int rank : new int[] {0, 2, 3}) {
        check(rank, ranks.get(rank).expect("failed"), start);
      }
    }
  }

  private static void check(int rank, String failed, long start) {
    String[] words = failed.split(" ", 4);
    String all = "rank " + rank + ": " + failed;
    assertEquals("PeerFailedException", words[1], all);
    int lost = Integer.parseInt(words[2]);
    assertTrue(lost / 2 != rank / 2, all);
    double seconds = (Long.parseLong(words[0]) - start) / 1e9;
    assertTrue(seconds < WORST_SECONDS, all + ": " + seconds + " s");
  }
}
