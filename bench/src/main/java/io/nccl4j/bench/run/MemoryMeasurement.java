package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import io.nccl4j.memory.MemoryReport;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;

/**
 * What a communicator of threads took, beside what was predicted.
 *
 * @param prediction before it was made
 * @param steps after joining, and after allReduces of 1 KiB and 16 MiB
 */
public record MemoryMeasurement(MemoryPrediction prediction, List<Step> steps) {
  private static final int FIRST_COUNT = 256;
  private static final int SECOND_COUNT = 4 << 20;

  /**
   * The memory of all ranks at one time.
   *
   * @param label the time, for people
   * @param upTo which lines of the prediction have come true
   * @param ranks the report of each rank
   */
  public record Step(String label, When upTo, List<MemoryReport> ranks) {}

  /** A measurement; the list is copied. */
  public MemoryMeasurement {
    steps = List.copyOf(steps);
  }

  /**
   * What the prediction is made for: ranks that are threads of this process, on what is there.
   *
   * @throws InvalidArgumentException if {@code nranks} is less than 1
   */
  public static MemoryQuery query(Backend backend, int nranks) {
    MemoryQuery query =
        MemoryQuery.of(backend).with(Lever.NRANKS, nranks).with(Lever.RANKS_PER_PROCESS, nranks);
    if (backend == Backend.CUDA) {
      BackendInfo info = backend.info();
      for (BackendInfo.LibraryInfo library : info.libraries()) {
        if (library.name().startsWith("libnccl") && !library.version().isEmpty()) {
          query = query.with(Lever.NCCL, version(library.version()));
        }
      }
      if (!info.devices().isEmpty()) {
        String capability = info.devices().getFirst().computeCapability();
        query = query.with(Lever.ARCH, Long.parseLong(capability.replace(".", "")));
        query = nranks > 1 && info.devices().size() == 1 ? query.onOneGpu() : query;
        CudaDevice device = CudaDevice.of(Device.get(backend, 0));
        query =
            device.support(MemoryFeature.MULTICAST).isPresent() ? query : query.with(Lever.NVLS, 0);
      }
    }
    return query;
  }

  /**
   * A version as {@code ncclGetVersion} counts: 21900 for 2.19, 23007 for 2.30.7.
   *
   * @throws InvalidArgumentException if it is none
   */
  public static long version(String text) {
    if (!text.matches("[0-9]\\.[0-9]{1,2}(\\.[0-9]{1,2})?")) {
      throw new InvalidArgumentException(
          "'" + text + "' is not a version of NCCL", "use one like 2.19 or 2.30.7");
    }
    String[] parts = text.split("\\.");
    long patch = parts.length > 2 ? Long.parseLong(parts[2]) : 0;
    return Long.parseLong(parts[0]) * 10_000 + Long.parseLong(parts[1]) * 100 + patch;
  }

  /** Makes the communicator, measures, and closes it. */
  public static MemoryMeasurement of(MemoryPrediction prediction, int nranks) throws Exception {
    List<Step> steps = new ArrayList<>();
    Backend backend = prediction.query().backend();
    // Ranks share GPUs where there are fewer, as those of the benchmarks do.
    int most = backend == Backend.CUDA ? Device.all(backend).size() : nranks;
    List<Device> devices =
        IntStream.range(0, nranks).mapToObj(rank -> Device.get(backend, rank % most)).toList();
    try (Communicators ranks = Communicator.initAll(devices, CommunicatorConfig.defaults())) {
      steps.add(step("joining", When.JOIN, ranks));
      ranks.run(MemoryMeasurement::reduce);
      steps.add(step("the first allReduces", When.COLLECTIVE, ranks));
    }
    return new MemoryMeasurement(prediction, steps);
  }

  private static Step step(String label, When upTo, Communicators ranks) {
    List<MemoryReport> reports = new ArrayList<>();
    ranks.forEach(rank -> reports.add(MemoryReport.of(rank)));
    return new Step(label, upTo, reports);
  }

  private static void reduce(Communicator communicator) {
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(DataType.FLOAT32, SECOND_COUNT)) {
      for (int count : new int[] {FIRST_COUNT, SECOND_COUNT}) {
        communicator.allReduce(buffer, buffer, count, DataType.FLOAT32, ReduceOp.SUM, stream);
        stream.synchronize();
      }
    }
  }

  /** The most that a rank has taken in a place at a step. */
  static long most(Step step, MemoryPlace place) {
    return step.ranks.stream().mapToLong(report -> report.bytes(place)).max().orElse(0);
  }

  /** The reports of the rank that took most, and the places predicted and taken. */
  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    for (Step step : steps) {
      text.append(String.format(Locale.ROOT, "after %s, the rank that takes most:%n", step.label));
      text.append(
          String.format(
              Locale.ROOT,
              "  %-8s %14s %14s %14s%n",
              "place",
              "predicted (B)",
              "taken (B)",
              "difference"));
      for (MemoryPlace place : MemoryPlace.values()) {
        long predicted = prediction.bytes(place, step.upTo);
        long taken = most(step, place);
        if (predicted > 0 || taken > 0) {
          text.append(
              String.format(
                  Locale.ROOT,
                  "  %-8s %14d %14d %+14d%n",
                  place.label(),
                  predicted,
                  taken,
                  taken - predicted));
        }
      }
      text.append('\n');
    }
    return text.append(steps.getLast().ranks.getFirst()).toString();
  }
}
