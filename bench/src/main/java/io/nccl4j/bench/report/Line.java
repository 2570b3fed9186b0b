package io.nccl4j.bench.report;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.Set;
import java.util.function.Function;

/**
 * A run's measurements of one kind.
 *
 * @param run the run's name
 * @param series what all of them measure
 * @param colour number of its colour
 * @param entries rising by size
 */
record Line(String run, Entry.Key series, int colour, List<Entry> entries) {
  /** Numbers of colours start again after these. */
  static final int COLOURS = 8;

  /** The operations that these runs have measured, in their order. */
  static Set<String> operations(List<Run> runs) {
    Set<String> operations = new LinkedHashSet<>();
    runs.forEach(run -> run.entries().forEach(entry -> operations.add(entry.key().operation())));
    return operations;
  }

  /** One colour for a run's type, reduction and root; in place and not share it. */
  static List<Line> of(List<Run> runs, String operation) {
    Map<List<Object>, Integer> colours = new LinkedHashMap<>();
    List<Line> lines = new ArrayList<>();
    for (int i = 0; i < runs.size(); i++) {
      Map<Entry.Key, List<Entry>> found = new LinkedHashMap<>();
      for (Entry entry : runs.get(i).entries()) {
        if (entry.key().operation().equals(operation)) {
          found.computeIfAbsent(entry.key().series(), key -> new ArrayList<>()).add(entry);
        }
      }
      for (Map.Entry<Entry.Key, List<Entry>> one : found.entrySet()) {
        Entry.Key key = one.getKey();
        List<Object> kind = List.of(i, key.type(), key.redop(), key.root());
        int colour = colours.computeIfAbsent(kind, none -> colours.size()) % COLOURS;
        one.getValue().sort(Comparator.comparingLong(entry -> entry.key().size()));
        lines.add(new Line(runs.get(i).name(), key, colour, one.getValue()));
      }
    }
    return lines;
  }

  Optional<Entry> at(long size) {
    return entries.stream().filter(entry -> entry.key().size() == size).findFirst();
  }

  /** What a legend says. */
  String label() {
    String label = series.label();
    return run + (label.isEmpty() ? "" : " · " + label);
  }

  /** As it is drawn: what is above 0. */
  LogChart.Series drawn(Function<Entry, OptionalDouble> value) {
    List<LogChart.Point> points = new ArrayList<>();
    for (Entry entry : entries) {
      OptionalDouble one = value.apply(entry);
      if (entry.key().size() > 0 && one.isPresent() && one.getAsDouble() > 0) {
        points.add(new LogChart.Point(entry.key().size(), one.getAsDouble()));
      }
    }
    return new LogChart.Series(label(), colour, series.inPlace(), points);
  }
}
