package io.nccl4j.internal.cuda;

import static io.nccl4j.ReduceOp.SUM;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What an operation costs in Java: no bytes of the heap, and little time more than from C. */
class CudaCostTest {
  private static final int BLOCK = 200;
  private static final int WARM_UP_BLOCKS = 5;
  private static final int MOST_BLOCKS = 2000;

  /** Twenty times what is allowed on a machine of one's own: this one may be shared. */
  private static final double MOST_NANOS = 2400;

  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  @TempDir private Path folder;

  private StandIn standIn = StandIn.require();

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
    // The calls enqueue at once then, and no thread of the stand-in is made for each of them.
    StandIn.environment("NCCL_COMM_BLOCKING", "1");
  }

  @AfterEach
  void nothingIsLeft() {
    StandIn.environment("NCCL_COMM_BLOCKING", "");
    standIn.reset();
    CudaRig.requireNoLeak();
  }

  /** Blocks of calls on this thread, until one allocates nothing. */
  private static void assertAllocatesNothing(String name, Runnable operation, Runnable between) {
    long least = Long.MAX_VALUE;
    int blocks = 0;
    while (least != 0 && blocks < MOST_BLOCKS) {
      long before = THREADS.getCurrentThreadAllocatedBytes();
      for (int k = 0; k < BLOCK; k++) {
        operation.run();
      }
      long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
      between.run();
      if (++blocks > WARM_UP_BLOCKS) {
        least = Math.min(least, allocated);
      }
    }
    System.out.printf("cuda, %s: %d B in %d operations, %d blocks%n", name, least, BLOCK, blocks);
    assertEquals(0, least, name);
  }

  @Test
  void operationsAllocateNothing() {
    try (CudaRig rig = new CudaRig(1)) {
      Stream stream = rig.streams.getFirst();
      assertAllocatesNothing("allReduce", () -> rig.sum(0), stream::synchronize);
      assertAllocatesNothing(
          "allReduce and synchronize",
          () -> {
            rig.sum(0);
            stream.synchronize();
          },
          stream::synchronize);
    }
  }

  @Test
  void eventsAllocateNothing() {
    try (CudaRig rig = new CudaRig(1);
        Stream other = CudaRig.device(0).newStream();
        Event event = CudaRig.device(0).newEvent()) {
      assertAllocatesNothing(
          "record and waitFor",
          () -> {
            rig.streams.getFirst().record(event);
            other.waitFor(event);
          },
          other::synchronize);
    }
  }

  @Test
  void groupsAllocateNothing() {
    try (CudaRig rig = new CudaRig(2)) {
      Runnable sums =
          () -> {
            rig.sum(0);
            rig.sum(1);
          };
      assertAllocatesNothing(
          "group of two ranks",
          () -> {
            try (Group group = Group.start()) {
              sums.run();
              group.launch();
            }
          },
          () -> rig.streams.forEach(Stream::synchronize));
      Communicator first = rig.communicators.get(0);
      Communicator second = rig.communicators.get(1);
      assertAllocatesNothing(
          "send and recv of two ranks",
          () -> {
            try (Group group = Group.start()) {
              first.send(rig.in.getFirst(), 4, DataType.INT32, 1, rig.streams.getFirst());
              first.recv(rig.out.getFirst(), 4, DataType.INT32, 1, rig.streams.getFirst());
              second.send(rig.in.getLast(), 4, DataType.INT32, 0, rig.streams.getLast());
              second.recv(rig.out.getLast(), 4, DataType.INT32, 0, rig.streams.getLast());
              group.launch();
            }
          },
          () -> rig.streams.forEach(Stream::synchronize));
    }
  }

  @Test
  void launchesAllocateNothing() {
    try (CudaRig rig = new CudaRig(1)) {
      Stream stream = rig.streams.getFirst();
      stream.beginCapture();
      rig.sum(0);
      Graph graph = stream.endCapture();
      try (graph;
          ExecutableGraph executable = graph.instantiate()) {
        assertAllocatesNothing(
            "graph launch", () -> executable.launch(stream), stream::synchronize);
      }
    }
  }

  /** The stand-in's own time is in both figures; the least of many blocks is compared. */
  @Test
  void callsCostLittleMoreThanFromC() throws Exception {
    Path program = compile();
    double[] before = fromC(program);
    double[] java = new double[2];
    try (CudaRig rig = new CudaRig(1);
        DeviceBuffer target = CudaRig.device(0).allocate(DataType.INT32, 1)) {
      Stream stream = rig.streams.getFirst();
      Communicator communicator = rig.communicators.get(0);
      DeviceBuffer buffer = rig.in.getFirst();
      java[0] =
          fromJava(
              stream, () -> communicator.allReduce(buffer, buffer, 1, DataType.INT32, SUM, stream));
      java[1] =
          fromJava(
              stream,
              () -> {
                try (Group group = Group.start()) {
                  communicator.send(buffer, 1, DataType.INT32, 0, stream);
                  communicator.recv(target, 1, DataType.INT32, 0, stream);
                  group.launch();
                }
              });
    }
    double[] after = fromC(program);
    String[] names = {"allReduce", "a group of send and recv"};
    for (int i = 0; i < names.length; i++) {
      double c = Math.min(before[i], after[i]);
      double more = java[i] - c;
      System.out.printf(
          "cuda, host time of %s: %.0f ns from Java, %.0f ns from C, %.0f ns more, ratio %.2f%n",
          names[i], java[i], c, more, java[i] / c);
      assertTrue(more < (i + 1) * MOST_NANOS, () -> more + " ns more than from C");
    }
  }

  private static double fromJava(Stream stream, Runnable call) {
    long least = Long.MAX_VALUE;
    for (int block = 0; block < 1000; block++) {
      long start = System.nanoTime();
      for (int k = 0; k < BLOCK; k++) {
        call.run();
      }
      least = Math.min(least, System.nanoTime() - start);
      stream.synchronize();
    }
    return (double) least / BLOCK;
  }

  private Path compile() throws Exception {
    Path source = Path.of("src/test/c/overhead.c").toAbsolutePath();
    Path program = folder.resolve("overhead");
    run(
        List.of(
            "gcc",
            "-std=c11",
            "-O2",
            "-o",
            program.toString(),
            source.toString(),
            standIn.nccl().toString(),
            standIn.cuda().toString(),
            "-Wl,-rpath," + standIn.libraryPath()));
    return program;
  }

  private static double[] fromC(Path program) throws Exception {
    return run(List.of(program.toString())).lines().mapToDouble(Double::parseDouble).toArray();
  }

  private static String run(List<String> command) throws Exception {
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().put("NCCL_COMM_BLOCKING", "1");
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(60, TimeUnit.SECONDS), output);
    assertEquals(0, process.exitValue(), output);
    return output;
  }
}
