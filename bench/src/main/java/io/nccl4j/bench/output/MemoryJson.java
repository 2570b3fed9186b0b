package io.nccl4j.bench.output;

import io.nccl4j.Backend;
import io.nccl4j.bench.run.MemoryMeasurement;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import io.nccl4j.memory.MemoryReport;
import java.io.PrintStream;
import java.util.EnumSet;
import java.util.Locale;
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
    Json.Fields document =
        new Json.Fields()
            .with("backend", prediction.query().backend().label())
            .with("query", query(prediction.query()))
            .with("predicted", prediction.lines(), MemoryJson::predicted)
            .with("sums", sums(prediction))
            .with("shm_bytes_per_node", prediction.shmBytesPerNode());
    if (measured != null) {
      document.with("measured", measured.steps(), MemoryJson::step);
    }
    Json.print(out, document);
  }

  private static Json.Fields query(MemoryQuery query) {
    Json.Fields values = new Json.Fields();
    for (Lever lever :
        query.backend() == Backend.HOST
            ? EnumSet.range(Lever.NRANKS, Lever.RECEIVE_PEERS)
            : EnumSet.allOf(Lever.class)) {
      values.with(lever.label().replace('-', '_'), Json.known(query.value(lever)));
    }
    return values;
  }

  private static Json.Fields predicted(MemoryPrediction.Line line) {
    return new Json.Fields()
        .with("purpose", line.purpose().label())
        .with("place", line.place().label())
        .with("taken_by", line.when().label())
        .with("bytes", line.bytes())
        .with("basis", line.basis().name().toLowerCase(Locale.ROOT))
        .with("source", line.source());
  }

  private static Json.Fields sums(MemoryPrediction prediction) {
    Json.Fields sums = new Json.Fields();
    for (MemoryPlace place : MemoryPlace.values()) {
      sums.with(place.label(), prediction.bytes(place));
    }
    return sums;
  }

  private static Json.Fields step(MemoryMeasurement.Step step) {
    return new Json.Fields()
        .with("after", step.label())
        .with("ranks", step.ranks(), MemoryJson::report);
  }

  private static Json.Fields report(MemoryReport report) {
    return new Json.Fields()
        .with("of", report.title())
        .with("lines", report.lines(), MemoryJson::line)
        .with("comparisons", report.comparisons(), MemoryJson::comparison);
  }

  private static Json.Fields line(MemoryReport.Line line) {
    return new Json.Fields()
        .with("purpose", line.purpose().label())
        .with("place", line.place().label())
        .with("bytes", line.bytes())
        .with("most_bytes", line.peakBytes())
        .with("basis", line.basis());
  }

  private static Json.Fields comparison(MemoryReport.Comparison comparison) {
    return new Json.Fields()
        .with("what", comparison.what())
        .with("booked_bytes", comparison.bookedBytes())
        .with("booked_basis", comparison.bookedBasis())
        .with("measured_bytes", comparison.measuredBytes())
        .with("measured_basis", comparison.measuredBasis())
        .with("difference_bytes", comparison.differenceBytes());
  }
}
