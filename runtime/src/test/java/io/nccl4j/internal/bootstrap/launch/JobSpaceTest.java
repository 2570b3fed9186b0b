package io.nccl4j.internal.bootstrap.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.bootstrap.Rendezvous;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CyclicBarrier;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/** Two processes on two machines whose launcher has a key-value space, as MPICH's has. */
@Tag("process")
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
final class JobSpaceTest {
  private static final int SIZE = 2;

  private final Map<String, String> values = new ConcurrentHashMap<>();
  private final CyclicBarrier barrier = new CyclicBarrier(SIZE);
  private final List<String> heard = new CopyOnWriteArrayList<>();

  /** What the launcher says to a process, by PMI, version 1. */
  private void serve(Socket socket, boolean refuses) {
    try (socket;
        BufferedReader in =
            new BufferedReader(
                new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII))) {
      OutputStream out = socket.getOutputStream();
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        heard.add(line);
        String answer = refuses ? "cmd=put_result rc=-1 msg=no" : answer(line);
        // In two parts, as it may come.
        byte[] bytes = (answer + "\n").getBytes(StandardCharsets.US_ASCII);
        out.write(bytes, 0, 5);
        out.flush();
        out.write(bytes, 5, bytes.length - 5);
      }
    } catch (Exception e) {
      heard.add(e.toString());
    }
  }

  private String answer(String line) throws Exception {
    String[] words = line.split(" ");
    switch (words[0]) {
      case "cmd=init" -> {
        return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
      }
      case "cmd=get_my_kvsname" -> {
        return "cmd=my_kvsname kvsname=kvs_1_0";
      }
      case "cmd=put" -> {
        values.put(words[2], words[3]);
        return "cmd=put_result rc=0 msg=success";
      }
      case "cmd=barrier_in" -> {
        barrier.await();
        return "cmd=barrier_out";
      }
      case "cmd=get" -> {
        return "cmd=get_result rc=0 msg=success " + values.get(words[2]);
      }
      default -> {
        return "cmd=finalize_ack";
      }
    }
  }

  private List<ChildJvm> start(ServerSocket launcher, boolean refuses) throws IOException {
    return start(launcher, refuses, "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 PMI_RANK=");
  }

  /**
   * Starts the processes.
   *
   * @param variables that a launcher sets besides those of PMI; the last has the rank as its value
   */
  private List<ChildJvm> start(ServerSocket launcher, boolean refuses, String variables)
      throws IOException {
    List<ChildJvm> children = new ArrayList<>();
    for (int rank = 0; rank < SIZE; rank++) {
      String environment =
          "exec 7<>/dev/tcp/127.0.0.1/"
              + launcher.getLocalPort()
              + "; export PMI_FD=7 PMI_SIZE=2 "
              + variables
              + rank;
      children.add(ChildJvm.startAfter(environment, JobSpaceMain.class));
      Socket socket = launcher.accept();
      Thread.ofPlatform().daemon().start(() -> serve(socket, refuses));
    }
    return children;
  }

  @Test
  void theFirstProcessTellsTheOthersItsIds() throws Exception {
    try (ServerSocket launcher = new ServerSocket(0, SIZE, InetAddress.getLoopbackAddress())) {
      List<ChildJvm> children = start(launcher, false);
      try (ChildJvm one = children.getFirst();
          ChildJvm two = children.getLast()) {
        assertSameIds(one, two);
      }
    }
    assertEquals(SIZE, heard.stream().filter("cmd=finalize"::equals).count(), heard::toString);
    assertEquals(SIZE, heard.stream().filter(line -> line.startsWith("cmd=init")).count());
  }

  /** The variables are those of srun --mpi=pmi2, version 22.05, for two tasks on two nodes. */
  @Test
  void slurmHasTheSameSpace() throws Exception {
    try (ServerSocket launcher = new ServerSocket(0, SIZE, InetAddress.getLoopbackAddress())) {
      String variables =
          "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2"
              + " SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b SLURM_LOCALID=0 SLURM_PROCID=";
      List<ChildJvm> children = start(launcher, false, variables);
      try (ChildJvm one = children.getFirst();
          ChildJvm two = children.getLast()) {
        assertSameIds(one, two);
      }
    }
    assertEquals(SIZE, heard.stream().filter("cmd=finalize"::equals).count(), heard::toString);
  }

  /** The same by PMIx, of which a library stands in that is compiled here. */
  @Test
  void theFirstProcessTellsTheOthersItsIdsByPmix(@TempDir Path folder) throws Exception {
    Path library = folder.resolve("libpmix.so.2");
    Path source = Path.of("src/test/pmix/pmix.c");
    assumeTrue(
        compiled("gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source),
        "there is no C compiler");
    List<ChildJvm> children = new ArrayList<>();
    for (int rank = 0; rank < SIZE; rank++) {
      children.add(
          ChildJvm.start(
              Map.of(
                  "NCCL4J_PMIX_LIBRARY", library.toString(),
                  "PMIX_STANDIN", folder.toString(),
                  "PMIX_NAMESPACE", "job-1",
                  "PMIX_RANK", Integer.toString(rank),
                  "OMPI_COMM_WORLD_RANK", Integer.toString(rank),
                  "OMPI_COMM_WORLD_SIZE", Integer.toString(SIZE),
                  "OMPI_COMM_WORLD_LOCAL_RANK", "0",
                  "OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
              JobSpaceMain.class));
    }
    try (ChildJvm one = children.getFirst();
        ChildJvm two = children.getLast()) {
      assertSameIds(one, two);
    }
    for (int rank = 0; rank < SIZE; rank++) {
      assertTrue(Files.exists(folder.resolve("final-" + rank)), "rank " + rank + " took leave");
    }
  }

  private static boolean compiled(Object... command) throws Exception {
    try {
      Process process =
          new ProcessBuilder(Arrays.stream(command).map(Object::toString).toList())
              .inheritIO()
              .start();
      assertEquals(0, process.waitFor(), "compiling");
      return true;
    } catch (IOException noCompiler) {
      System.out.println(noCompiler.getMessage());
      return false;
    }
  }

  private static void assertSameIds(ChildJvm one, ChildJvm two) throws Exception {
    String first = one.expect("id");
    String second = one.expect("id");
    assertEquals(first, two.expect("id"));
    assertEquals(second, two.expect("id"));
    assertNotEquals(first, second);
    assertTrue(Rendezvous.isOverNetwork(UniqueId.parse(first)));
    assertEquals(0, one.await());
    assertEquals(0, two.await());
  }

  @Test
  void aLauncherThatRefusesIsNamed() throws Exception {
    try (ServerSocket launcher = new ServerSocket(0, SIZE, InetAddress.getLoopbackAddress())) {
      for (ChildJvm child : start(launcher, true)) {
        try (child) {
          String said = child.expect("failed");
          assertTrue(said.contains("the launcher answered 'cmd=put_result rc=-1"), said);
          child.expect("through");
        }
      }
    }
  }
}
