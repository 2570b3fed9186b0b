package io.nccl4j.bench.output;

import static io.nccl4j.bench.output.Json.known;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.DeviceInfo;
import io.nccl4j.BackendInfo.Fact;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.BackendInfo.LibraryInfo;
import io.nccl4j.BackendInfo.TuningInfo;
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
    Json.print(
        out,
        new Json.Fields()
            .with("nccl4j_version", version)
            .with("java", java)
            .with("java_home", home)
            .with("usable", backends.stream().anyMatch(BackendInfo::isUsable))
            .with("backends", backends, InfoJson::all));
  }

  /**
   * Writes how operations are carried out, and a line end.
   *
   * @param rows empty where a library chooses
   */
  public static void writeTuning(
      PrintStream out, String version, Backend backend, int nranks, List<TuningInfo> rows) {
    Json.print(
        out,
        new Json.Fields()
            .with("nccl4j_version", version)
            .with("backend", backend.label())
            .with("nranks", nranks)
            .with("tuning", rows, InfoJson::tuning));
  }

  private static Json.Fields tuning(TuningInfo row) {
    return new Json.Fields()
        .with("operation", row.operation())
        .with("memory", row.memory())
        .with("least_bytes", row.leastBytes())
        .with("most_bytes", row.mostBytes() == Long.MAX_VALUE ? null : row.mostBytes())
        .with("algo", row.algorithm())
        .with("proto", row.protocol())
        .with("chunk_bytes", row.chunkBytes())
        .with("reason", row.reason());
  }

  private static Json.Fields all(BackendInfo backend) {
    return new Json.Fields()
        .with("backend", backend.backend().label())
        .with("usable", backend.isUsable())
        .with("problem", known(backend.problem()))
        .with("remedy", known(backend.remedy()))
        .with(
            "libraries",
            backend.libraries(),
            library -> library(library).with("tried", library.tried()))
        .with("devices", backend.devices(), InfoJson::device)
        .with("features", backend.features(), InfoJson::feature)
        .with("facts", facts(backend));
  }

  /** What a run should keep of it: not what was searched and what it could do. */
  static Json.Fields found(BackendInfo backend) {
    return new Json.Fields()
        .with("backend", backend.backend().label())
        .with("libraries", backend.libraries(), InfoJson::library)
        .with("devices", backend.devices(), InfoJson::device)
        .with("facts", facts(backend));
  }

  private static Json.Fields library(LibraryInfo library) {
    return new Json.Fields()
        .with("name", library.name())
        .with("path", known(library.path()))
        .with("found_by", known(library.foundBy()))
        .with("version", known(library.version()))
        .with("headers", known(library.headers()))
        .with("floor", known(library.floor()))
        .with("problem", known(library.problem()));
  }

  private static Json.Fields device(DeviceInfo device) {
    return new Json.Fields()
        .with("ordinal", device.ordinal())
        .with("name", known(device.name()))
        .with("compute_capability", known(device.computeCapability()))
        .with("memory_bytes", known(device.memoryBytes()))
        .with("free_bytes", known(device.freeBytes()))
        .with("pci_address", known(device.pciAddress()));
  }

  private static Json.Fields feature(FeatureInfo feature) {
    return new Json.Fields()
        .with("name", feature.feature().label())
        .with("present", feature.isPresent())
        .with("needs", known(feature.needs()))
        .with("reason", known(feature.reason()));
  }

  private static Json.Fields facts(BackendInfo backend) {
    Json.Fields facts = new Json.Fields();
    for (Fact fact : backend.facts()) {
      facts.with(fact.name(), fact.value());
    }
    return facts;
  }
}
