package io.nccl4j.bench.output;

import io.nccl4j.diagnose.Diagnosis;
import io.nccl4j.diagnose.SharedMemorySegment;
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
    Json.Fields document =
        new Json.Fields().with("nccl4j_version", version).with("healthy", diagnosis.isHealthy());
    for (Diagnosis.Status status : Diagnosis.Status.values()) {
      document.with(label(status) + "_count", diagnosis.count(status));
    }
    Json.print(
        out,
        document
            .with("checks", diagnosis.checks(), DiagnosisJson::check)
            .with("segments", diagnosis.segments(), DiagnosisJson::segment)
            .with("removed", removed, DiagnosisJson::segment)
            .with("removed_ids", removedIds, Path::toString));
  }

  private static Json.Fields check(Diagnosis.Check check) {
    return new Json.Fields()
        .with("name", check.name())
        .with("status", label(check.status()))
        .with("found", check.found())
        .with("remedy", Json.known(check.remedy()));
  }

  private static Json.Fields segment(SharedMemorySegment segment) {
    return new Json.Fields()
        .with("path", segment.path())
        .with("bytes", segment.bytes())
        .with("owner", segment.owner())
        .with("age_s", segment.age().toSeconds())
        .with("use", label(segment.use()))
        .with("reason", Json.known(segment.reason()));
  }

  private static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }
}
