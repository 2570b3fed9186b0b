package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.bootstrap.RelayedId;
import io.nccl4j.internal.net.Relay;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The rows of {@link HostFaultTest} whose faults need processes. A process that is killed is named
 * by all others, at once; one that is stopped and goes on before a deadline has passed changes
 * nothing. The ranks that are left give everything back. Kills during small and large operations
 * are in {@link HostsTest}.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class ProcessFaultTest {
  private static final List<String> HOSTS = List.of("a", "a", "b", "b");

  /** The lowest rank of its host, which carries data for the other one, too. */
  private static final int VICTIM = 2;

  /** What one detection may take on a busy machine. */
  private static final double WORST_MILLIS = 2000;

  private static final long STOPPED_NANOS = 300_000_000;

  /** From row to row; those that were killed are replaced. */
  private static final List<ChildJvm> ranks = new ArrayList<>();

  private boolean isGood;

  @BeforeEach
  void startThoseThatLack() throws Exception {
    for (int rank = 0; rank < HOSTS.size(); rank++) {
      if (rank == ranks.size()) {
        ranks.add(start(rank));
      }
    }
  }

  private static ChildJvm start(int rank) throws Exception {
    ChildJvm started = ChildJvm.start(Map.of("NCCL4J_HOSTID", HOSTS.get(rank)), RankMain.class);
    started.expect("ready");
    return started;
  }

  /** After a row that failed nobody knows what processes are still doing. */
  @AfterEach
  void startAfresh() {
    if (!isGood) {
      end();
    }
  }

  @AfterAll
  static void end() {
    ranks.forEach(ChildJvm::close);
    ranks.clear();
  }

  private interface Expectation {
    void check(int rank, ChildJvm process) throws Exception;
  }

  private static void others(Expectation expectation) throws Exception {
    for (int rank = 0; rank < ranks.size(); rank++) {
      if (rank != VICTIM) {
        expectation.check(rank, ranks.get(rank));
      }
    }
  }

  private static void tell(String command) throws IOException {
    for (ChildJvm rank : ranks) {
      rank.tell(command);
    }
  }

  private static void answers(String answer) throws Exception {
    for (ChildJvm rank : ranks) {
      rank.expect(answer);
    }
  }

  private static void tellToJoin(UniqueId id, int rank) throws Exception {
    ranks.get(rank).tell("join " + id + " " + ranks.size() + " " + rank);
  }

  private static void tellToJoin() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST, UniqueId.Reach.NETWORK);
    for (int rank = 0; rank < ranks.size(); rank++) {
      tellToJoin(id, rank);
    }
  }

  private static void join() throws Exception {
    tellToJoin();
    answers("joined");
  }

  /** The last rank does not come. The victim is killed when all the others wait for it. */
  @Test
  void whoIsKilledWhileRanksJoinIsNamed() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST, UniqueId.Reach.NETWORK);
    int last = ranks.size() - 1;
    List<Relay> relays = new ArrayList<>();
    try {
      for (int rank = 0; rank < last; rank++) {
        relays.add(new Relay());
        tellToJoin(RelayedId.through(relays.get(rank), id), rank);
      }
      for (Relay relay : relays) {
        while (relay.carried() < HostFaultTest.JOINED_BYTES) {
          LockSupport.parkNanos(1_000_000);
        }
      }
      long start = System.nanoTime();
      killVictim();
      others(
          (rank, process) -> {
            if (rank != last) {
              assertNamesVictim(rank, process.expect("failed"), start);
            }
          });
    } finally {
      for (Relay relay : relays) {
        relay.close();
      }
    }
    isGood = true;
  }

  private static void killVictim() throws Exception {
    ChildJvm victim = ranks.get(VICTIM);
    victim.kill();
    victim.await();
    ranks.set(VICTIM, start(VICTIM));
  }

  private static void assertNamesVictim(int rank, String failed, long start) {
    String[] words = failed.split(" ", 4);
    String all = "rank " + rank + ": " + failed;
    assertEquals("PeerFailedException", words[1], all);
    assertEquals(Integer.toString(VICTIM), words[2], all);
    double millis = (Long.parseLong(words[0]) - start) / 1e6;
    assertTrue(millis < WORST_MILLIS, all + ": " + millis + " ms");
  }

  @ParameterizedTest
  @ValueSource(strings = {"dividing", "replay 1000000 1000000000"})
  void whoIsKilledIsNamed(String stage) throws Exception {
    kill(stage);
  }

  @Tag("long")
  @Test
  void whoIsKilledAmongSmallSumsIsNamed() throws Exception {
    kill("replay 2 1000000000");
  }

  private void kill(String stage) throws Exception {
    join();
    tell("close");
    answers("closed");
    tell("held");
    answers("held");
    join();
    tell(stage);
    answers(stage.equals("dividing") ? "dividing" : "replaying");
    long start = System.nanoTime();
    killVictim();
    others(
        (rank, process) -> {
          assertNamesVictim(rank, process.expect("failed"), start);
          process.tell("close");
          process.expect("closed");
        });
    others(
        (rank, process) -> {
          process.tell("same");
          String answer = process.expectAny("same", "more");
          assertTrue(answer.startsWith("same"), answer);
        });
    isGood = true;
  }

  @ParameterizedTest
  @CsvSource({"sum 1000000 1, summed 0", "splits 3, split", "replay 2 100, replayed 0"})
  void whoIsStoppedForAWhileChangesNothing(String command, String answer) throws Exception {
    stopForAWhile(command, answer);
  }

  @Tag("long")
  @ParameterizedTest
  @CsvSource({"sum 2 1, summed 0", "trials 100000 1, agreed", "replay 1000000 30, replayed 0"})
  void whateverItIsStoppedInNothingChanges(String command, String answer) throws Exception {
    stopForAWhile(command, answer);
  }

  private void stopForAWhile(String command, String answer) throws Exception {
    join();
    ChildJvm victim = ranks.get(VICTIM);
    boolean hasBegun = command.startsWith("replay");
    if (hasBegun) {
      tell(command);
      victim.expect("replaying");
    }
    victim.stop();
    if (!hasBegun) {
      tell(command);
    }
    LockSupport.parkNanos(STOPPED_NANOS);
    victim.resume();
    answers(answer);
    tell("close");
    answers("closed");
    isGood = true;
  }

  @ParameterizedTest
  @ValueSource(strings = {"killed", "stopped"})
  void closingWaitsForNobody(String fault) throws Exception {
    join();
    tell("sum 100000 1");
    answers("summed 0");
    ChildJvm victim = ranks.get(VICTIM);
    if (fault.equals("killed")) {
      killVictim();
    } else {
      victim.stop();
    }
    long start = System.nanoTime();
    others((rank, process) -> process.tell("close"));
    others((rank, process) -> process.expect("closed"));
    double millis = (System.nanoTime() - start) / 1e6;
    assertTrue(millis < WORST_MILLIS, millis + " ms");
    if (fault.equals("stopped")) {
      victim.resume();
      victim.tell("close");
      victim.expect("closed");
    }
    isGood = true;
  }

  @ParameterizedTest
  @ValueSource(ints = {VICTIM, 3})
  void whoIsStoppedWhileRanksJoinIsWaitedFor(int stopped) throws Exception {
    ranks.get(stopped).stop();
    tellToJoin();
    LockSupport.parkNanos(STOPPED_NANOS);
    ranks.get(stopped).resume();
    answers("joined");
    tell("sum 100000 1");
    answers("summed 0");
    tell("close");
    answers("closed");
    isGood = true;
  }
}
