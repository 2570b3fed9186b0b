package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevice;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Ranks over the stand-ins, a device each, and a look at what they leave behind. The libraries are
 * loaded once per JVM: these tests have a JVM of their own.
 */
final class CudaRig implements AutoCloseable {
  /** Elements of each buffer. */
  static final int COUNT = 64;

  static final CommunicatorConfig CONFIG = config(20_000);

  private static final long HANG_NANOS = 25_000_000_000L;
  private static final int DEVICES = 8;
  private static final StandIn STAND_IN = load();
  private static Map<String, Long> baseline = Map.of();

  final Communicators communicators;
  final List<Stream> streams = new ArrayList<>();
  final List<DeviceBuffer> in = new ArrayList<>();
  final List<DeviceBuffer> out = new ArrayList<>();

  /** What a rank does. */
  interface Task {
    void run(int rank) throws Exception;
  }

  CudaRig(int firstDevice, int nranks, CommunicatorConfig config) {
    this(Communicator.initAll(devices(firstDevice, nranks), config));
  }

  CudaRig(int nranks) {
    this(0, nranks, CONFIG);
  }

  private CudaRig(Communicators communicators) {
    this.communicators = communicators;
    for (Communicator communicator : communicators) {
      streams.add(communicator.device().newStream());
      in.add(communicator.device().allocate(4L * COUNT * communicators.size()));
      out.add(communicator.device().allocate(4L * COUNT * communicators.size()));
      int[] values = new int[COUNT * communicators.size()];
      Arrays.fill(values, communicator.rank() + 1);
      in.getLast().copyFrom(values);
    }
  }

  private static StandIn load() {
    StandIn standIn = StandIn.require();
    StandIn.environment("STANDIN_CUDA_DEVICES", Integer.toString(DEVICES));
    System.setProperty("nccl4j.cuda.library", standIn.cuda().toString());
    System.setProperty("nccl4j.nccl.library", standIn.nccl().toString());
    return standIn;
  }

  /** The stand-ins, loaded and without faults; what is alive now is no leak. */
  static StandIn begin() {
    STAND_IN.reset();
    if (baseline.isEmpty()) {
      warmUp();
    }
    baseline = live();
    STAND_IN.reset();
    return STAND_IN;
  }

  /** What is alive when each device keeps no more memory than its first chunk. */
  private static Map<String, Long> live() {
    for (Device device : devices(0, DEVICES)) {
      trim(device);
      device.allocate(1).close();
    }
    return STAND_IN.live();
  }

  /** Takes from a device the chunk of memory that it keeps for later. */
  static void trim(Device device) {
    ((CudaGpu) device).deviceMemory().heap().trim();
  }

  /** What devices keep for the life of the process: a chunk of memory each, and their context. */
  private static void warmUp() {
    assertEquals(DEVICES, Device.all(Backend.CUDA).size(), "the stand-in is not what was loaded");
    for (int first = 0; first < DEVICES; first += 4) {
      try (CudaRig rig = new CudaRig(first, 4, CONFIG)) {
        rig.checkSums();
        for (int rank = 0; rank < 4; rank++) {
          try (PinnedBuffer pinned = device(first + rank).allocatePinned(16)) {
            assertNotNull(pinned);
          }
        }
      }
    }
  }

  static CommunicatorConfig config(long operationMillis) {
    return config(10_000, operationMillis, 2_000);
  }

  static CommunicatorConfig config(long initMillis, long operationMillis, long closeMillis) {
    return CommunicatorConfig.builder()
        .initTimeout(Duration.ofMillis(initMillis))
        .operationTimeout(Duration.ofMillis(operationMillis))
        .closeTimeout(Duration.ofMillis(closeMillis))
        .build();
  }

  static CudaDevice device(int ordinal) {
    return CudaDevice.of(Device.get(Backend.CUDA, ordinal));
  }

  static List<Device> devices(int first, int count) {
    return IntStream.range(first, first + count).<Device>mapToObj(CudaRig::device).toList();
  }

  int size() {
    return communicators.size();
  }

  /** Sums the buffers of all ranks; does not wait. */
  void sum(int rank) {
    sum(rank, streams.get(rank));
  }

  void sum(int rank, Stream stream) {
    communicators
        .get(rank)
        .allReduce(in.get(rank), out.get(rank), COUNT, DataType.INT32, ReduceOp.SUM, stream);
  }

  /** All ranks, each on a thread, get right sums. */
  void checkSums() {
    List<Throwable> thrown =
        outcomes(
            size(),
            rank -> {
              sum(rank);
              streams.get(rank).synchronize();
              int[] values = new int[COUNT];
              out.get(rank).copyTo(values);
              int expected = size() * (size() + 1) / 2;
              assertEquals(expected, values[0]);
              assertEquals(expected, values[COUNT - 1]);
            });
    thrown.forEach(CudaRig::requireNothing);
  }

  private static void requireNothing(Throwable thrown) {
    if (!(thrown instanceof Nothing)) {
      throw new AssertionError("a rank failed", thrown);
    }
  }

  /** Stands for a task that threw nothing. */
  static final class Nothing extends Throwable {
    private static final long serialVersionUID = 1L;

    Nothing() {
      super("nothing was thrown");
    }
  }

  /** Runs a task per rank on threads; returns what each threw, or {@link Nothing}. */
  static List<Throwable> outcomes(int nranks, Task task) {
    Throwable[] thrown = new Throwable[nranks];
    List<Thread> threads = new ArrayList<>();
    CountDownLatch running = new CountDownLatch(nranks);
    for (int r = 0; r < nranks; r++) {
      int rank = r;
      thrown[rank] = new AssertionError("rank " + rank + " hangs");
      threads.add(
          Thread.ofPlatform()
              .daemon()
              .name("rank-" + rank)
              .start(
                  () -> {
                    Throwable mine = new Nothing();
                    try {
                      task.run(rank);
                    } catch (Throwable e) {
                      mine = e;
                    }
                    thrown[rank] = mine;
                    running.countDown();
                  }));
    }
    long end = System.nanoTime() + HANG_NANOS;
    try {
      for (Thread thread : threads) {
        Duration left = Duration.ofNanos(Math.max(1, end - System.nanoTime()));
        if (!thread.join(left)) {
          String stack =
              Arrays.stream(thread.getStackTrace())
                  .map(StackTraceElement::toString)
                  .collect(Collectors.joining("\n  "));
          throw new AssertionError(thread.getName() + " hangs in\n  " + stack);
        }
      }
    } catch (InterruptedException e) {
      throw new AssertionError("a rank hangs", e);
    }
    return List.of(thrown);
  }

  /** The same on one thread, which has no group open and no context current before. */
  static Throwable outcome(Task task) {
    return outcomes(1, task).getFirst();
  }

  static boolean eventually(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > 5_000_000_000L) {
        return false;
      }
      LockSupport.parkNanos(200_000);
    }
    return true;
  }

  /**
   * Nothing is alive that was not before the test; what ends in the background may take a while.
   */
  static void requireNoLeak() {
    if (!eventually(() -> live().equals(baseline))) {
      assertEquals(baseline, live(), "alive after everything was closed");
    }
  }

  @Override
  public void close() {
    communicators.forEach(Communicator::close);
    streams.forEach(Stream::close);
    in.forEach(DeviceBuffer::close);
    out.forEach(DeviceBuffer::close);
  }
}
