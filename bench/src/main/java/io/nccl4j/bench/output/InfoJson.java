package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.DeviceInfo;
import io.nccl4j.BackendInfo.Feature;
import io.nccl4j.BackendInfo.LibraryInfo;
import java.io.IOException;
import java.io.PrintStream;
import java.util.List;

/** Writes what the backends found as JSON; what is not known is null. */
public final class InfoJson {
  private InfoJson() {}

  /**
   * Writes one document, and a line end.
   *
   * @param java the runtime's version and vendor
   */
  public static void write(
      PrintStream out, String version, String java, String home, List<BackendInfo> backends) {
    JsonWriter.print(
        out,
        json -> {
          json.writeStartObject();
          json.writeStringField("nccl4j_version", version);
          json.writeStringField("java", java);
          json.writeStringField("java_home", home);
          json.writeBooleanField("usable", backends.stream().anyMatch(BackendInfo::isUsable));
          json.writeArrayFieldStart("backends");
          for (BackendInfo backend : backends) {
            one(json, backend);
          }
          json.writeEndArray();
          json.writeEndObject();
        });
  }

  private static void one(JsonGenerator json, BackendInfo backend) throws IOException {
    json.writeStartObject();
    json.writeStringField("backend", backend.backend().label());
    json.writeBooleanField("usable", backend.isUsable());
    text(json, "problem", backend.problem());
    text(json, "remedy", backend.remedy());
    json.writeArrayFieldStart("libraries");
    for (LibraryInfo library : backend.libraries()) {
      json.writeStartObject();
      library(json, library);
      json.writeArrayFieldStart("tried");
      for (String place : library.tried()) {
        json.writeString(place);
      }
      json.writeEndArray();
      json.writeEndObject();
    }
    json.writeEndArray();
    devices(json, backend);
    json.writeArrayFieldStart("features");
    for (Feature feature : backend.features()) {
      json.writeStartObject();
      json.writeStringField("name", feature.name());
      json.writeBooleanField("present", feature.isPresent());
      text(json, "needs", feature.needs());
      text(json, "reason", feature.reason());
      json.writeEndObject();
    }
    json.writeEndArray();
    facts(json, backend);
    json.writeEndObject();
  }

  /** Writes what a run should keep of it: not what was searched and what it could do. */
  static void found(JsonGenerator json, BackendInfo backend) throws IOException {
    json.writeStartObject();
    json.writeStringField("backend", backend.backend().label());
    json.writeArrayFieldStart("libraries");
    for (LibraryInfo library : backend.libraries()) {
      json.writeStartObject();
      library(json, library);
      json.writeEndObject();
    }
    json.writeEndArray();
    devices(json, backend);
    facts(json, backend);
    json.writeEndObject();
  }

  private static void library(JsonGenerator json, LibraryInfo library) throws IOException {
    json.writeStringField("name", library.name());
    text(json, "path", library.path());
    text(json, "found_by", library.foundBy());
    text(json, "version", library.version());
    text(json, "headers", library.headers());
    text(json, "floor", library.floor());
    text(json, "problem", library.problem());
  }

  private static void devices(JsonGenerator json, BackendInfo backend) throws IOException {
    json.writeArrayFieldStart("devices");
    for (DeviceInfo device : backend.devices()) {
      json.writeStartObject();
      json.writeNumberField("ordinal", device.ordinal());
      text(json, "name", device.name());
      text(json, "compute_capability", device.computeCapability());
      number(json, "memory_bytes", device.memoryBytes());
      number(json, "free_bytes", device.freeBytes());
      text(json, "pci_address", device.pciAddress());
      json.writeEndObject();
    }
    json.writeEndArray();
  }

  private static void facts(JsonGenerator json, BackendInfo backend) throws IOException {
    json.writeObjectFieldStart("facts");
    for (BackendInfo.Fact fact : backend.facts()) {
      json.writeStringField(fact.name(), fact.value());
    }
    json.writeEndObject();
  }

  private static void text(JsonGenerator json, String name, String value) throws IOException {
    if (value.isEmpty()) {
      json.writeNullField(name);
    } else {
      json.writeStringField(name, value);
    }
  }

  private static void number(JsonGenerator json, String name, long value) throws IOException {
    if (value < 0) {
      json.writeNullField(name);
    } else {
      json.writeNumberField(name, value);
    }
  }
}
