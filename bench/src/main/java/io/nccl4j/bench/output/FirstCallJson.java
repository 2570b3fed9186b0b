package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.bench.run.FirstCall;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** Writes what {@link FirstCall} found as JSON; all times are in µs. */
public final class FirstCallJson {
  private FirstCallJson() {}

  /**
   * Creates the file, as {@link JsonWriter#create} does, and writes all of it.
   *
   * @return the file
   * @throws io.nccl4j.SystemErrorException if it cannot be written
   */
  public static Path write(
      Path file,
      String version,
      List<FirstCall.Times> cold,
      List<FirstCall.Times> warm,
      List<FirstCall.Summary> summaries) {
    try (JsonWriter writer = JsonWriter.open(file)) {
      writer.write(
          json -> {
            json.writeStartObject();
            json.writeStringField("nccl4j_version", version);
            json.writeNumberField("size", FirstCall.BYTES);
            json.writeArrayFieldStart("results");
            for (FirstCall.Summary summary : summaries) {
              one(json, summary);
            }
            json.writeEndArray();
            pairs(json, "cold", cold);
            pairs(json, "warm", warm);
            json.writeEndObject();
          });
      return writer.file();
    }
  }

  private static void one(JsonGenerator json, FirstCall.Summary summary) throws IOException {
    json.writeStartObject();
    json.writeStringField("operation", summary.operation().label());
    json.writeNumberField("pairs", summary.pairs());
    json.writeNumberField("cold_median_us", summary.coldMedian());
    json.writeNumberField("cold_max_us", summary.coldMost());
    json.writeNumberField("warm_median_us", summary.warmMedian());
    json.writeNumberField("warm_max_us", summary.warmMost());
    json.writeNumberField("steady_median_us", summary.steadyMedian());
    json.writeNumberField("steady_p99_us", summary.steadyP99());
    json.writeNumberField("goal_us", summary.goal());
    json.writeBooleanField("goal_met", summary.meetsGoal());
    json.writeBooleanField("okay", summary.passed());
    json.writeEndObject();
  }

  private static void pairs(JsonGenerator json, String name, List<FirstCall.Times> times)
      throws IOException {
    json.writeArrayFieldStart(name);
    for (FirstCall.Times time : times) {
      json.writeStartObject();
      json.writeStringField("operation", time.operation().label());
      json.writeNumberField("first_us", time.first());
      json.writeNumberField("steady_median_us", time.median());
      json.writeNumberField("steady_p99_us", time.p99());
      json.writeEndObject();
    }
    json.writeEndArray();
  }
}
