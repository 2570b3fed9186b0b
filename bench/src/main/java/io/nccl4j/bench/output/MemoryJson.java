package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.Backend;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryQuery.Lever;
import io.nccl4j.MemoryReport;
import io.nccl4j.bench.run.MemoryMeasurement;
import java.io.IOException;
import java.io.PrintStream;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Writes what a communicator will take, and has taken, as JSON; all sizes are bytes. */
public final class MemoryJson {
  private MemoryJson() {}

  /**
   * Writes one document, and a line end; what is left to NCCL is null.
   *
   * @param measured null if nothing was measured
   */
  public static void write(
      PrintStream out, MemoryPrediction prediction, @Nullable MemoryMeasurement measured) {
    JsonWriter.print(
        out,
        json -> {
          json.writeStartObject();
          json.writeStringField("backend", prediction.query().backend().label());
          json.writeObjectFieldStart("query");
          for (Lever lever : levers(prediction.query().backend())) {
            long value = prediction.query().value(lever);
            String name = lever.label().replace('-', '_');
            if (value < 0) {
              json.writeNullField(name);
            } else {
              json.writeNumberField(name, value);
            }
          }
          json.writeEndObject();
          predicted(json, prediction);
          if (measured != null) {
            measured(json, measured);
          }
          json.writeEndObject();
        });
  }

  private static Set<Lever> levers(Backend backend) {
    return backend == Backend.HOST
        ? EnumSet.range(Lever.NRANKS, Lever.PEERS)
        : EnumSet.allOf(Lever.class);
  }

  private static void predicted(JsonGenerator json, MemoryPrediction prediction)
      throws IOException {
    json.writeArrayFieldStart("predicted");
    for (MemoryPrediction.Line line : prediction.lines()) {
      json.writeStartObject();
      json.writeStringField("purpose", line.purpose().label());
      json.writeStringField("place", line.place().label());
      json.writeStringField("taken_by", line.when().label());
      json.writeNumberField("bytes", line.bytes());
      json.writeStringField("basis", line.basis().name().toLowerCase(Locale.ROOT));
      json.writeStringField("source", line.source());
      json.writeEndObject();
    }
    json.writeEndArray();
    json.writeObjectFieldStart("sums");
    for (MemoryPlace place : MemoryPlace.values()) {
      json.writeNumberField(place.label(), prediction.bytes(place));
    }
    json.writeEndObject();
    json.writeNumberField("shm_bytes_per_node", prediction.shmBytesPerNode());
  }

  private static void measured(JsonGenerator json, MemoryMeasurement measured) throws IOException {
    json.writeArrayFieldStart("measured");
    for (MemoryMeasurement.Step step : measured.steps()) {
      json.writeStartObject();
      json.writeStringField("after", step.label());
      json.writeArrayFieldStart("ranks");
      for (MemoryReport report : step.ranks()) {
        report(json, report);
      }
      json.writeEndArray();
      json.writeEndObject();
    }
    json.writeEndArray();
  }

  private static void report(JsonGenerator json, MemoryReport report) throws IOException {
    json.writeStartObject();
    json.writeStringField("of", report.title());
    json.writeArrayFieldStart("lines");
    for (MemoryReport.Line line : report.lines()) {
      json.writeStartObject();
      json.writeStringField("purpose", line.purpose().label());
      json.writeStringField("place", line.place().label());
      json.writeNumberField("bytes", line.bytes());
      json.writeNumberField("most_bytes", line.peakBytes());
      json.writeStringField("basis", line.basis());
      json.writeEndObject();
    }
    json.writeEndArray();
    json.writeArrayFieldStart("comparisons");
    for (MemoryReport.Comparison comparison : report.comparisons()) {
      json.writeStartObject();
      json.writeStringField("what", comparison.what());
      json.writeNumberField("booked_bytes", comparison.bookedBytes());
      json.writeStringField("booked_basis", comparison.bookedBasis());
      json.writeNumberField("measured_bytes", comparison.measuredBytes());
      json.writeStringField("measured_basis", comparison.measuredBasis());
      json.writeNumberField("difference_bytes", comparison.differenceBytes());
      json.writeEndObject();
    }
    json.writeEndArray();
    json.writeEndObject();
  }
}
