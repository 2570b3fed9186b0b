package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.cli.process.ChildCommand;
import io.nccl4j.cli.process.RankEnvironment;
import io.nccl4j.internal.cuda.StandIn;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A {@code /dev/shm} that is too small, read-only or missing, really mounted so in a mount
 * namespace of the commands' own: the host backend does not notice, for NCCL the join is refused at
 * once.
 */
@Timeout(120)
class SharedMemoryTest {
  /** One connection between two ranks: 2 channels of 9641984 + 8192 B, whole pages. */
  private static final long NEED = 2L * 2 * (9_641_984 + 8192);

  private static final long MIB = 1 << 20;

  @TempDir Path folder;

  /** How /dev/shm is, and the commands that make it so. */
  enum Shm {
    SMALL("mount -t tmpfs -o size=1m tmpfs /dev/shm"),
    READ_ONLY("mount -t tmpfs -o size=1g,ro tmpfs /dev/shm"),
    /** A folder of devices without it takes the place of /dev. */
    MISSING(
        "new=$(mktemp -d) && mount -t tmpfs tmpfs $new && for d in null zero random urandom full;"
            + " do touch $new/$d && mount --bind /dev/$d $new/$d || exit 98; done &&"
            + " ln -s /proc/self/fd $new/fd && mount --move $new /dev");

    private final String mount;

    Shm(String mount) {
      this.mount = mount;
    }
  }

  @BeforeEach
  void mayMount() throws Exception {
    String reason = "";
    try {
      Process probe =
          new ProcessBuilder("unshare", "-m", "sh", "-c", Shm.SMALL.mount)
              .redirectErrorStream(true)
              .start();
      String output = new String(probe.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (probe.waitFor() != 0) {
        reason = output.strip();
      }
    } catch (IOException e) {
      reason = e.getMessage();
    }
    if (!reason.isEmpty()) {
      System.out.println("/dev/shm cannot be mounted for a test, which needs root: " + reason);
    }
    assumeTrue(reason.isEmpty(), reason);
  }

  /** What a command printed, and its exit code; what is left in /dev/shm is the last line. */
  private record Result(int code, String out, String err) {}

  private Result run(Shm shm, Map<String, String> environment, List<String> command)
      throws Exception {
    // The command's words are parameters of the script: nothing is quoted twice.
    String script =
        "{ "
            + shm.mount
            + "; } || exit 99; \"$@\"; code=$?; echo left: $(ls -A /dev/shm 2>&1);"
            + " exit $code";
    List<String> all = new ArrayList<>(List.of("unshare", "-m", "sh", "-c", script, "sh"));
    all.addAll(command);
    Path out = folder.resolve("out");
    Path err = folder.resolve("err");
    ProcessBuilder builder =
        new ProcessBuilder(all).redirectOutput(out.toFile()).redirectError(err.toFile());
    builder.environment().putAll(environment);
    Process process = builder.start();
    try {
      assertTrue(process.waitFor(100, TimeUnit.SECONDS), () -> "not ended: " + all);
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    Result result = new Result(process.exitValue(), Files.readString(out), Files.readString(err));
    String left =
        result.out.lines().filter(line -> line.startsWith("left:")).findFirst().orElse("");
    boolean nothing =
        shm == Shm.MISSING ? left.contains("No such file") : left.strip().equals("left:");
    assertTrue(nothing, result::toString);
    return result;
  }

  @Test
  void hostDoesWithoutAny() throws Exception {
    hostDoesWithout(Shm.MISSING);
  }

  @Tag("long")
  @ParameterizedTest
  @EnumSource(names = {"SMALL", "READ_ONLY"})
  void hostDoesWithout(Shm shm) throws Exception {
    String line = "allreduce --backend host -b 8 -e 8M -f 1024 -n 2 -w 0 --procs 2";
    Result result = run(shm, Map.of(), Jvm.command(line));
    assertEquals(0, result.code, result::toString);
    assertTrue(result.out.contains("# Out of bounds values : 0 OK"), result::toString);
  }

  private static Map<String, String> ncclWithoutPeers() {
    Map<String, String> environment = new HashMap<>(StandIn.require().childEnvironment(2));
    environment.put("NCCL_P2P_DISABLE", "1");
    environment.put("NCCL_CUMEM_HOST_ENABLE", "0");
    return environment;
  }

  /** The launcher tells its two processes that they share the machine. */
  @Test
  void ncclIsRefusedWithNeedFreeAndRemedy() throws Exception {
    ncclIsRefused(Shm.SMALL);
  }

  @Tag("long")
  @ParameterizedTest
  @EnumSource(names = {"READ_ONLY", "MISSING"})
  void ncclIsRefused(Shm shm) throws Exception {
    String line = "allreduce --backend cuda -b 8 -e 8 -n 1 -w 0 --procs 2";
    Result result = run(shm, ncclWithoutPeers(), Jvm.command(line));
    assertEquals(3, result.code, result::toString);
    for (String words :
        switch (shm) {
          case SMALL ->
              List.of("needs 36.8 MiB of shared memory", "where 1.0 MiB of 1.0 MiB are free");
          case READ_ONLY -> List.of("needs 36.8 MiB of shared memory", "read-only");
          case MISSING -> List.of("needs the folder /dev/shm, which does not exist");
        }) {
      assertTrue(result.err.contains(words), result::toString);
    }
    assertTrue(
        List.of("docker run", "podman run", "mount -o remount", "mount -t tmpfs", "emptyDir")
            .stream()
            .anyMatch(result.err::contains),
        result::toString);
  }

  @ParameterizedTest
  @EnumSource
  void refusalTakesLessThanASecond(Shm shm) throws Exception {
    List<String> command = new ArrayList<>(ChildCommand.of(Main.class, List.of()));
    command.set(command.size() - 1, JoinMain.class.getName());
    Map<String, String> environment = ncclWithoutPeers();
    environment.put(RankEnvironment.LOCAL_NRANKS, "2");
    Result result = run(shm, environment, command);
    assertEquals(0, result.code, result::toString);
    String[] answer = result.out.lines().findFirst().orElse("").split(" ");
    assertEquals("refused", answer[0], result::toString);
    assertTrue(Long.parseLong(answer[1]) < 1000, result::toString);
    assertEquals(NEED, Long.parseLong(answer[2]));
    assertEquals(shm == Shm.SMALL ? MIB : 0, Long.parseLong(answer[3]));
  }

  /** Whoever reaches the others' memory needs a folder, and no room in it. */
  @Test
  void smallIsEnoughForGpusThatReachEachOther() throws Exception {
    List<String> command = new ArrayList<>(ChildCommand.of(Main.class, List.of()));
    command.set(command.size() - 1, JoinMain.class.getName());
    Map<String, String> environment = ncclWithoutPeers();
    environment.put("NCCL_P2P_DISABLE", "0");
    environment.put("NCCL4J_INIT_TIMEOUT", "500ms");
    environment.put(RankEnvironment.LOCAL_NRANKS, "2");
    Result result = run(Shm.SMALL, environment, command);
    assertFalse(result.out.contains("refused"), result::toString);
    assertTrue(result.err.contains("DeadlineException"), "the other rank does not come");
  }
}
