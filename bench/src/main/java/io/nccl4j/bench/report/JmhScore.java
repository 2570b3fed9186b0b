package io.nccl4j.bench.report;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;

/**
 * One result of JMH.
 *
 * @param file name of the file
 * @param benchmark class and method
 * @param parameters for example {@code bytes=8}; empty if it has none
 * @param mode for example {@code avgt}
 * @param score the mean
 * @param error half of its 99.9 % interval; NaN where there is too little to tell
 * @param unit of both
 */
public record JmhScore(
    String file,
    String benchmark,
    String parameters,
    String mode,
    double score,
    double error,
    String unit) {

  static List<JmhScore> read(String file, JsonNode array) {
    List<JmhScore> scores = new ArrayList<>();
    for (JsonNode one : array) {
      JsonNode metric = one.path("primaryMetric");
      if (!one.has("benchmark") || !metric.path("score").isNumber()) {
        continue;
      }
      String[] names = one.get("benchmark").asText().split("\\.");
      List<String> parameters = new ArrayList<>();
      one.path("params")
          .properties()
          .forEach(entry -> parameters.add(entry.getKey() + "=" + entry.getValue().asText()));
      scores.add(
          new JmhScore(
              file,
              names.length < 2 ? names[0] : names[names.length - 2] + "." + names[names.length - 1],
              String.join(", ", parameters),
              one.path("mode").asText(""),
              metric.get("score").doubleValue(),
              metric.path("scoreError").asDouble(Double.NaN),
              metric.path("scoreUnit").asText("")));
    }
    return scores;
  }
}
