package io.nccl4j.bench.report;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.OptionalDouble;
import java.util.function.Function;
import java.util.stream.DoubleStream;
import java.util.stream.Stream;

/**
 * What the runs of two sides measured of the same thing.
 *
 * @param base the base's measurements
 * @param changed the changed side's
 * @param turns pairs that were made one after the other, if all were made so: what disturbs a
 *     machine for minutes met both
 */
record Sides(List<Entry> base, List<Entry> changed, List<Turn> turns) {
  /** Lines of one placement differ less than that, lines of different ones more. */
  private static final double PLACEMENT_FACTOR = 2;

  /**
   * One measurement of each side.
   *
   * @param base of the base
   * @param changed of the changed side
   */
  record Turn(Entry base, Entry changed) {
    double logarithm() {
      return Math.log(Samples.median(changed) / Samples.median(base));
    }
  }

  private record Start(Run run, boolean isBase) {}

  /** What the runs have of {@code entries}. */
  static Sides of(List<Run> base, List<Run> changed, Function<Run, List<Entry>> entries) {
    return new Sides(
        base.stream().map(entries).flatMap(List::stream).toList(),
        changed.stream().map(entries).flatMap(List::stream).toList(),
        turns(base, changed, entries));
  }

  /** The turns, by the times at which the runs were started; none where there are no turns. */
  private static List<Turn> turns(
      List<Run> base, List<Run> changed, Function<Run, List<Entry>> entries) {
    List<Start> starts =
        Stream.concat(
                base.stream().map(run -> new Start(run, true)),
                changed.stream().map(run -> new Start(run, false)))
            .sorted(Comparator.comparing(start -> start.run().started()))
            .toList();
    List<Turn> turns = new ArrayList<>();
    for (int i = 0; i + 1 < starts.size(); i += 2) {
      Start first = starts.get(i);
      Start second = starts.get(i + 1);
      if (first.run().started().isEmpty() || first.isBase() == second.isBase()) {
        return List.of();
      }
      List<Entry> mine = entries.apply((first.isBase() ? first : second).run());
      List<Entry> other = entries.apply((first.isBase() ? second : first).run());
      if (mine.size() == 1 && other.size() == 1) {
        Turn turn = new Turn(mine.getFirst(), other.getFirst());
        double least = Math.min(least(turn.base()), least(turn.changed()));
        if (isAt(turn.base(), least) && isAt(turn.changed(), least)) {
          turns.add(turn);
        }
      }
    }
    return starts.size() % 2 == 0 ? turns : List.of();
  }

  /** The same of one turn after the other only. */
  Sides inTurns() {
    return new Sides(
        turns.stream().map(Turn::base).toList(), turns.stream().map(Turn::changed).toList(), turns);
  }

  /** The same without runs that had another placement, or were moved. */
  Sides at(double nanos) {
    return new Sides(
        base.stream().filter(entry -> isAt(entry, nanos)).toList(),
        changed.stream().filter(entry -> isAt(entry, nanos)).toList(),
        turns);
  }

  /**
   * The placement that most runs of both sides share, as its shortest line in ns; NaN if no run
   * knows its own.
   */
  double placement() {
    double best = Double.NaN;
    long most = -1;
    for (double nanos : nanos().toArray()) {
      long mine = base.stream().filter(one -> isAt(one, nanos)).count();
      long other = changed.stream().filter(one -> isAt(one, nanos)).count();
      long weight = 1000 * Math.min(mine, other) + Math.max(mine, other);
      if (weight > most) {
        most = weight;
        best = nanos;
      }
    }
    return best;
  }

  private DoubleStream nanos() {
    return Stream.concat(base.stream(), changed.stream())
        .mapToDouble(Sides::least)
        .filter(nanos -> !Double.isNaN(nanos));
  }

  private static double least(Entry entry) {
    return Math.min(
        entry.line().beforeNanos().orElse(Double.NaN),
        entry.line().afterNanos().orElse(Double.NaN));
  }

  /** Whether a run had that placement all the time; one that does not know is not doubted. */
  private static boolean isAt(Entry entry, double nanos) {
    double least = least(entry);
    if (Double.isNaN(least) || Double.isNaN(nanos)) {
      return true;
    }
    double most =
        Stream.of(entry.line().beforeNanos(), entry.line().afterNanos())
            .flatMapToDouble(OptionalDouble::stream)
            .max()
            .orElse(least);
    return least >= nanos && most <= PLACEMENT_FACTOR * nanos;
  }
}
