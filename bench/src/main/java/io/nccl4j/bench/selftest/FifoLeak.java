package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.machine.ThisProcess;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Shows that a captured operation does not cost the plain ones after it any room: two plain
 * allReduces, one captured, then very many plain ones. Where captured work takes room in the work
 * FIFO and never gives it back, such a program stops after some thousand operations.
 *
 * <p>One instance is one rank's part; its thread uses it.
 */
public final class FifoLeak {
  /** Elements of the operations before the loop. */
  static final int LARGE = 100_000;

  /** Elements of the operations in the loop. */
  static final int SMALL = 49_000;

  private static final DataType TYPE = DataType.BFLOAT16;
  private static final short ONE = 0x3f80;
  private static final long SMALLEST_FIFO = 4096;
  private static final int BURST = 100;
  private static final int PARTS = 10;
  private static final Duration DEADLINE = Duration.ofSeconds(20);

  /** More than this is no longer the JVM's own work. */
  private static final long FLAT_BYTES = 1 << 20;

  /** What the loop does. */
  public enum Scenario {
    /** One plain operation, waited for. */
    PUBLISHED("published", 1),
    /** Plain operations through the smallest FIFO, a hundred of them before a wait. */
    SMALLEST("smallest FIFO", 1),
    /** Each time: capture one operation, launch it, then a plain one; wait for both. */
    CAPTURED("capture in loop", 10);

    private final String label;
    private final int divisor;

    Scenario(String label, int divisor) {
      this.label = label;
      this.divisor = divisor;
    }

    /** Its name for people. */
    public String label() {
      return label;
    }

    /** Times the loop runs when {@code iterations} are asked for. */
    public long iterations(long iterations) {
      return Math.max(1, iterations / divisor);
    }
  }

  /** Hears how far a scenario is. */
  @FunctionalInterface
  public interface Listener {
    /**
     * Some more of the loop is done.
     *
     * @param ranks number of ranks
     * @param done times the loop ran
     * @param of times it will run in all
     * @param seconds since the scenario began
     */
    void progress(Scenario scenario, int ranks, long done, long of, double seconds);
  }

  /**
   * What came of a scenario; of all ranks the worst.
   *
   * @param scenario what ran
   * @param ranks number of ranks
   * @param operations collectives of a rank, captured ones included
   * @param launches launches of graphs
   * @param seconds time of all that, the measuring of memory included
   * @param fifoBytes size of the FIFO
   * @param highWaterBytes the most of it that was taken
   * @param fullTimes how often it was full
   * @param occupiedBytes of it taken at the end
   * @param unfinishedLaunches launches that are not complete at the end
   * @param heapGrowth bytes of Java heap in use at the end, less those after a tenth of the loop
   * @param sharedGrowth the same of the process's shared memory; 0 where the system does not tell
   * @param wrong elements of the last result that are wrong
   */
  public record Result(
      Scenario scenario,
      int ranks,
      long operations,
      long launches,
      double seconds,
      long fifoBytes,
      long highWaterBytes,
      long fullTimes,
      long occupiedBytes,
      long unfinishedLaunches,
      long heapGrowth,
      long sharedGrowth,
      long wrong) {
    /** Whether nothing was lost and nothing is wrong. */
    public boolean passed() {
      return occupiedBytes == 0
          && unfinishedLaunches == 0
          && heapGrowth <= FLAT_BYTES
          && sharedGrowth <= FLAT_BYTES
          && wrong == 0;
    }
  }

  private record Memory(long heap, long shared) {}

  private final Communicator communicator;
  private final Scenario scenario;
  private final long iterations;
  private final @Nullable Listener listener;
  private final long start = System.nanoTime();
  private @Nullable Memory early;
  private double reported;

  private FifoLeak(
      Communicator communicator, Scenario scenario, long iterations, @Nullable Listener listener) {
    this.communicator = communicator;
    this.scenario = scenario;
    this.iterations = iterations;
    this.listener = communicator.rank() == 0 ? listener : null;
  }

  /** The deadline with which a rank joins: a program that stops is noticed soon. */
  public static CommunicatorConfig config() {
    return CommunicatorConfig.builder().name("fifo-leak").operationTimeout(DEADLINE).build();
  }

  /**
   * Runs all scenarios on threads of this process.
   *
   * @param iterations of the loop as published; some scenarios have fewer
   * @throws Exception what a rank threw
   */
  public static List<Result> onThreads(
      Backend backend, int nranks, long iterations, Listener listener) throws Exception {
    List<Device> devices =
        IntStream.range(0, nranks).mapToObj(i -> Device.get(backend, i)).toList();
    List<Result> results = new ArrayList<>();
    try (Communicators ranks = Communicator.initAll(devices, config())) {
      ranks.run(
          communicator -> {
            List<Result> own = onRank(communicator, iterations, listener);
            if (communicator.rank() == 0) {
              results.addAll(own);
            }
          });
    }
    return results;
  }

