package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Processes that meet over TCP and take each other for processes of two hosts: what they compute,
 * what they hold, and what they say when one of them is killed.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class HostsTest {
  private static final List<String> HOSTS = List.of("a", "a", "b", "b");

  /** What one detection may take on a busy machine. */
  private static final double WORST_MILLIS = 2000;

  private static final List<ChildJvm> RANKS = new ArrayList<>();

  /** Whether the processes can serve another test. */
  private static boolean areFree;

  @BeforeEach
  void start() throws Exception {
    if (!areFree) {
      end();
      for (String host : HOSTS) {
        RANKS.add(start(host));
      }
      for (ChildJvm rank : RANKS) {
        rank.expect("ready");
      }
    }
    areFree = false;
  }

  private static ChildJvm start(String host) {
    return ChildJvm.start(Map.of("NCCL4J_HOSTID", host), RankMain.class);
  }

  @AfterAll
  static void end() {
    RANKS.forEach(ChildJvm::close);
    RANKS.clear();
  }

  /** Closes the communicator of all, so that the next test has them. */
  private void leave() throws Exception {
    tell("close");
    answers("closed");
    areFree = true;
  }

  private void join() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST, UniqueId.Reach.NETWORK);
    for (int rank = 0; rank < RANKS.size(); rank++) {
      RANKS.get(rank).tell("join " + id + " " + RANKS.size() + " " + rank);
    }
    answers("joined");
  }

  private void tell(String command) throws Exception {
    for (ChildJvm rank : RANKS) {
      rank.tell(command);
    }
  }

  private List<String> answers(String prefix) throws Exception {
    List<String> answers = new ArrayList<>();
    for (ChildJvm rank : RANKS) {
      answers.add(rank.expect(prefix));
    }
    return answers;
  }

  @ParameterizedTest(name = "rank {0} of sums of {1}")
  @CsvSource({"0, 1", "2, 300000"})
  void aKilledProcessIsNamedOnAllHosts(int victim, int count) throws Exception {
    kill(victim, count);
  }

  @Tag("long")
  @ParameterizedTest(name = "rank {0} of sums of {1}")
  @CsvSource({"2, 1", "3, 1", "1, 300000"})
  void whicheverProcessIsKilledIsNamedOnAllHosts(int victim, int count) throws Exception {
    kill(victim, count);
  }

  private void kill(int victim, int count) throws Exception {
    join();
    tell("loop " + count);
    answers("looping");
    long start = System.nanoTime();
    RANKS.get(victim).kill();
    for (int rank = 0; rank < RANKS.size(); rank++) {
      if (rank == victim) {
        continue;
      }
      String[] words = RANKS.get(rank).expect("failed").split(" ", 4);
      String all = "rank " + rank + ": " + String.join(" ", words);
      assertEquals("PeerFailedException", words[1], all);
      assertEquals(Integer.toString(victim), words[2], all);
      double millis = (Long.parseLong(words[0]) - start) / 1e6;
      assertTrue(millis < WORST_MILLIS, all + ": " + millis + " ms");
    }
    ChildJvm killed = RANKS.remove(victim);
    leave();
    killed.close();
    RANKS.add(victim, start(HOSTS.get(victim)));
    RANKS.get(victim).expect("ready");
  }

  @Test
  void communicatorsSayWhichRanksShareAHost() throws Exception {
    join();
    tell("hosts");
    for (String answer : answers("hosts")) {
      assertEquals(
          List.of("[[0, 1], [2, 3]]", "[[0], [1]]", "[[0, 1]]"),
          Pattern.compile("ranks=(\\[\\[.*?]]), network=")
              .matcher(answer)
              .results()
              .map(found -> found.group(1))
              .toList());
      assertEquals(2, answer.split("network=netty \\(TCP\\)", -1).length - 1, answer);
      assertTrue(answer.endsWith("network=, networkInterface=, address=]"), answer);
    }
    leave();
  }

  @Test
  void everyOperationGivesTheSameEverywhere() throws Exception {
    join();
    for (int salt = 0; salt < 4; salt++) {
      tell("trials " + (1 + 700 * salt) + " " + salt);
      assertEquals(1, answers("agreed").stream().distinct().count());
    }
    tell("splits 5");
    answers("split");
    leave();
  }

  @Test
  void whatTheyHoldIsGivenBack() throws Exception {
    for (int round = 0; round < 4; round++) {
      join();
      tell("trials 1000 1");
      answers("agreed");
      leave();
      if (round == 1) {
        tell("held");
        answers("held");
      }
    }
    tell("same");
    for (ChildJvm rank : RANKS) {
      String answer = rank.expectAny("same", "more");
      assertTrue(answer.startsWith("same"), answer);
    }
  }
}
