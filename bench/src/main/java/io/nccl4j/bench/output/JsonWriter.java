package io.nccl4j.bench.output;

import static io.nccl4j.bench.output.Json.known;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Sweep;
import io.nccl4j.bench.options.TurnSeat;
import io.nccl4j.bench.result.IterationTimes;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.MemoryUse;
import io.nccl4j.bench.result.PredictedMemory;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import io.nccl4j.cuda.NcclMemoryStatistics;
import java.io.IOException;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * Writes nccl-tests' JSON, schema version 3, while the run goes on; {@link #close} completes the
 * document if neither a result nor a failure did. Differences: numbers and truth values are JSON's
 * own, what is unknown or unchecked is null, the root is a number, all ranks are listed, the
 * environment holds only the variables of NCCL, CUDA and nccl4j, without the unique id; {@code
 * nccl4j_version}, {@code backend}, {@code hosts}, {@code network}, {@code system} (libraries,
 * driver, devices, processor), {@code cold_time_us}, {@code warm_time_us}, {@code line_latency_ns},
 * {@code memory} and the placements' {@code rounds_us} are added.
 */
public final class JsonWriter implements RunListener, AutoCloseable {
  private static final List<String> SECRETS = List.of("NCCL4J_SECRET", "NCCL4J_UNIQUE_ID");

  private static final int SCHEMA = 3;

  private final JsonFile file;
  private boolean inResults;
  private boolean cpuTime;

  private JsonWriter(JsonFile file) {
    this.file = file;
  }

  /**
   * Creates the file; if it is there already, the first of {@code file.0}, {@code file.1}, … that
   * is not.
   *
   * @param arguments of the command line
   * @param environment all variables; only those of NCCL, CUDA and nccl4j are written
   * @throws io.nccl4j.SystemErrorException if it cannot be created
   */
  public static JsonWriter create(
      Path file, List<String> arguments, Map<String, String> environment, LocalDateTime start) {
    JsonWriter writer = new JsonWriter(JsonFile.create(file));
    Json.Fields first =
        new Json.Fields()
            .with("version", SCHEMA)
            .with("start_time", TextWriter.TIME.format(start))
            .with("args", arguments)
            .with("env", shown(environment));
    writer.file.write(
        json -> {
          json.writeStartObject();
          Json.writeFields(json, first);
        });
    return writer;
  }

  /** The file that is written. */
  public Path file() {
    return file.path();
  }

  /** The variables that may be written: those of NCCL, CUDA and nccl4j but for the secrets. */
  static List<String> shown(Map<String, String> environment) {
    return new TreeMap<>(environment)
        .entrySet().stream()
            .filter(e -> e.getKey().matches("(NCCL|CUDA|NCCL4J)_.*"))
            .filter(e -> !SECRETS.contains(e.getKey()))
            .map(e -> e.getKey() + "=" + e.getValue())
            .toList();
  }

  @Override
  public void started(RunInfo info) {
    cpuTime = info.options().method().cpuTime();
    Json.Fields fields =
        new Json.Fields()
            .with("nccl_version", info.ncclVersion())
            .with("nccl4j_version", info.version())
            .with("backend", info.backend().label())
            .with("hosts", info.hosts().count())
            .with("network", network(info.hosts()));
    TurnSeat seat = info.options().method().seat();
    if (seat != null) {
      fields.with("turns", seat.pair());
    }
    fields
        .with(
            "config",
            config(info.options())
                .with("devices", info.ranks(), rank -> device(rank, info.hosts())))
        .with("system", system(info));
    file.write(
        json -> {
          Json.writeFields(json, fields);
          json.writeArrayFieldStart("results");
          inResults = true;
        });
  }

  private static Json.Fields config(Options options) {
    Sweep sweep = options.sweep();
    boolean factor = sweep.stepFactor() > 1;
    return new Json.Fields()
        .with("nthreads", options.threads())
        .with("ngpus", options.gpus())
        .with("minimum_bytes", sweep.minBytes())
        .with("maximum_bytes", sweep.maxBytes())
        .with(
            factor ? "step_factor" : "step_bytes", factor ? sweep.stepFactor() : sweep.stepBytes())
        .with("warmup_iters", options.warmup())
        .with("iterations", options.iterations())
        .with("aggregated_iterations", options.method().aggregated())
        .with("validation", options.check())
        .with("graph", options.method().graphLaunches())
        .with("blocking_collectives", options.blocking() != Blocking.NONE)
        .with("per_iter_timing", options.method().perIteration())
        .with("per_iter_skip", options.method().skipped())
        .with("parallel_init", options.setup().parallelInit());
  }

  private static Json.@Nullable Fields network(CommunicatorHosts hosts) {
    return hosts.network().isEmpty()
        ? null
        : new Json.Fields()
            .with("name", hosts.network())
            .with("interface", known(hosts.networkInterface()))
            .with("address", hosts.address());
  }

  private static Json.Fields device(RankInfo rank, CommunicatorHosts hosts) {
    return new Json.Fields()
        .with("rank", rank.rank())
        .with("group", rank.group())
        .with("pid", rank.pid())
        .with("hostname", rank.host())
        .with("host", hosts.hostOf(rank.rank()))
        .with("device", rank.device())
        .with("device_hex", rank.deviceId())
        .with("device_info", rank.deviceName());
  }

