package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.bootstrap.ChildJvm;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
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

  private void join(int operationMillis) throws Exception {
    start("", operationMillis, operationMillis, operationMillis);
    expectJoined();
  }

  private void expectJoined() throws InterruptedException {
    for (ChildJvm child : children) {
      child.expect("joined");
    }
  }

  /**
   * Ranks in a process each, which begin to join; returns the unique id.
   *
   * @param fault of rank 1's libraries; none if empty
   * @param operationMillis for each rank that joins, the deadline of its operations
   */
  private String start(String fault, int... operationMillis) throws Exception {
    StandIn standIn = StandIn.require();
    for (int rank = 0; rank < RANKS; rank++) {
      Map<String, String> environment =
          Map.of(
              "NCCL4J_CUDA_LIBRARY",
              standIn.cuda().toString(),
              "NCCL4J_NCCL_LIBRARY",
              standIn.nccl().toString(),
              "STANDIN_FAULT",
              rank == 1 ? fault : "");
      children.add(ChildJvm.start(environment, CudaRankMain.class));
    }
    for (ChildJvm child : children) {
      child.expect("ready");
    }
    children.getFirst().tell("id");
    String id = children.getFirst().expect("id");
    for (int rank = 0; rank < operationMillis.length; rank++) {
      children
          .get(rank)
          .tell("join " + id + " " + RANKS + " " + rank + " " + operationMillis[rank]);
    }
    return id;
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
    requireSoon(start);
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
      // By its own deadline, or by the other's.
      requireText(
          failure,
          "Exception [2]",
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
          "Exception [1]",
          "waiting for rank 1 (process " + children.get(1).pid() + "; its last collective is #4)");
    }
  }

  /** The others would wait for a minute. */
  @Test
  void whoGivesUpTellsTheOthers() throws Exception {
    start("", LONG, SHORT, LONG);
    expectJoined();
    children.get(0).tell("sums 1");
    children.get(1).tell("sums 1");
    requireText(children.get(1).expect("failed"), "DeadlineException [2]", "waiting for rank 2");
    requireText(
        children.get(0).expect("failed"),
        "PeerFailedException [2]",
        "rank 1 failed: allReduce(64 int32, sum) #1 of communicator cuda-",
        "is not complete after 1000 ms, waiting for rank 2 (process " + children.get(2).pid());
  }

  @Test
  void abortTellsTheOthers() throws Exception {
    join(LONG);
    children.get(0).tell("sums 1");
    children.get(2).tell("sums 1");
    children.get(0).expect("summing");
    children.get(1).tell("abort");
    children.get(1).expect("aborted");
    for (int rank : new int[] {0, 2}) {
      requireText(
          children.get(rank).expect("failed"),
          "AbortedException [1]",
          "communicator cuda-",
          " was aborted by rank 1");
    }
  }

  /** The device of rank 1 is lost in the operation: NCCL on the other GPUs would wait for ever. */
  @Test
  void lostDeviceIsNamed() throws Exception {
    start("ncclAllReduce:3:sticky:700", LONG, LONG, LONG);
    expectJoined();
    tellAll("sums 10");
    requireText(children.get(1).expect("failed"), "CudaException []", "CUDA_ERROR_ILLEGAL_ADDRESS");
    for (int rank : new int[] {0, 2}) {
      requireText(
          children.get(rank).expect("failed"),
          "PeerFailedException [1]",
          "rank 1 failed: ",
          "CUDA_ERROR_ILLEGAL_ADDRESS",
          "(rank 1 of communicator cuda-");
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

  /** The other would wait for all to join until its deadline of 30 s. */
  @Test
  void whoCannotJoinTellsTheOthers() throws Exception {
    Set<Path> before = commonFiles();
    String id = start("ncclCommInitRankConfig:1:error:2", LONG);
    awaitJoining(children.getFirst());
    children.get(1).tell("join " + id + " " + RANKS + " 1 " + LONG);
    long start = System.nanoTime();
    requireText(children.get(1).expect("failed"), "joining cuda-", "ncclSystemError");
    requireText(
        children.getFirst().expect("failed"),
        "PeerFailedException [1]",
        "rank 1 failed: ",
        "ncclSystemError",
        "(rank 1 of communicator cuda-");
    requireSoon(start);
    requireNoFiles(before);
  }

  @Test
  void rankThatDiesWhileJoiningIsNamed() throws Exception {
    Set<Path> before = commonFiles();
    start("", LONG, LONG);
    awaitJoining(children.getFirst());
    awaitJoining(children.get(1));
    long start = System.nanoTime();
    children.get(1).kill();
    requireText(
        children.getFirst().expect("failed"),
        "PeerFailedException [1]",
        "rank 1 of communicator cuda-",
        "died (process " + children.get(1).pid() + ")");
    requireSoon(start);
    requireNoFiles(before);
  }

  private static void awaitJoining(ChildJvm child) throws Exception {
    while (!isJoining(child.pid())) {
      Thread.sleep(10);
    }
  }

  /** Whether a process is in NCCL's call, by the name of the thread that makes it. */
  private static boolean isJoining(long pid) throws IOException {
    try (Stream<Path> threads = Files.list(Path.of("/proc", Long.toString(pid), "task"))) {
      for (Path thread : threads.toList()) {
        if (Files.readString(thread.resolve("comm")).startsWith("nccl4j-join-")) {
          return true;
        }
      }
      return false;
    } catch (NoSuchFileException e) {
      // A thread has ended meanwhile.
      return false;
    }
  }

  private static void requireSoon(long start) {
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    assertTrue(millis < MOST_MILLIS, () -> millis + " ms");
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

  /** Three times, for one note must not hide another; then the parent is used. */
  @Test
  void whoIsRefusedInASplitTellsTheOthers() throws Exception {
    join(LONG);
    for (int color = -4; color > -7; color--) {
      children.get(0).tell("split 0");
      children.get(1).tell("split " + color);
      children.get(2).tell("split 1");
      requireText(
          children.get(1).expect("failed"), "InvalidArgumentException [] split: the color is");
      for (int rank : new int[] {0, 2}) {
        requireText(
            children.get(rank).expect("failed"),
            "PeerFailedException [1] split: rank 1 of communicator cuda-",
            " cannot take part: split: the color is " + color);
      }
    }
    tellAll("sums 1");
    for (ChildJvm child : children) {
      child.expect("summed");
    }
    tellAll("split 0");
    for (int rank = 0; rank < RANKS; rank++) {
      assertEquals("" + rank, children.get(rank).expect("split"));
    }
  }

  /** The file by which the processes found each other is gone when they have. */
  @Test
  void noFileStays() throws Exception {
    Set<Path> before = commonFiles();
    join(LONG);
    requireNoFiles(before);
    tellAll("sums 100");
    for (ChildJvm child : children) {
      child.expect("summed");
    }
    tellAll("close");
    for (ChildJvm child : children) {
      child.expect("closed");
    }
  }

  private static void requireNoFiles(Set<Path> before) throws Exception {
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
