package io.nccl4j.bench.output;

import io.nccl4j.bench.run.FirstCall;
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
      String backend,
      List<FirstCall.Times> cold,
      List<FirstCall.Times> warm,
      List<FirstCall.Summary> summaries) {
    Json.Fields document =
        new Json.Fields()
            .with("nccl4j_version", version)
            .with("backend", backend)
            .with("size", FirstCall.BYTES)
            .with("results", summaries, FirstCallJson::summary)
            .with("cold", cold, FirstCallJson::times)
            .with("warm", warm, FirstCallJson::times);
    try (JsonFile written = JsonFile.create(file)) {
      written.write(json -> Json.write(json, document));
      return written.path();
    }
  }

  private static Json.Fields summary(FirstCall.Summary summary) {
    return new Json.Fields()
        .with("operation", summary.operation().label())
        .with("pairs", summary.pairs())
        .with("cold_median_us", summary.coldMedian())
        .with("cold_max_us", summary.coldMost())
        .with("warm_median_us", summary.warmMedian())
        .with("warm_max_us", summary.warmMost())
        .with("steady_median_us", summary.steadyMedian())
        .with("steady_p99_us", summary.steadyP99())
        .with("goal_us", summary.goal())
        .with("goal_met", summary.meetsGoal());
  }

  private static Json.Fields times(FirstCall.Times times) {
    return new Json.Fields()
        .with("operation", times.operation().label())
        .with("first_us", times.first())
        .with("steady_median_us", times.median())
        .with("steady_p99_us", times.p99());
  }
}