  private static Json.Fields system(RunInfo info) {
    return new Json.Fields()
        .with("java", Runtime.version() + " " + System.getProperty("java.vendor"))
        .with("os", System.getProperty("os.name") + " " + System.getProperty("os.version"))
        .with("arch", System.getProperty("os.arch"))
        .with("backends", info.found(), InfoJson::found);
  }

  @Override
  public void measured(SizeResult result) {
    Json.Fields fields =
        new Json.Fields()
            .with("size", result.size())
            .with("count", result.count())
            .with("type", result.type())
            .with("redop", result.redop())
            .with("root", result.root())
            .with("out_of_place", placement(result.outOfPlace()))
            .with("in_place", placement(result.inPlace()));
    iterations(fields, "out_of_place_per_iter", result.outOfPlace());
    iterations(fields, "in_place_per_iter", result.inPlace());
    fields
        .with("line_latency_ns", line(result.line()))
        .with("actual_iterations", result.iterations())
        .with("experiment_name", "");
    file.write(json -> Json.write(json, fields));
  }

  private Json.@Nullable Fields placement(@Nullable Measurement measured) {
    if (measured == null) {
      return null;
    }
    Json.Fields fields = new Json.Fields().with("time", measured.micros());
    if (cpuTime) {
      fields.with("cpu_time", measured.cpuMicros());
    }
    return fields
        .with("alg_bw", measured.algBw())
        .with("bus_bw", measured.busBw())
        .with("nwrong", measured.wrong())
        .with("rounds_us", measured.rounds());
  }

  private static void iterations(Json.Fields to, String name, @Nullable Measurement measured) {
    IterationTimes each = measured == null ? null : measured.iterations();
    if (each == null) {
      return;
    }
    Json.Fields fields =
        new Json.Fields()
            .with("skipped_iterations", each.skipped())
            .with("min_us", each.min())
            .with("max_us", each.max())
            .with("avg_us", each.average())
            .with("p50_us", each.percentile(50))
            .with("p95_us", each.percentile(95))
            .with("p99_us", each.percentile(99))
            .with("stdev_us", each.deviation())
            .with("cv_pct", each.variation())
            .with("times_us", each.micros());
    if (each.perProcess().size() > 1) {
      fields.with("per_process_max_times_us", each.perProcess());
    }
    to.with(name, fields);
  }

  @Override
  public void finished(RunResult result) {
    boolean floor = result.info().options().method().minBusBw() > 0;
    Json.Fields fields =
        new Json.Fields()
            .with(
                "out_of_bounds",
                new Json.Fields()
                    .with("count", result.wrongMeasurements())
                    .with("okay", result.correct()))
            .with(
                "average_bus_bandwidth",
                new Json.Fields()
                    .with("bandwidth", result.averageBusBw())
                    .with("okay", floor ? result.fastEnough() : null))
            .with("cold_time_us", result.coldMicros())
            .with("warm_time_us", result.warmMicros())
            .with("line_latency_ns", line(result.line()))
            .with("memory", memory(result.memory()));
    MemoryPhases phases = result.phases();
    if (phases != null) {
      fields.with(
          "memory_phases",
          new Json.Fields()
              .with("initialization_bytes", phases.initialization())
              .with("user_bytes", phases.user())
              .with("collective_bytes", phases.collective()));
    }
    PredictedMemory nccl = result.predicted();
    if (nccl != null) {
      fields.with(
          "nccl_memory",
          new Json.Fields()
              .with("predicted_bytes", nccl.predicted())
              .with("taken_bytes", nccl.taken())
              .with("least_difference_bytes", nccl.leastDifference())
              .with("most_difference_bytes", nccl.mostDifference()));
    }
    end(fields, List.of(), result.end());
  }

  private static Json.Fields line(LineLatency line) {
    return new Json.Fields().with("before", line.beforeNanos()).with("after", line.afterNanos());
  }

  private static Json.@Nullable Fields memory(@Nullable MemoryUse memory) {
    if (memory == null) {
      return null;
    }
    NcclMemoryStatistics nccl = memory.nccl();
    Json.Fields fields =
        new Json.Fields()
            .with("buffer_bytes", memory.bufferBytes())
            .with("peak_resident_bytes", memory.peakResidentBytes())
            .with("shared_resident_bytes", memory.sharedResidentBytes());
    return nccl == null
        ? fields.with("nccl", null).with("nccl_problem", memory.ncclProblem())
        : fields.with(
            "nccl",
            new Json.Fields()
                .with("suspendable_bytes", nccl.suspendableBytes())
                .with("persistent_bytes", nccl.persistentBytes())
                .with("total_bytes", nccl.totalBytes()));
  }

  /** The run ended with a failure instead of a result. */
  public void failed(String message, LocalDateTime end) {
    if (!file.isComplete()) {
      end(new Json.Fields(), List.of(message), end);
    }
  }

  private void end(Json.Fields fields, List<String> errors, LocalDateTime end) {
    fields.with("errors", errors).with("end_time", TextWriter.TIME.format(end));
    file.write(
        json -> {
          endResults(json);
          Json.writeFields(json, fields);
        });
    file.close();
  }

  private void endResults(JsonGenerator json) throws IOException {
    if (inResults) {
      json.writeEndArray();
    }
    inResults = false;
  }

  /** Completes the document and closes the file. */
  @Override
  public void close() {
    file.close();
  }
}
