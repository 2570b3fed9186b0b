package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What the command adds to RankProcesses, which has its own test. */
@Tag("process")
@Timeout(240)
@Tag("parallel")
class RunCommandTest {
  private static final String ALL_REDUCE =
      "allreduce --backend host -b 8 -e 128 -f 4 -n 5 -w 0 --no-progress";

  @TempDir Path folder;

  private static Run run(String... arguments) {
    List<String> all = new ArrayList<>(List.of("run"));
    all.addAll(List.of(arguments));
    return Run.of(all.toArray(String[]::new));
  }

  @Test
  void theProgramGetsItsOwnOptions() {
    Run run = run("-n", "1", "echo", "--help", "-n", "5", "--", "--verbose");
    assertEquals(0, run.code());
    assertEquals("[0] --help -n 5 -- --verbose\n", run.out());
    assertEquals("", run.err());
    assertEquals("[0] -n\n", run("-n", "1", "--", "printf", "%s\n", "-n").out());
  }

  @Test
  void theFirstFailureIsNamedAndItsCodeReturned() {
    Run run =
        run("-n", "2", "--grace", "0.5", "sh", "-c", "test $NCCL4J_RANK = 0 || exit 9; sleep 99");
    assertEquals(9, run.code());
    assertTrue(
        run.err()
            .matches("nccl4j: rank 1 \\(process \\d+\\) ended with exit code 9; 1 was ended\n"),
        run::err);
  }

  @Test
  void linesMayComeWithoutTheirRank() {
    Run run = run("-n", "2", "--no-prefix", "sh", "-c", "echo out; echo err >&2");
    assertEquals("out\nout\n", run.out());
    assertEquals("err\nerr\n", run.err());
  }

  @Test
  void outputMayGoToFiles() throws Exception {
    Run run = run("-n", "2", "--output", folder.resolve("logs").toString(), "echo", "hello");
    assertEquals(new Run(0, "", ""), run);
    assertEquals("hello\n", Files.readString(folder.resolve("logs/rank-1.log")));
  }

  @Test
  void badOptionsAreRefusedBeforeAnythingStarts() {
    refuse("Missing required option: '--procs=N'", "true");
    refuse("COMMAND", "-n", "2");
    refuse("0 processes", "-n", "0", "true");
    refuse("there is no program 'no-such-program'", "-n", "2", "no-such-program");
    refuse("--grace is -1.0", "-n", "2", "--grace", "-1", "true");
    refuse(
        "node 2 of 2", "-n", "2", "--nodes", "2", "--node-rank", "2", "--secret-file", "x", "true");
    refuse("add --nodes", "-n", "2", "--rendezvous", "tcp://a:1", "true");
    refuse("nothing says where", "-n", "2", "--nodes", "2", "--secret-file", "x", "true");
    refuse("need a secret", "-n", "2", "--nodes", "2", "--rendezvous", "tcp://a:1", "true");
  }

  private static void refuse(String why, String... arguments) {
    Run run = run(arguments);
    assertEquals(ExitCode.BAD_OPTION.number(), run.code(), run::toString);
    assertTrue(run.err().contains(why), run::err);
    assertEquals("", run.out());
  }

  @Test
  void ranksOfTwoMachinesRunTogether() throws Exception {
    Path secret = Files.writeString(folder.resolve("secret"), "as long as it has to be");
    String address;
    try (ServerSocket socket = new ServerSocket(0)) {
      address = "tcp://localhost:" + socket.getLocalPort();
    }
    String options = "run -n 2 --no-prefix --nodes 2 --rendezvous " + address;
    String rest = " --secret-file " + secret + " -- " + String.join(" ", Jvm.command(ALL_REDUCE));
    try (Jvm one = node(0, options + " --node-rank 0" + rest);
        Jvm two = node(1, options + " --node-rank 1" + rest)) {
      assertEquals(0, one.await(), one::said);
      assertEquals(0, two.await(), two::said);
      assertTrue(one.outLines().contains("# Out of bounds values : 0 OK"), one::said);
      assertTrue(one.outLines().contains("# Hosts 2: ranks 0-1 | 2-3"), one::said);
    }
  }

  private Jvm node(int number, String line) throws IOException {
    return Jvm.start(folder, "node" + number, Map.of("NCCL4J_HOSTID", "host" + number), line);
  }

  private Jvm shells(String script) throws IOException {
    Path file = Files.writeString(folder.resolve("script"), script);
    return Jvm.start(folder, "run", Map.of(), "run -n 2 --grace 1 sh " + file);
  }

  @Test
  void noProcessOutlivesAKilledCommand() throws Exception {
    try (Jvm command = shells("trap '' HUP INT TERM; echo ready; sleep 1000; sleep 1000")) {
      List<ProcessHandle> children = command.awaitChildren(2);
      command.awaitLine("[0] ready");
      command.awaitLine("[1] ready");
      List<ProcessHandle> all = new ArrayList<>(children);
      for (ProcessHandle shell : children) {
        all.addAll(awaitDescendant(shell));
      }
      command.process().destroyForcibly();
      Jvm.awaitEnd(all, 5000);
    }
  }

  /** A shell says that it is ready before it starts what it waits for. */
  private static List<ProcessHandle> awaitDescendant(ProcessHandle shell)
      throws InterruptedException {
    List<ProcessHandle> found = shell.descendants().toList();
    while (found.isEmpty()) {
      assertTrue(shell.isAlive(), "the shell has ended");
      Thread.sleep(10);
      found = shell.descendants().toList();
    }
    return found;
  }

  @ParameterizedTest
  @CsvSource({"HUP, 1", "INT, 2", "TERM, 15"})
  void signalsArePassedOn(String signal, int number) throws Exception {
    assumeFalse(Jvm.isIgnored(number), "this process ignores SIG" + signal);
    String script = "trap 'echo got; exit 0' " + signal + "; echo ready; sleep 1000 & wait";
    try (Jvm command = shells(script)) {
      List<ProcessHandle> children = command.awaitChildren(2);
      command.awaitLine("[0] ready");
      command.awaitLine("[1] ready");
      String pid = Long.toString(command.process().pid());
      assertEquals(0, new ProcessBuilder("kill", "-" + signal, pid).start().waitFor());
      assertEquals(128 + number, command.await(), command::said);
      assertTrue(command.outLines().containsAll(List.of("[0] got", "[1] got")), command::said);
      assertEquals("nccl4j: ended by SIG" + signal, command.errLines().getLast());
      Jvm.awaitEnd(children, 0);
    }
  }
}
