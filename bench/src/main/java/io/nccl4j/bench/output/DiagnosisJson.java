package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.Diagnosis;
import io.nccl4j.SharedMemorySegment;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;

/** Writes what the doctor found as JSON; what there is nothing to say about is null. */
public final class DiagnosisJson {
  private DiagnosisJson() {}

  /**
   * Writes one document, and a line end.
   *
   * @param removed files in {@code /dev/shm} that were removed before
   * @param removedIds files of unique ids that were
   */
  public static void write(
      PrintStream out,
      String version,
      Diagnosis diagnosis,
      List<SharedMemorySegment> removed,
      List<Path> removedIds) {
    JsonWriter.print(
        out,
        json -> {
          json.writeStartObject();
          json.writeStringField("nccl4j_version", version);
          json.writeBooleanField("healthy", diagnosis.isHealthy());
          for (Diagnosis.Status status : Diagnosis.Status.values()) {
            json.writeNumberField(label(status) + "_count", diagnosis.count(status));
          }
          json.writeArrayFieldStart("checks");
          for (Diagnosis.Check check : diagnosis.checks()) {
            json.writeStartObject();
            json.writeStringField("name", check.name());
            json.writeStringField("status", label(check.status()));
            json.writeStringField("found", check.found());
            text(json, "remedy", check.remedy());
            json.writeEndObject();
          }
          json.writeEndArray();
          segments(json, "segments", diagnosis.segments());
          segments(json, "removed", removed);
          json.writeArrayFieldStart("removed_ids");
          for (Path id : removedIds) {
            json.writeString(id.toString());
          }
          json.writeEndArray();
          json.writeEndObject();
        });
  }

  private static void segments(JsonGenerator json, String name, List<SharedMemorySegment> segments)
      throws IOException {
    json.writeArrayFieldStart(name);
    for (SharedMemorySegment segment : segments) {
      json.writeStartObject();
      json.writeStringField("path", segment.path());
      json.writeNumberField("bytes", segment.bytes());
      json.writeStringField("owner", segment.owner());
      json.writeNumberField("age_s", segment.age().toSeconds());
      json.writeStringField("use", label(segment.use()));
      text(json, "reason", segment.reason());
      json.writeEndObject();
    }
    json.writeEndArray();
  }

  private static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  private static void text(JsonGenerator json, String name, String value) throws IOException {
    if (value.isEmpty()) {
      json.writeNullField(name);
    } else {
      json.writeStringField(name, value);
    }
  }
}
