package io.nccl4j.bench.report;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.OptionalDouble;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * What the runs of two sides measured of the same thing.
 *
 * @param base the base's measurements
 * @param changed the changed side's
 * @param turns pairs that were made one after the other, if all were made so: what disturbs a
 *     machine for minutes met both
 * @param interleaved whether the rounds of the turns were made in turns, too: then also what
 *     disturbs it for milliseconds, or moves the ranks, met both
 */
record Sides(List<Entry> base, List<Entry> changed, List<Turn> turns, boolean interleaved) {
  /** Lines of one placement differ less than that, lines of different ones more. */
  private static final double PLACEMENT_FACTOR = 2;

  /**
   * One measurement of each side.
   *
   * @param base of the base
   * @param changed of the changed side
   * @param logarithm of the ratio of their times
   */
  record Turn(Entry base, Entry changed, double logarithm) {}

  private record Start(Run run, boolean isBase) {}

  private record Pair(Run base, Run changed) {}

  /** What the runs have of what has these keys: of several, the mean. */
  static Sides of(List<Run> base, List<Run> changed, List<Entry.Key> keys) {
    List<Pair> pairs = interleaved(base, changed);
    boolean interleaved = !pairs.isEmpty();
    if (!interleaved) {
      pairs = inTurns(base, changed);
    }
    List<Turn> turns = new ArrayList<>();
    for (Pair pair : pairs) {
      List<Entry> mine = entries(pair.base(), keys);
      List<Entry> other = entries(pair.changed(), keys);
      if (mine.size() == 1 && other.size() == 1) {
        Entry one = mine.getFirst();
        Entry two = other.getFirst();
        if (interleaved) {
          turns.add(new Turn(one, two, logarithm(pair, keys)));
        } else if (sharePlacement(one, two)) {
          turns.add(new Turn(one, two, Math.log(Samples.median(two) / Samples.median(one))));
        }
      }
    }
    return new Sides(
        base.stream().flatMap(run -> entries(run, keys).stream()).toList(),
        changed.stream().flatMap(run -> entries(run, keys).stream()).toList(),
        turns,
        interleaved);
  }

  /** Of several keys the geometric mean of a run's measurements, if it has all. */
  private static List<Entry> entries(Run run, List<Entry.Key> keys) {
    if (keys.size() == 1) {
      return run.of(keys.getFirst());
    }
    List<Entry> entries = keys.stream().flatMap(key -> run.of(key).stream()).toList();
    return keys.stream().anyMatch(key -> run.of(key).isEmpty())
        ? List.of()
        : List.of(Entry.mean(keys.getFirst().outOfPlace(), entries));
  }

  /** The mean, of all keys, of what half of the rounds are above, each with that of its turn. */
  private static double logarithm(Pair pair, List<Entry.Key> keys) {
    return keys.stream()
        .mapToDouble(
            key -> {
              List<Double> base = rounds(pair.base(), key);
              List<Double> changed = rounds(pair.changed(), key);
              return Samples.median(
                  IntStream.range(0, Math.min(base.size(), changed.size()))
                      .mapToDouble(i -> Math.log(changed.get(i) / base.get(i)))
                      .toArray());
            })
        .average()
        .orElseThrow();
  }

  private static List<Double> rounds(Run run, Entry.Key key) {
    return run.of(key).stream().flatMap(entry -> entry.rounds().stream()).toList();
  }

  /** Runs that took turns round by round, if all did. */
  private static List<Pair> interleaved(List<Run> base, List<Run> changed) {
    List<Pair> pairs = new ArrayList<>();
    for (Run run : base) {
      List<Run> others = changed.stream().filter(one -> one.turns().equals(run.turns())).toList();
      if (run.turns().isEmpty() || others.size() != 1) {
        return List.of();
      }
      pairs.add(new Pair(run, others.getFirst()));
    }
    long different = pairs.stream().map(Pair::changed).distinct().count();
    return different == changed.size() && different == base.size() ? pairs : List.of();
  }

  /** Runs made one after the other, by the times at which they were started, if all were. */
  private static List<Pair> inTurns(List<Run> base, List<Run> changed) {
    List<Start> starts =
        Stream.concat(
                base.stream().map(run -> new Start(run, true)),
                changed.stream().map(run -> new Start(run, false)))
            .sorted(Comparator.comparing(start -> start.run().started()))
            .toList();
    List<Pair> pairs = new ArrayList<>();
    for (int i = 0; i + 1 < starts.size(); i += 2) {
      Start first = starts.get(i);
      Start second = starts.get(i + 1);
      if (first.run().started().isEmpty() || first.isBase() == second.isBase()) {
        return List.of();
      }
      pairs.add(
          first.isBase()
              ? new Pair(first.run(), second.run())
              : new Pair(second.run(), first.run()));
    }
    return starts.size() % 2 == 0 ? pairs : List.of();
  }

  /** The same of one turn after the other only. */
  Sides inTurns() {
    return new Sides(
        turns.stream().map(Turn::base).toList(),
        turns.stream().map(Turn::changed).toList(),
        turns,
        interleaved);
  }

  /** The same without runs that had another placement, or were moved. */
  Sides at(double nanos) {
    return new Sides(
        base.stream().filter(entry -> isAt(entry, nanos)).toList(),
        changed.stream().filter(entry -> isAt(entry, nanos)).toList(),
        turns,
        interleaved);
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

  private static boolean sharePlacement(Entry one, Entry two) {
    double nanos = Math.min(least(one), least(two));
    return isAt(one, nanos) && isAt(two, nanos);
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
