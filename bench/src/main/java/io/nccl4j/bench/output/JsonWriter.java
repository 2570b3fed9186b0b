package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import io.nccl4j.BackendInfo;
import io.nccl4j.NcclMemoryStatistics;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Sweep;
import io.nccl4j.bench.options.TurnSeat;
import io.nccl4j.bench.result.IterationTimes;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.MemoryUse;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * Writes nccl-tests' JSON, schema version 3, while the run goes on; {@link #close} completes the
 * document if neither a result nor a failure did. Differences: numbers and truth values are JSON's
 * own, what is unknown or unchecked is null, the root is a number, all ranks are listed, the
 * environment holds only the variables of NCCL, CUDA and nccl4j, without the unique id; {@code
 * nccl4j_version}, {@code backend}, {@code system} (libraries, driver, devices, processor), {@code
 * cold_time_us}, {@code warm_time_us}, {@code line_latency_ns}, {@code memory} and the placements'
 * {@code rounds_us} are added.
 */
public final class JsonWriter implements RunListener, AutoCloseable {
  private static final int SCHEMA = 3;
  private static final int MAX_COLLISIONS = 10_000;

  private interface Step {
    void run() throws IOException;
  }

  /** Writes a whole document. */
  public interface Document {
    void write(JsonGenerator json) throws IOException;
  }

  private final Path file;
  private final JsonGenerator json;
  private boolean inResults;
  private boolean cpuTime;

  private JsonWriter(Path file, JsonGenerator json) {
    this.file = file;
    this.json = json;
  }

  /**
   * Creates the file; if it is there already, the first of {@code file.0}, {@code file.1}, … that
   * is not.
   *
   * @param arguments of the command line
   * @param environment all variables; only those of NCCL, CUDA and nccl4j are written
   * @throws SystemErrorException if it cannot be created
   */
  public static JsonWriter create(
      Path file, List<String> arguments, Map<String, String> environment, LocalDateTime start) {
    JsonWriter writer = open(file);
    writer.begin(arguments, environment, start);
    return writer;
  }

  /** Creates the file and writes nothing. */
  static JsonWriter open(Path file) {
    Path candidate = file;
    for (int i = 0; i < MAX_COLLISIONS; i++) {
      try {
        OutputStream stream = Files.newOutputStream(candidate, StandardOpenOption.CREATE_NEW);
        JsonGenerator json = new JsonFactory().createGenerator(stream);
        json.setPrettyPrinter(new DefaultPrettyPrinter());
        return new JsonWriter(candidate, json);
      } catch (FileAlreadyExistsException taken) {
        candidate = file.resolveSibling(file.getFileName() + "." + i);
      } catch (IOException e) {
        throw failed(candidate, e);
      }
    }
    throw new SystemErrorException(
        file + " and all its numbered alternatives exist", "name another file");
  }