  /**
   * Runs all scenarios as one rank; all ranks call it, and get the same results.
   *
   * @param communicator of all ranks; each scenario has one of its own, split from it
   * @param listener hears of the progress on rank 0
   */
  public static List<Result> onRank(
      Communicator communicator, long iterations, @Nullable Listener listener) {
    List<Result> results = new ArrayList<>();
    for (Scenario scenario : Scenario.values()) {
      CommunicatorConfig.Builder config =
          CommunicatorConfig.builder().name(scenario.label()).operationTimeout(DEADLINE);
      if (scenario == Scenario.SMALLEST) {
        config.fifoBytes(SMALLEST_FIFO);
      }
      try (Communicator own = communicator.split(0, communicator.rank(), config.build())) {
        if (own == null) {
          throw new IllegalStateException("every rank has a color");
        }
        results.add(new FifoLeak(own, scenario, scenario.iterations(iterations), listener).run());
      }
    }
    return results;
  }

  private Result run() {
    Device device = communicator.device();
    try (Stream stream = device.newStream();
        DeviceBuffer in = device.allocate(TYPE, LARGE);
        DeviceBuffer out = device.allocate(TYPE, LARGE)) {
      fill(in);
      sum(in, out, LARGE, stream);
      sum(in, out, LARGE, stream);
      try (ExecutableGraph captured = capture(in, out, LARGE, stream)) {
        captured.launch(stream);
        stream.synchronize();
        loop(in, out, stream);
        stream.fill(out, (byte) 0);
        captured.launch(stream);
        stream.synchronize();
        return result(out, stream);
      }
    }
  }

  private static void fill(DeviceBuffer buffer) {
    short[] ones = new short[LARGE];
    Arrays.fill(ones, ONE);
    buffer.copyFrom(ones);
  }

  private void loop(DeviceBuffer in, DeviceBuffer out, Stream stream) {
    long part = Math.max(1, iterations / PARTS);
    for (long i = 1; i <= iterations; i++) {
      if (scenario == Scenario.CAPTURED) {
        try (ExecutableGraph captured = capture(in, out, SMALL, stream)) {
          captured.launch(stream);
          sum(in, out, SMALL, stream);
          stream.synchronize();
        }
      } else {
        sum(in, out, SMALL, stream);
        if (scenario == Scenario.PUBLISHED || i % BURST == 0) {
          stream.synchronize();
        }
      }
      if (i == part) {
        early = memory(stream);
      }
      if (listener != null && (i % part == 0 || i == iterations)) {
        report(listener, i);
      }
    }
  }

  /** At most once a second, and at the end. */
  private void report(Listener to, long done) {
    double now = seconds();
    if (done == iterations || now - reported >= 1) {
      reported = now;
      to.progress(scenario, communicator.nranks(), done, iterations, now);
    }
  }

  private double seconds() {
    return (System.nanoTime() - start) / 1e9;
  }

  private ExecutableGraph capture(DeviceBuffer in, DeviceBuffer out, int count, Stream stream) {
    stream.beginCapture();
    sum(in, out, count, stream);
    try (Graph graph = stream.endCapture()) {
      return graph.instantiate();
    }
  }

  private void sum(DeviceBuffer in, DeviceBuffer out, int count, Stream stream) {
    communicator.allReduce(in, out, count, TYPE, ReduceOp.SUM, stream);
  }

  /** What this process has in use, while no rank works. */
  private Memory memory(Stream stream) {
    communicator.barrier(stream);
    stream.synchronize();
    System.gc();
    Memory now =
        new Memory(ThisProcess.liveHeapBytes(), ThisProcess.sharedResidentBytes().orElse(0));
    communicator.barrier(stream);
    stream.synchronize();
    return now;
  }

  private Result result(DeviceBuffer out, Stream stream) {
    CommunicatorCounters counters = communicator.counters();
    Memory late = memory(stream);
    Memory before = early == null ? late : early;
    short[] found = new short[LARGE];
    out.copyTo(found);
    // Small whole numbers are exact in bfloat16: the upper half of the float.
    short expected = (short) (Float.floatToRawIntBits(communicator.nranks()) >>> 16);
    long wrong = 0;
    for (short element : found) {
      wrong += element == expected ? 0 : 1;
    }
    long[] all =
        worst(
            stream,
            counters.collectives(),
            counters.graphLaunches(),
            (long) (seconds() * 1e9),
            counters.fifoHighWaterBytes(),
            counters.fifoFull(),
            counters.fifoOccupiedBytes(),
            counters.unfinishedGraphLaunches(),
            late.heap() - before.heap(),
            late.shared() - before.shared(),
            wrong);
    return new Result(
        scenario,
        communicator.nranks(),
        all[0],
        all[1],
        all[2] / 1e9,
        counters.fifoBytes(),
        all[3],
        all[4],
        all[5],
        all[6],
        all[7],
        all[8],
        all[9]);
  }

  /** Of each value the largest of all ranks. */
  private long[] worst(Stream stream, long... own) {
    try (DeviceBuffer values = communicator.device().allocate(DataType.INT64, own.length)) {
      values.copyFrom(own);
      communicator.allReduce(values, values, own.length, DataType.INT64, ReduceOp.MAX, stream);
      stream.synchronize();
      return values.toLongs();
    }
  }
}
