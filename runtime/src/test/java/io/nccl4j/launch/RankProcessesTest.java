package io.nccl4j.launch;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.launch.RankProcesses.Builder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("process")
@Timeout(120)
@Tag("parallel")
class RankProcessesTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT_GRACE = Duration.ofMillis(200);

  @TempDir Path folder;

  private final List<String> lines = Collections.synchronizedList(new ArrayList<>());

  /** A shell for each rank, whose lines are collected with the rank in front. */
  private Builder shells(int processes, String script) {
    return RankProcesses.builder()
        .processes(processes)
        .command("sh", "-c", script)
        .output(RankOutput.lines((line, rank) -> lines.add(rank + " " + line)));
  }

  /** A JVM for each rank. */
  private Builder jvms(int processes, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of(
            "-Xmx64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--enable-native-access=ALL-UNNAMED"));
    command.addAll(ChildJvm.classPath());
    command.add(LaunchedMain.class.getName());
    command.addAll(List.of(arguments));
    return shells(processes, "").command(command);
  }

  private static JobExit run(Builder builder) {
    try (RankProcesses ranks = builder.start()) {
      return ranks.await(LONG);
    }
  }

  private List<String> sorted() {
    return lines.stream().sorted().toList();
  }

  // ---- programs that use nccl4j

  @Test
  void ranksFindEachOtherWhateverLauncherThisProcessHas() {
    Map<String, String> outer =
        Map.of(
            "SLURM_PROCID", "5",
            "SLURM_STEP_ID", "0",
            "SLURM_NTASKS", "9",
            "OMPI_COMM_WORLD_RANK", "1",
            "OMPI_COMM_WORLD_SIZE", "2",
            "JOB_COMPLETION_INDEX", "7",
            "NCCL4J_JOB", "another");
    JobExit exit = run(jvms(3, "once").environment(rank -> outer));
    assertEquals(0, exit.exitCode(), () -> exit.describe() + lines);
    assertEquals(
        List.of(
            "0 sum 6, rank 0 of 3, local 0",
            "1 sum 6, rank 1 of 3, local 1",
            "2 sum 6, rank 2 of 3, local 2"),
        sorted());
  }

  @Tag("long")
  @Test
  void manyRanksFindEachOther() {
    JobExit exit = run(jvms(33, "once"));
    assertEquals(0, exit.exitCode(), () -> exit.describe() + lines);
    assertEquals(33, lines.stream().filter(line -> line.contains(" sum 561, ")).count());
  }

  @Test
  void twoHostsMeetByAnAddress() throws Exception {
    Path secret = Files.writeString(folder.resolve("secret"), "as long as it has to be");
    String address;
    try (ServerSocket socket = new ServerSocket(0)) {
      address = "tcp://localhost:" + socket.getLocalPort();
    }
    List<CompletableFuture<JobExit>> nodes = new ArrayList<>();
    for (int node = 0; node < 2; node++) {
      Map<String, String> host = Map.of("NCCL4J_HOSTID", "host" + node);
      Builder builder =
          jvms(2, "once").node(node, 2, address).secretFile(secret).environment(rank -> host);
      nodes.add(CompletableFuture.supplyAsync(() -> run(builder)));
    }
    for (CompletableFuture<JobExit> node : nodes) {
      assertEquals(0, node.get().exitCode(), lines::toString);
    }
    assertEquals(
        List.of(
            "0 sum 10, rank 0 of 4, local 0",
            "1 sum 10, rank 1 of 4, local 1",
            "2 sum 10, rank 2 of 4, local 0",
            "3 sum 10, rank 3 of 4, local 1"),
        sorted().stream().filter(line -> line.contains("sum")).toList());
  }

  @Test
  void aRankThatThrowsEndsAllAndTheOthersSayWhy() {
    JobExit exit = run(jvms(3, "forever", "throw"));
    assertEquals(1, exit.exitCode());
    String said = String.join("\n", lines);
    assertTrue(said.contains("1 Exception in thread \"main\" java.lang.IllegalStateException"));
    assertTrue(said.lines().anyMatch(line -> line.matches("[02] .*io\\.nccl4j\\..*")), said);
  }

  @Test
  void aRankThatLeavesEarlyIsNoFailureButWhatTheOthersSayOfItIs() {
    JobExit exit = run(jvms(3, "forever", "leave"));
    assertEquals(0, exit.ranks().get(1).exitCode());
    assertEquals(1, exit.exitCode());
    assertTrue(exit.firstFailure().orElseThrow().rank() != 1);
    assertTrue(lines.stream().anyMatch(line -> line.contains("rank 1")), lines::toString);
  }

  @Test
  void aKilledRankIsTheFirstToFail() throws Exception {
    CountDownLatch joined = new CountDownLatch(3);
    try (RankProcesses ranks = jvms(3, "forever", "nothing").output(awaiting(joined)).start()) {
      assertTrue(joined.await(60, TimeUnit.SECONDS), lines::toString);
      assertTrue(ranks.processes().get(2).destroyForcibly());
      JobExit exit = ranks.await(LONG);
      assertEquals(128 + 9, exit.exitCode(), lines::toString);
      assertEquals(
          "rank 2 (process " + ranks.processes().get(2).pid() + ") ended with signal 9 (KILL)",
          exit.firstFailure().orElseThrow().describe());
      assertTrue(exit.describe().contains("; after it 2 more failed"), exit::describe);
      assertTrue(
          lines.stream().anyMatch(l -> l.startsWith("0 ") && l.contains("rank 2")),
          lines::toString);
    }
  }

  // ---- any programs

  @ParameterizedTest
  @ValueSource(ints = {1, 33})
  void eachProcessHasItsNumber(int processes) {
    JobExit exit =
        run(shells(processes, "echo $NCCL4J_RANK $NCCL4J_NRANKS $NCCL4J_LOCAL_RANK; read x"));
    // The standard input is at its end, which read says by 1.
    assertEquals(1, exit.exitCode());
    assertEquals(processes, exit.ranks().size());
    assertEquals(
        IntStream.range(0, processes)
            .mapToObj(rank -> rank + " " + rank + " " + processes + " " + rank)
            .sorted()
            .toList(),
        sorted());
  }

  @Test
  void processesMayHaveSeveralRanks() {
    JobExit exit =
        run(
            shells(2, "echo $NCCL4J_NRANKS $NCCL4J_LOCAL_NRANKS $NCCL4J_LOCAL_RANK $HOME_OF")
                .ranksPerProcess(3)
                .node(1, 2, "tcp://localhost:1")
                .environment(rank -> Map.of("HOME_OF", "x" + rank)));
    assertTrue(exit.succeeded());
    assertEquals(List.of("6 12 6 0 x6", "9 12 6 3 x9"), sorted());
  }

  @Test
  void variablesThatShellsCannotHavePassThrough() {
    Builder builder =
        shells(1, "").command("env").environment(rank -> Map.of("a.b", "c d", "PLAIN", "e  f"));
    assertTrue(run(builder).succeeded());
    assertTrue(lines.containsAll(List.of("0 a.b=c d", "0 PLAIN=e  f")), lines::toString);
    assertFalse(lines.stream().anyMatch(line -> line.startsWith("0 NCCL4J_UNIQUE_ID")));
  }

  @Test
  void theFirstFailureEndsTheOthers() {
    long start = System.nanoTime();
    JobExit exit = run(shells(3, "test $NCCL4J_RANK != 1 || exit 7; sleep 1000"));
    assertEquals(7, exit.exitCode());
    assertEquals(List.of(false, true, false), exit.ranks().stream().map(RankExit::failed).toList());
    assertEquals(128 + 15, exit.ranks().get(0).exitCode());
    String first = "rank 1 (process " + exit.ranks().get(1).pid() + ")";
    assertEquals(first + " ended with exit code 7; 2 were ended", exit.describe());
    assertTrue(System.nanoTime() - start >= TimeUnit.SECONDS.toNanos(2));
  }

  /** Peers of a killed process may end first. */
  @Test
  void whomASignalEndedIsToBlame() {
    JobExit exit =
        run(shells(3, "test $NCCL4J_RANK = 1 || exit 1; sleep 0.5; kill -SEGV $$; sleep 1000"));
    assertEquals(1, exit.firstFailure().orElseThrow().rank());
    assertEquals(128 + 11, exit.exitCode());
    assertTrue(
        exit.describe().endsWith("signal 11 (SEGV); after it 2 more failed"), exit::describe);
  }

  @Test
  void whoIgnoresTheSignalIsKilledAfterTheGrace() {
    Builder builder =
        shells(2, "trap '' TERM; test $NCCL4J_RANK = 1 && exit 3; while :; do sleep 0.1; done");
    JobExit exit = run(builder.grace(SHORT_GRACE));
    assertEquals(3, exit.exitCode());
    assertEquals(128 + 9, exit.ranks().get(0).exitCode());
  }

  @ParameterizedTest
  @ValueSource(strings = {"HUP", "INT", "TERM"})
  void signalsArePassedOn(String signal) throws Exception {
    requireNotIgnored(signal);
    CountDownLatch ready = new CountDownLatch(2);
    String script =
        "trap 'echo got; exit 5' " + signal + "; echo ready; while :; do sleep 0.1; done";
    try (RankProcesses ranks = shells(2, script).output(awaiting(ready)).start()) {
      assertTrue(ready.await(30, TimeUnit.SECONDS));
      ranks.stop(signal);
      JobExit exit = ranks.await(LONG);
      assertEquals(5, exit.exitCode());
      assertTrue(exit.firstFailure().isEmpty());
      assertEquals("the ranks were stopped", exit.describe());
      // The shells also say that the signal has ended the sleep.
      assertTrue(lines.containsAll(List.of("0 got", "1 got")), lines::toString);
    }
  }

  /** A signal that this process ignores, as in the background of a script, no shell can trap. */
  private static void requireNotIgnored(String signal) throws IOException {
    int number = Map.of("HUP", 1, "INT", 2, "TERM", 15).get(signal);
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
      String ignored =
          lines.filter(line -> line.startsWith("SigIgn:")).findFirst().orElseThrow().substring(7);
      boolean isIgnored = (Long.parseUnsignedLong(ignored.strip(), 16) >> number - 1 & 1) != 0;
      String reason = "SIG" + signal + " is ignored in this process, and so in what it starts";
      if (isIgnored) {
        System.out.println("signalsArePassedOn is skipped: " + reason);
      }
      assumeFalse(isIgnored, reason);
    }
  }

  private RankOutput awaiting(CountDownLatch ready) {
    return RankOutput.lines(
        (line, rank) -> {
          lines.add(rank + " " + line);
          ready.countDown();
        });
  }

  @Test
  void theSecondSignalKills() throws Exception {
    CountDownLatch ready = new CountDownLatch(1);
    String script = "trap '' TERM; echo; while :; do sleep 0.1; done";
    try (RankProcesses ranks = shells(1, script).output(awaiting(ready)).start()) {
      assertTrue(ready.await(30, TimeUnit.SECONDS));
      ranks.stop("TERM");
      ranks.stop("TERM");
      assertEquals(128 + 9, ranks.await(LONG).exitCode());
      assertThrows(InvalidArgumentException.class, () -> ranks.stop("USR1"));
    }
  }

  @Test
  void closingKills() {
    List<ProcessHandle> processes;
    try (RankProcesses ranks = shells(2, "trap '' TERM; sleep 1000").start()) {
      processes = ranks.processes();
      DeadlineException late =
          assertThrows(DeadlineException.class, () -> ranks.await(Duration.ofMillis(50)));
      assertTrue(late.getMessage().contains("rank 0, rank 1"), late::getMessage);
    }
    assertTrue(processes.stream().noneMatch(ProcessHandle::isAlive));
  }

  @Test
  void whatAProcessLeavesBehindEnds() throws Exception {
    assertTrue(run(shells(1, "sleep 1000 & echo $!")).succeeded());
    awaitEnd(lines.stream().map(line -> Long.parseLong(line.substring(2))).toList());
  }

  /** Waits up to 5 s. */
  private static void awaitEnd(List<Long> processes) throws Exception {
    for (long process : processes) {
      ProcessHandle handle = ProcessHandle.of(process).orElse(null);
      if (handle != null) {
        handle.onExit().get(5, TimeUnit.SECONDS);
      }
    }
  }

  // ---- output

  private static byte[] printed(boolean prefix, Builder builder) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    RankOutput output =
        prefix
            ? RankOutput.prefixed(new PrintStream(out), new PrintStream(err))
            : RankOutput.plain(new PrintStream(out), new PrintStream(err));
    JobExit exit = run(builder.output(output));
    assertTrue(exit.succeeded(), err::toString);
    return out.toByteArray();
  }

  @Test
  void linesHaveTheirRankInFrontAndTheLastOneIsEnded() {
    byte[] out = printed(true, shells(2, "echo one; echo; printf two; echo no >&2"));
    List<String> said = new String(out, StandardCharsets.UTF_8).lines().sorted().toList();
    assertEquals(List.of("[0] ", "[0] one", "[0] two", "[1] ", "[1] one", "[1] two"), said);
    assertEquals('\n', out[out.length - 1]);
  }

  @Test
  void bytesPassUnchanged() {
    byte[] out = printed(false, shells(1, "printf 'a\\0b\\377\\r\\n\\n'; printf end"));
    byte[] end = {'e', 'n', 'd'};
    byte[] expected = {'a', 0, 'b', (byte) 0xff, '\r', '\n', '\n', 'e', 'n', 'd'};
    assertArrayEquals(expected, out);
    assertArrayEquals(end, Arrays.copyOfRange(out, out.length - 3, out.length));
  }

  /** And no rank waits until another one's line has ended. */
  @Test
  void longLinesComeInParts() {
    String script =
        "head -c 1048576 /dev/zero | tr '\\0' $NCCL4J_RANK; test $NCCL4J_RANK = 0 && echo";
    Map<Integer, Integer> bytes = new TreeMap<>();
    Builder builder =
        shells(2, script + "; :")
            .output(
                (rank, channel, part) -> {
                  assertTrue(part.length <= RankOutput.MAX_BYTES);
                  bytes.merge(rank, part.length, Integer::sum);
                });
    assertTrue(run(builder).succeeded());
    assertEquals(Map.of(0, 1048577, 1, 1048576), bytes);

    String printed = new String(printed(true, shells(2, script + "; :")), StandardCharsets.UTF_8);
    for (String line : printed.split("\n")) {
      assertTrue(line.matches("\\[([01])] \\1*"), () -> line.length() + " characters");
    }
  }

  @Test
  void eachProcessMayWriteToAFile() throws Exception {
    Path files = folder.resolve("a/b");
    assertTrue(run(shells(2, "echo $NCCL4J_RANK; echo err >&2").outputFolder(files)).succeeded());
    assertEquals("0\nerr\n", Files.readString(files.resolve("rank-0.log")));
    assertEquals("1\nerr\n", Files.readString(files.resolve("rank-1.log")));
    assertEquals(List.of(), lines);
  }

  @Test
  void outputThatCannotBeWrittenEndsAll() {
    IllegalStateException full = new IllegalStateException("full");
    Builder builder =
        shells(2, "echo; sleep 1000")
            .output(
                (rank, channel, bytes) -> {
                  throw full;
                });
    try (RankProcesses ranks = builder.start()) {
      assertSame(full, assertThrows(IllegalStateException.class, () -> ranks.await(LONG)));
      assertTrue(ranks.processes().stream().noneMatch(ProcessHandle::isAlive));
    }
  }

  // ---- what cannot be started

  @Test
  void badInputIsRefused() throws IOException {
    refuse(RankProcesses.builder(), "there is no command");
    refuse(shells(0, ""), "0 processes");
    refuse(shells(1, "").ranksPerProcess(0), "0 ranks");
    refuse(shells(1, "").node(2, 2, "tcp://a:1"), "node 2 of 2");
    refuse(shells(1, "").node(0, 2, ""), "nothing says where");
    refuse(shells(1, "").grace(Duration.ofMillis(-1)), "grace");
    refuse(shells(1, "").command("no-such-program"), "no-such-program");
    refuse(shells(1, "").command("./no-such-program"), "not found");
    Path file = Files.createFile(folder.resolve("plain"));
    refuse(shells(1, "").command(file.toString()), "not executable");
    refuse(shells(1, "").outputFolder(file.resolve("x")), "cannot create");
  }

  private static void refuse(Builder builder, String why) {
    InvalidArgumentException refused =
        assertThrows(InvalidArgumentException.class, () -> builder.start().close());
    assertTrue(refused.getMessage().contains(why), refused::getMessage);
  }

  // ---- who watches

  @Test
  void withoutTheWatchingShellNothingRuns() throws Exception {
    CountDownLatch ready = new CountDownLatch(2);
    String script = "sleep 1000 & echo $!; wait";
    // Those of earlier tests take a moment to end.
    List<ProcessHandle> earlier = guards();
    try (RankProcesses ranks = shells(2, script).output(awaiting(ready)).start()) {
      assertTrue(ready.await(30, TimeUnit.SECONDS));
      List<ProcessHandle> guards = new ArrayList<>(guards());
      guards.removeAll(earlier);
      assertEquals(1, guards.size());
      guards.getFirst().destroyForcibly();
      assertThrows(SystemErrorException.class, () -> ranks.await(LONG));
      assertTrue(ranks.processes().stream().noneMatch(ProcessHandle::isAlive));
      awaitEnd(lines.stream().map(line -> Long.parseLong(line.substring(2))).toList());
    }
  }

  private static List<ProcessHandle> guards() {
    return ProcessHandle.current()
        .children()
        .filter(child -> String.join(" ", words(child)).contains("nccl4j-guard"))
        .toList();
  }

  private static List<String> words(ProcessHandle process) {
    return List.of(process.info().arguments().orElse(new String[0]));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "trap '' HUP INT TERM;"})
  void nothingOutlivesAKilledLauncher(String first) throws Exception {
    String script = first + " sleep 1000 & echo pid $$; echo pid $!; wait; wait; sleep 1000";
    try (ChildJvm launcher = ChildJvm.start(LauncherMain.class, 2, 300, "sh", "-c", script)) {
      List<Long> processes = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        processes.add(Long.parseLong(launcher.expect("pid")));
      }
      launcher.kill();
      awaitEnd(processes);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 5, 10, 20, 30, 50, 80})
  void nothingOutlivesALauncherKilledWhileItStarts(int millis) throws Exception {
    String mark = "1000." + ProcessHandle.current().pid() + millis;
    try (ChildJvm launcher = ChildJvm.start(LauncherMain.class, 64, 0, "sleep", mark)) {
      long pid = launcher.pid();
      while (ProcessHandle.of(pid).orElseThrow().children().findAny().isEmpty()) {
        Thread.onSpinWait();
      }
      // Any moment will do; these hit all that it does.
      TimeUnit.MILLISECONDS.sleep(millis);
      launcher.kill();
      launcher.await();
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
    while (ProcessHandle.allProcesses().anyMatch(process -> words(process).contains(mark))) {
      assertTrue(System.nanoTime() < end, "processes live on");
      Thread.onSpinWait();
    }
  }
}