  /** Writes a document and a line end to a stream, which stays open. */
  public static void print(PrintStream out, Document document) {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text)) {
      json.setPrettyPrinter(new DefaultPrettyPrinter());
      document.write(json);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    out.println(text);
  }

  private static SystemErrorException failed(Path file, IOException cause) {
    return (SystemErrorException)
        new SystemErrorException("cannot write " + file + ": " + cause, "name a writable file")
            .causedBy(cause);
  }

  /** The file that is written. */
  public Path file() {
    return file;
  }

  /** The variables that may be written: those of NCCL, CUDA and nccl4j but for the secret. */
  static List<String> shown(Map<String, String> environment) {
    return new TreeMap<>(environment)
        .entrySet().stream()
            .filter(e -> e.getKey().matches("(NCCL|CUDA|NCCL4J)_.*"))
            .filter(e -> !e.getKey().equals("NCCL4J_UNIQUE_ID"))
            .map(e -> e.getKey() + "=" + e.getValue())
            .toList();
  }

  private void begin(List<String> arguments, Map<String, String> environment, LocalDateTime start) {
    step(
        () -> {
          json.writeStartObject();
          json.writeNumberField("version", SCHEMA);
          json.writeStringField("start_time", TextWriter.TIME.format(start));
          strings("args", arguments);
          strings("env", shown(environment));
        });
  }

  private void strings(String name, List<String> values) throws IOException {
    json.writeArrayFieldStart(name);
    for (String value : values) {
      json.writeString(value);
    }
    json.writeEndArray();
  }

  @Override
  public void started(RunInfo info) {
    step(
        () -> {
          number("nccl_version", info.ncclVersion());
          json.writeStringField("nccl4j_version", info.version());
          json.writeStringField("backend", info.backend().label());
          TurnSeat seat = info.options().method().seat();
          if (seat != null) {
            json.writeStringField("turns", seat.pair());
          }
          json.writeObjectFieldStart("config");
          config(info.options());
          json.writeArrayFieldStart("devices");
          for (RankInfo rank : info.ranks()) {
            device(rank);
          }
          json.writeEndArray();
          json.writeEndObject();
          json.writeObjectFieldStart("system");
          json.writeStringField(
              "java", Runtime.version() + " " + System.getProperty("java.vendor"));
          json.writeStringField(
              "os", System.getProperty("os.name") + " " + System.getProperty("os.version"));
          json.writeStringField("arch", System.getProperty("os.arch"));
          json.writeArrayFieldStart("backends");
          for (BackendInfo backend : info.found()) {
            InfoJson.found(json, backend);
          }
          json.writeEndArray();
          json.writeEndObject();
          json.writeArrayFieldStart("results");
          inResults = true;
          cpuTime = info.options().method().cpuTime();
        });
  }

  private void config(Options options) throws IOException {
    Sweep sweep = options.sweep();
    json.writeNumberField("nthreads", options.threads());
    json.writeNumberField("ngpus", options.gpus());
    json.writeNumberField("minimum_bytes", sweep.minBytes());
    json.writeNumberField("maximum_bytes", sweep.maxBytes());
    if (sweep.stepFactor() > 1) {
      json.writeNumberField("step_factor", sweep.stepFactor());
    } else {
      json.writeNumberField("step_bytes", sweep.stepBytes());
    }
    json.writeNumberField("warmup_iters", options.warmup());
    json.writeNumberField("iterations", options.iterations());
    json.writeNumberField("aggregated_iterations", options.method().aggregated());
    json.writeNumberField("validation", options.check());
    json.writeNumberField("graph", options.method().graphLaunches());
    json.writeBooleanField("blocking_collectives", options.blocking() != Blocking.NONE);
    json.writeBooleanField("per_iter_timing", options.method().perIteration());
    json.writeNumberField("per_iter_skip", options.method().skipped());
    json.writeBooleanField("parallel_init", options.setup().parallelInit());
  }

  private void device(RankInfo rank) throws IOException {
    json.writeStartObject();
    json.writeNumberField("rank", rank.rank());
    json.writeNumberField("group", rank.group());
    json.writeNumberField("pid", rank.pid());
    json.writeStringField("hostname", rank.host());
    json.writeNumberField("device", rank.device());
    json.writeStringField("device_hex", rank.deviceId());
    json.writeStringField("device_info", rank.deviceName());
    json.writeEndObject();
  }

  @Override
  public void measured(SizeResult result) {
    step(
        () -> {
          json.writeStartObject();
          json.writeNumberField("size", result.size());
          json.writeNumberField("count", result.count());
          json.writeStringField("type", result.type());
          json.writeStringField("redop", result.redop());
          json.writeNumberField("root", result.root());
          placement("out_of_place", result.outOfPlace());
          placement("in_place", result.inPlace());
          iterations("out_of_place_per_iter", result.outOfPlace());
          iterations("in_place_per_iter", result.inPlace());
          line(result.line());
          json.writeNumberField("actual_iterations", result.iterations());
          json.writeStringField("experiment_name", "");
          json.writeEndObject();
        });
  }

  private void placement(String name, @Nullable Measurement measured) throws IOException {
    if (measured == null) {
      json.writeNullField(name);
      return;
    }
    json.writeObjectFieldStart(name);
    json.writeNumberField("time", measured.micros());
    if (cpuTime) {
      json.writeNumberField("cpu_time", measured.cpuMicros());
    }
    json.writeNumberField("alg_bw", measured.algBw());
    json.writeNumberField("bus_bw", measured.busBw());
    number("nwrong", measured.wrong());
    numbers("rounds_us", measured.rounds());
    json.writeEndObject();
  }

  private void iterations(String name, @Nullable Measurement measured) throws IOException {
    IterationTimes each = measured == null ? null : measured.iterations();
    if (each == null) {
      return;
    }
    json.writeObjectFieldStart(name);
    json.writeNumberField("skipped_iterations", each.skipped());
    json.writeNumberField("min_us", each.min());
    json.writeNumberField("max_us", each.max());
    json.writeNumberField("avg_us", each.average());
    json.writeNumberField("p50_us", each.percentile(50));
    json.writeNumberField("p95_us", each.percentile(95));
    json.writeNumberField("p99_us", each.percentile(99));
    json.writeNumberField("stdev_us", each.deviation());
    json.writeNumberField("cv_pct", each.variation());
    numbers("times_us", each.micros());
    if (each.perProcess().size() > 1) {
      json.writeArrayFieldStart("per_process_max_times_us");
      for (List<Double> times : each.perProcess()) {
        numbers(null, times);
      }
      json.writeEndArray();
    }
    json.writeEndObject();
  }

  private void numbers(@Nullable String name, List<Double> values) throws IOException {
    if (name != null) {
      json.writeFieldName(name);
    }
    json.writeStartArray();
    for (double value : values) {
      json.writeNumber(value);
    }
    json.writeEndArray();
  }

  private void number(String name, OptionalInt value) throws IOException {
    number(name, value.isEmpty() ? OptionalLong.empty() : OptionalLong.of(value.getAsInt()));
  }

  private void number(String name, OptionalLong value) throws IOException {
    if (value.isEmpty()) {
      json.writeNullField(name);
    } else {
      json.writeNumberField(name, value.getAsLong());
    }
  }

  private void number(String name, OptionalDouble value) throws IOException {
    if (value.isEmpty()) {
      json.writeNullField(name);
    } else {
      json.writeNumberField(name, value.getAsDouble());
    }
  }

  @Override
  public void finished(RunResult result) {
    step(
        () -> {
          endResults();
          json.writeObjectFieldStart("out_of_bounds");
          json.writeNumberField("count", result.wrongMeasurements());
          json.writeBooleanField("okay", result.correct());
          json.writeEndObject();
          json.writeObjectFieldStart("average_bus_bandwidth");
          json.writeNumberField("bandwidth", result.averageBusBw());
          if (result.info().options().method().minBusBw() == 0) {
            json.writeNullField("okay");
          } else {
            json.writeBooleanField("okay", result.fastEnough());
          }
          json.writeEndObject();
          json.writeNumberField("cold_time_us", result.coldMicros());
          json.writeNumberField("warm_time_us", result.warmMicros());
          line(result.line());
          memory(result.memory());
          phases(result.phases());
          strings("errors", List.of());
          json.writeStringField("end_time", TextWriter.TIME.format(result.end()));
          json.close();
        });
  }

  private void line(LineLatency line) throws IOException {
    json.writeObjectFieldStart("line_latency_ns");
    number("before", line.beforeNanos());
    number("after", line.afterNanos());
    json.writeEndObject();
  }

  private void memory(@Nullable MemoryUse memory) throws IOException {
    if (memory == null) {
      json.writeNullField("memory");
      return;
    }
    json.writeObjectFieldStart("memory");
    json.writeNumberField("buffer_bytes", memory.bufferBytes());
    number("peak_resident_bytes", memory.peakResidentBytes());
    number("shared_resident_bytes", memory.sharedResidentBytes());
    NcclMemoryStatistics nccl = memory.nccl();
    if (nccl == null) {
      json.writeNullField("nccl");
      json.writeStringField("nccl_problem", memory.ncclProblem());
    } else {
      json.writeObjectFieldStart("nccl");
      json.writeNumberField("suspendable_bytes", nccl.suspendableBytes());
      json.writeNumberField("persistent_bytes", nccl.persistentBytes());
      json.writeNumberField("total_bytes", nccl.totalBytes());
      json.writeEndObject();
    }
    json.writeEndObject();
  }

  private void phases(@Nullable MemoryPhases phases) throws IOException {
    if (phases != null) {
      json.writeObjectFieldStart("memory_phases");
      json.writeNumberField("initialization_bytes", phases.initialization());
      json.writeNumberField("user_bytes", phases.user());
      json.writeNumberField("collective_bytes", phases.collective());
      json.writeEndObject();
    }
  }

  /** The run ended with a failure instead of a result. */
  public void failed(String message, LocalDateTime end) {
    if (json.isClosed()) {
      return;
    }
    step(
        () -> {
          endResults();
          strings("errors", List.of(message));
          json.writeStringField("end_time", TextWriter.TIME.format(end));
          json.close();
        });
  }

  private void endResults() throws IOException {
    if (inResults) {
      json.writeEndArray();
    }
    inResults = false;
  }

  /** Writes a document of another kind. */
  void write(Document document) {
    step(() -> document.write(json));
  }

  private void step(Step step) {
    try {
      step.run();
      if (!json.isClosed()) {
        json.flush();
      }
    } catch (IOException e) {
      throw failed(file, e);
    }
  }

  /** Completes the document and closes the file. */
  @Override
  public void close() {
    try {
      json.close();
    } catch (IOException e) {
      throw failed(file, e);
    }
  }
}
