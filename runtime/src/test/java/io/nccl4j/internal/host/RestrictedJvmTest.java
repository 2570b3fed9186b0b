package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Feature;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.memory.MemoryPool;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Virtual machines without native access, and without vectors, in child processes. */
@Tag("process")
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class RestrictedJvmTest {
  private static final String ID = "NCCL4J_TEST_ID";
  private static final List<String> NO_NATIVE = List.of("--illegal-native-access=deny");

  private static String run(List<String> options, String id, String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"));
    command.addAll(options);
    command.addAll(ChildJvm.classPath());
    command.add(Child.class.getName());
    command.addAll(List.of(arguments));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().put(ID, id);
    Process process = builder.start();
    try {
      process.getOutputStream().close();
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertTrue(process.waitFor(30, TimeUnit.SECONDS), printed);
      assertEquals(0, process.exitValue(), printed);
      return printed;
    } finally {
      process.destroyForcibly();
    }
  }

  @Test
  void threadRanksNeedNoNativeAccess() throws Exception {
    String printed = run(NO_NATIVE, "", "threads");
    assertTrue(printed.contains("shareable false, vectors false, all right"), printed);
  }

  @Test
  void threadRanksThatJoinByIdNeedNoNativeAccess() throws Exception {
    String printed = run(NO_NATIVE, "", "ids");
    assertTrue(printed.contains("all right"), printed);
  }

  @Test
  void aProcessWithoutNativeAccessIsRefusedAtOnce() throws Exception {
    String id = UniqueId.create(Backend.HOST).toString();
    String printed = run(NO_NATIVE, id, "join");
    assertTrue(printed.contains("refused: "), printed);
    assertTrue(printed.contains("enable-native-access"), printed);
  }

  /** There, a segment ends with the arena of its block, and a pool's buffers have none. */
  @Test
  void segmentsEndWithTheirBuffers() throws Exception {
    String printed = run(NO_NATIVE, "", "segments");
    assertTrue(printed.contains("9, then refused; of a pool: none"), printed);
  }

  /** The tests run on the class path, where there is no module to grant anything to. */
  @Test
  void theRemedyFitsThisProgram() throws Exception {
    String id = run(NO_NATIVE, "", "create").strip().replaceAll("(?s).*id ", "");
    BackendUnavailableException refused =
        assertThrows(
            BackendUnavailableException.class,
            () -> Communicator.initRank(Device.get(Backend.HOST, 0), 2, UniqueId.parse(id), 1));
    assertTrue(
        refused.getMessage().contains("--enable-native-access=ALL-UNNAMED"), refused::getMessage);
  }

  @Test
  void kernelsWithoutVectorsAreRight() throws Exception {
    String printed = run(List.of("--enable-native-access=ALL-UNNAMED"), "", "threads");
    assertTrue(printed.contains("shareable true, vectors false, all right"), printed);
  }

  @ParameterizedTest
  @CsvSource({
    "-XX:TieredStopAtLevel=4, true",
    // Each vector would be an object.
    "-XX:TieredStopAtLevel=1, false",
    "-Xint, false"
  })
  void vectorsAreUsedWhereTheyAreOptimized(String compilers, boolean vectors) throws Exception {
    String printed =
        run(
            List.of(
                "--enable-native-access=ALL-UNNAMED",
                "--add-modules",
                "jdk.incubator.vector",
                compilers),
            "",
            "threads");
    assertTrue(printed.contains("shareable true, vectors " + vectors + ", all right"), printed);
  }

  /** What runs in the restricted machine. */
  static final class Child {
    private Child() {}

    public static void main(String[] arguments) throws Exception {
      switch (arguments[0]) {
        case "join" -> join();
        case "create" -> System.out.println("id " + UniqueId.create(Backend.HOST));
        case "ids" -> ids();
        case "segments" -> segments();
        default -> threads();
      }
    }

    private static void join() {
      try {
        UniqueId id = UniqueId.parse(System.getenv(ID));
        Communicator.initRank(Device.get(Backend.HOST, 0), 2, id, 0).close();
        System.out.println("joined");
      } catch (BackendUnavailableException e) {
        System.out.println("refused: " + e.getMessage());
      }
    }

    private static void segments() {
      Device device = Device.get(Backend.HOST, 0);
      DeviceBuffer buffer = device.allocate(DataType.INT64, 2);
      MemorySegment segment = buffer.slice(8).hostSegment().orElseThrow();
      segment.set(ValueLayout.JAVA_LONG, 0, 9);
      String found = Long.toString(buffer.toLongs()[1]);
      buffer.close();
      try {
        found += ", then " + segment.get(ValueLayout.JAVA_LONG, 0);
      } catch (IllegalStateException e) {
        found += ", then refused";
      }
      try (Stream stream = device.newStream();
          MemoryPool pool = MemoryPool.create(device);
          DeviceBuffer pooled = pool.allocate(64, stream)) {
        found += "; of a pool: " + (pooled.hostSegment().isPresent() ? "one" : "none");
      }
      System.out.println(found);
    }

    private static void ids() throws Exception {
      UniqueId id = UniqueId.create(Backend.HOST);
      List<Thread> threads = new ArrayList<>();
      List<String> failures = new ArrayList<>();
      for (int r = 0; r < 3; r++) {
        int rank = r;
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try (Communicator communicator =
                          Communicator.initRank(Device.get(Backend.HOST, rank), 3, id, rank)) {
                        trials(communicator);
                      } catch (NcclException | AssertionError e) {
                        synchronized (failures) {
                          failures.add(e.toString());
                        }
                      }
                    }));
      }
      for (Thread thread : threads) {
        thread.join();
      }
      System.out.println(failures.isEmpty() ? "all right" : failures);
    }

    private static void threads() throws Exception {
      try (Communicators ranks = Communicator.initAll(Backend.HOST, 2)) {
        ranks.run(
            communicator -> {
              trials(communicator);
              reductions(communicator);
            });
      }
      boolean vectors = Backend.HOST.info().hasFeature(Feature.VECTOR_REDUCTIONS);
      System.out.println(
          "shareable "
              + ProcessMemory.self().heap().isShareable()
              + ", vectors "
              + vectors
              + ", all right");
    }

    private static void trials(Communicator communicator) {
      try (Stream stream = communicator.device().newStream()) {
        for (Trial.Op op : Trial.Op.values()) {
          for (int count : new int[] {0, 5, 1000, 50_000}) {
            Trial trial =
                new Trial(op, communicator.nranks(), communicator.rank(), count, count + 1);
            try (DeviceBuffer in = communicator.device().allocate(4L * trial.inputLength());
                DeviceBuffer out = communicator.device().allocate(4L * trial.outputLength())) {
              trial.prepare(in, out);
              trial.issue(communicator, in, out, stream);
              stream.synchronize();
              trial.check(out);
            }
          }
        }
      }
    }

    /**
     * Every type and reduction once: both ranks put in ones, so that the results are known for all
     * types.
     */
    private static void reductions(Communicator communicator) {
      int count = 333;
      for (DataType type : DataType.values()) {
        try (DeviceBuffer in = communicator.device().allocate(type, count);
            DeviceBuffer out = communicator.device().allocate(type, count);
            Stream stream = communicator.device().newStream()) {
          byte[] ones = ones(type, count);
          in.copyFrom(ones);
          for (ReduceOp op : List.of(ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)) {
            stream.fill(out, (byte) 0);
            communicator.allReduce(in, out, count, type, op, stream);
            stream.synchronize();
            if (!Arrays.equals(ones, out.toBytes())) {
              throw new AssertionError(op + " of " + type);
            }
          }
        }
      }
    }

    private static byte[] ones(DataType type, int count) {
      byte[] bytes = new byte[count * type.byteSize()];
      ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
      for (int i = 0; i < count; i++) {
        switch (type) {
          case FLOAT32 -> buffer.putFloat(1);
          case FLOAT64 -> buffer.putDouble(1);
          case FLOAT16 -> buffer.putShort(Float.floatToFloat16(1));
          case FLOAT8_E4M3 -> buffer.put((byte) 0x38);
          case FLOAT8_E5M2 -> buffer.put((byte) 0x3c);
          case BFLOAT16 -> buffer.putShort((short) (Float.floatToIntBits(1) >>> 16));
          default -> {
            switch (type.byteSize()) {
              case 1 -> buffer.put((byte) 1);
              case 4 -> buffer.putInt(1);
              default -> buffer.putLong(1);
            }
          }
        }
      }
      return bytes;
    }
  }
}
