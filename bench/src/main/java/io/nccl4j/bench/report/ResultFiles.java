package io.nccl4j.bench.report;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads result files, whatever wrote them: JSON of nccl4j and of nccl-tests, nccl-tests' table, the
 * comma-separated lines {@code peer,op,bytes,ranks,time_us,algbw,busbw,min_us[,placement]}, and
 * JMH's JSON.
 */
public final class ResultFiles {
  // nccl-tests writes what is not a number as C prints it.
  private static final JsonMapper JSON =
      JsonMapper.builder().enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS).build();

  private final List<Run> runs = new ArrayList<>();
  private final List<JmhScore> scores = new ArrayList<>();

  /** Nothing read yet. */
  public ResultFiles() {}

  /** The runs of collectives, in the order of the files. */
  public List<Run> runs() {
    return List.copyOf(runs);
  }

  /** JMH's results, in the order of the files. */
  public List<JmhScore> scores() {
    return List.copyOf(scores);
  }

  /**
   * Reads one more file.
   *
   * @param file its path; {@code #peer} at its end takes one peer's lines of a file of several, and
   *     {@code name=} before it names its runs
   * @throws InvalidArgumentException if it is none of these, or holds nothing
   * @throws SystemErrorException if it cannot be read
   */
  public ResultFiles add(String file) {
    int equals = Files.exists(Path.of(file)) ? -1 : file.indexOf('=');
    String given = file.substring(0, Math.max(0, equals));
    String place = file.substring(equals + 1);
    int hash = Files.exists(Path.of(place)) ? -1 : place.lastIndexOf('#');
    Path path = Path.of(hash < 0 ? place : place.substring(0, hash));
    String peer = hash < 0 ? "" : place.substring(hash + 1);
    String name = String.valueOf(path.getFileName());
    String text = text(path);
    List<Run> found = new ArrayList<>();
    int scoresBefore = scores.size();
    try {
      String start = text.stripLeading();
      if (start.startsWith("[")) {
        scores.addAll(JmhScore.read(name, JSON.readTree(text)));
      } else if (start.startsWith("{")) {
        found.add(TestsJson.read(name, object(path, JSON.readTree(text))));
      } else if (TestsText.isTable(text)) {
        found.add(TestsText.read(name, text));
      } else {
        found.addAll(PeerLines.read(name, text));
      }
    } catch (JsonProcessingException e) {
      throw unreadable(path, "its JSON is broken: " + e.getOriginalMessage(), e);
    } catch (RuntimeException e) {
      throw e instanceof NcclException known
          ? known
          : unreadable(path, String.valueOf(e.getMessage()), e);
    }
    found.removeIf(run -> run.entries().isEmpty());
    if (!peer.isEmpty()) {
      found.removeIf(run -> !run.name().endsWith("#" + peer));
    }
    if (found.isEmpty() && scores.size() == scoresBefore) {
      throw new InvalidArgumentException(
          file + " contains no results",
          "name a file of nccl4j, nccl-tests, JMH, or of peers' lines");
    }
    found.forEach(
        run ->
            runs.add(
                given.isEmpty() ? run : new Run(given, run.nranks(), run.facts(), run.entries())));
    return this;
  }

  private static JsonNode object(Path path, JsonNode root) {
    if (!root.path("results").isArray() || !root.path("version").isNumber()) {
      throw new InvalidArgumentException(
          path + " is not a result of nccl-tests: it has no version or no results",
          "write one with -J");
    }
    return root;
  }

  private static String text(Path path) {
    try {
      return Files.readString(path);
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException("cannot read " + path + ": " + e, "name an existing file")
              .causedBy(e);
    }
  }

  private static InvalidArgumentException unreadable(Path path, String why, Exception cause) {
    return (InvalidArgumentException)
        new InvalidArgumentException(
                "cannot understand " + path + ": " + why, "write the file again")
            .causedBy(cause);
  }
}
