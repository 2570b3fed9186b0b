package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.bootstrap.ChildJvm;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What ranks in processes of their own learn of each other, which NCCL does not tell them. */
@Tag("process")
class CudaProcessTest {
  private static final int RANKS = 3;
  private static final String ENDLESS = "sums 1000000000";

  /** Deadline of the operations of those that wait in vain, in ms. */
  private static final int SHORT = 1000;

  private static final int LONG = 60_000;

  /** What a death may take to be noticed on a busy machine. */
  private static final long MOST_MILLIS = 5000;

  private final List<ChildJvm> children = new ArrayList<>();

  @AfterEach
  void endChildren() {
    children.forEach(ChildJvm::close);
  }

  /** Ranks in a process each. */
  private void join(int operationMillis) throws Exception {
    StandIn standIn = StandIn.require();
    List<String> options =
        List.of(
            "--enable-native-access=ALL-UNNAMED",
            "-Dnccl4j.cuda.library=" + standIn.cuda(),
            "-Dnccl4j.nccl.library=" + standIn.nccl());
    for (int rank = 0; rank < RANKS; rank++) {
      children.add(ChildJvm.start(options, CudaRankMain.class));
    }
    for (ChildJvm child : children) {
      child.expect("ready");
    }
    children.getFirst().tell("id");
    String id = children.getFirst().expect("id");
    for (int rank = 0; rank < RANKS; rank++) {
      children.get(rank).tell("join " + id + " " + RANKS + " " + rank + " " + operationMillis);
    }
    for (ChildJvm child : children) {
      child.expect("joined");
    }
  }

  private void tellAll(String command) throws IOException {
    for (ChildJvm child : children) {
      child.tell(command);
    }
  }

  private static void requireText(String text, String... words) {
    for (String word : words) {
      assertTrue(text.contains(word), () -> "'" + word + "' is not in: " + text);
    }
  }

  @Test
  void killedRankIsNamed() throws Exception {
    join(LONG);
    tellAll(ENDLESS);
    for (ChildJvm child : children) {
      child.expect("summing");
    }
    long start = System.nanoTime();
    children.get(1).kill();
    for (int rank : new int[] {0, 2}) {
      String failure = children.get(rank).expect("failed");
      requireText(
          failure,
          "PeerFailedException [1]",
          "rank 1 of communicator cuda-",
          "died (process " + children.get(1).pid() + ")");
    }
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    assertTrue(millis < MOST_MILLIS, () -> millis + " ms");
  }

  @Test
  void stoppedRankIsNamed() throws Exception {
    join(SHORT);
    tellAll(ENDLESS);
    for (ChildJvm child : children) {
      child.expect("summing");
    }
    children.get(2).stop();
    for (int rank : new int[] {0, 1}) {
      String failure = children.get(rank).expect("failed");
      requireText(
          failure,
          "DeadlineException [2]",
          "waiting for rank 2 (process " + children.get(2).pid() + ", which is stopped");
      assertFalse(failure.contains("perhaps"), failure);
    }
  }

  @Test
  void stoppedSenderIsNamed() throws Exception {
    join(SHORT);
    children.get(2).stop();
    children.get(0).tell("recv 2");
    requireText(
        children.get(0).expect("failed"),
        "DeadlineException",
        "waiting for rank 2 (process " + children.get(2).pid() + ", which is stopped");
  }

  @Test
  void rankThatDoesNotCallIsNamed() throws Exception {
    join(SHORT);
    tellAll("sums 4");
    for (ChildJvm child : children) {
      child.expect("summed");
    }
    children.get(0).tell("sums 1");
    children.get(2).tell("sums 1");
    for (int rank : new int[] {0, 2}) {
      String failure = children.get(rank).expect("failed");
      requireText(
          failure,
          "DeadlineException [1]",
          "waiting for rank 1 (process " + children.get(1).pid() + "; its last collective is #4)");
    }
  }

  @Test
  void rankThatLeftIsNamed() throws Exception {
    join(LONG);
    children.get(1).tell("close");
    children.get(1).expect("closed");
    children.get(0).tell("sums 1");
    requireText(
        children.get(0).expect("failed"),
        "PeerFailedException [1]",
        "rank 1 left the communicator before it called any collective");
  }

  /** Of a child only those are told of a death that are in it. */
  @Test
  void childKnowsItsOwnRanks() throws Exception {
    join(LONG);
    children.get(0).tell("split 0");
    children.get(1).tell("split 1");
    children.get(2).tell("split 1");
    assertEquals("0", children.get(0).expect("split"));
    assertEquals("0", children.get(1).expect("split"));
    assertEquals("1", children.get(2).expect("split"));
    tellAll(ENDLESS);
    for (ChildJvm child : children) {
      child.expect("summing");
    }
    children.get(2).kill();
    requireText(
        children.get(1).expect("failed"),
        "PeerFailedException [1]",
        "rank 1 of communicator cuda-",
        "died (process " + children.get(2).pid() + ")");
  }

  /** The file by which the processes found each other is gone when they have. */
  @Test
  void noFileStays() throws Exception {
    Set<Path> before = commonFiles();
    join(LONG);
    // Tests of other JVMs may be joining.
    long start = System.nanoTime();
    Set<Path> stay = commonFiles();
    stay.removeAll(before);
    while (!stay.isEmpty()
        && System.nanoTime() - start < TimeUnit.MILLISECONDS.toNanos(MOST_MILLIS)) {
      Thread.sleep(50);
      stay.retainAll(commonFiles());
    }
    assertEquals(Set.of(), stay);
    tellAll("sums 100");
    for (ChildJvm child : children) {
      child.expect("summed");
    }
    tellAll("close");
    for (ChildJvm child : children) {
      child.expect("closed");
    }
  }

  private static Set<Path> commonFiles() throws IOException {
    Path folder = Path.of("/tmp", "nccl4j-" + uid());
    if (!Files.isDirectory(folder)) {
      return new HashSet<>();
    }
    try (Stream<Path> files = Files.list(folder)) {
      return files
          .filter(file -> file.toString().endsWith(".common"))
          .collect(Collectors.toCollection(HashSet::new));
    }
  }

  private static Object uid() throws IOException {
    return Files.getAttribute(Path.of("/proc/self"), "unix:uid");
  }
}
