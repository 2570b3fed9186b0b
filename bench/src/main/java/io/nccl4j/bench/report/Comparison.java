package io.nccl4j.bench.report;

import io.nccl4j.InvalidArgumentException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Whether something became slower: the runs of a changed program against those of the base, line by
 * line.
 *
 * @param lines what both measured, in the base's order
 * @param together what lines of an operation show together, those up to {@value #SMALL_BYTES} bytes
 *     and those beyond: runs differ by less in the mean of several sizes than in one
 * @param unmatched measurements that only one side has
 * @param base what is compared with
 * @param changed what is compared
 */
public record Comparison(
    List<Line> lines, List<Line> together, int unmatched, List<Run> base, List<Run> changed) {
  /** Runs of each side without which differences are not told from what runs differ by. */
  public static final int LEAST_RUNS = 5;

  /** Up to here an operation's time is that of code and cache lines, beyond it that of data. */
  static final long SMALL_BYTES = 64 << 10;

  private static final int LEAST_ROUNDS = 4;

  /** A difference that "same" may hide without a word. */
  private static final double MOST_HIDDEN = 0.05;

  /** Turns of which it takes fewer than without turns to see the same. */
  private static final int LEAST_TURNS = 8;

  /**
   * How to decide.
   *
   * @param threshold the least difference that is relevant, for example 0.03
   * @param level the part of believed differences that may be chance, for example 0.02
   * @param trustRounds whether rounds of one run count as much as runs: where both sides were
   *     measured in turns, or where runs are known to repeat
   */
  public record Rules(double threshold, double level, boolean trustRounds) {
    /**
     * Checks the numbers.
     *
     * @throws InvalidArgumentException if one is out of range
     */
    public Rules {
      if (!(threshold >= 0 && threshold < 1)) {
        throw new InvalidArgumentException("threshold is " + threshold, "use 0 to below 1");
      }
      if (!(level > 0 && level < 1)) {
        throw new InvalidArgumentException("level is " + level, "use above 0 to below 1");
      }
    }
  }

  /**
   * One measurement on both sides, or several together.
   *
   * @param key what was measured; of several, what they share and the least size
   * @param most the largest size, the key's of one measurement
   * @param baseMicros median of the base's samples in µs
   * @param changedMicros the same of the changed side
   * @param ratio changed by base, the median of all pairs; 1.05 takes 5 % more time
   * @param low lower end of the ratio's 95 % interval
   * @param high upper end
   * @param baseSpread what lies between the quartiles of the base's samples, by their median
   * @param changedSpread the same of the changed side
   * @param baseRuns runs of the base that were used
   * @param changedRuns the same of the changed side
   * @param inTurns whether the runs were made in turns, each run of one side with one of the other
   * @param p probability of such a difference between samples of the same thing; NaN where there
   *     are too few
   * @param lineNanos how long a cache line takes in the runs that were used; NaN if not known
   * @param verdict what follows
   */
  public record Line(
      Entry.Key key,
      long most,
      double baseMicros,
      double changedMicros,
      double ratio,
      double low,
      double high,
      double baseSpread,
      double changedSpread,
      int baseRuns,
      int changedRuns,
      boolean inTurns,
      double p,
      double lineNanos,
      Verdict verdict) {
    private Line with(Verdict other) {
      return new Line(
          key,
          most,
          baseMicros,
          changedMicros,
          ratio,
          low,
          high,
          baseSpread,
          changedSpread,
          baseRuns,
          changedRuns,
          inTurns,
          p,
          lineNanos,
          other);
    }
  }

  /** Copies the lists. */
  public Comparison {
    lines = List.copyOf(lines);
    together = List.copyOf(together);
    base = List.copyOf(base);
    changed = List.copyOf(changed);
  }

  /**
   * That runs differ in nothing that decides more than what is compared, as far as they tell.
   *
   * @throws InvalidArgumentException if they differ in the number of ranks, in which ranks share a
   *     host, or in the network between hosts
   */
  public static void requireAlike(List<Run> base, List<Run> changed) {
    List<Run> all = Stream.concat(base.stream(), changed.stream()).toList();
    requireOne(
        all.stream().map(Run::nranks).filter(ranks -> ranks > 0),
        "have different numbers of ranks",
        "compare runs with the same number of ranks");
    requireOne(
        all.stream().map(Run::hosts).filter(hosts -> !hosts.isEmpty()),
        "have their ranks on different hosts",
        "compare runs in which the same ranks share a host");
    requireOne(
        all.stream().map(Run::network).filter(network -> !network.isEmpty()),
        "used different networks",
        "compare runs over the same network");
  }

  private static void requireOne(Stream<?> values, String difference, String remedy) {
    List<?> different = values.distinct().toList();
    if (different.size() > 1) {
      throw new InvalidArgumentException("the runs " + difference + ": " + different, remedy);
    }
  }

  /**
   * Compares runs.
   *
   * @param base runs of one thing
   * @param changed runs of another one
   * @throws InvalidArgumentException if they have nothing in common, or as {@link #requireAlike}
   */
  public static Comparison of(List<Run> base, List<Run> changed, Rules rules) {
    requireAlike(base, changed);
    Set<Entry.Key> keys = keys(base);
    List<Line> lines = new ArrayList<>();
    int unmatched = 0;
    for (Entry.Key key : keys) {
      Sides sides = Sides.of(base, changed, List.of(key));
      if (sides.changed().isEmpty()) {
        unmatched++;
      } else {
        lines.add(line(key, key.size(), sides, rules));
      }
    }
    unmatched +=
        (int) keys(changed).stream().filter(key -> keys.stream().noneMatch(key::matches)).count();
    if (lines.isEmpty()) {
      throw new InvalidArgumentException(
          "the files have no operation and size in common", "compare runs of the same command");
    }
    // Apart, so that what few lines show together need not be as sure as what one of many does.
    List<Line> together = decided(together(lines, base, changed, rules), rules);
    return new Comparison(decided(lines, rules), together, unmatched, base, changed);
  }

  private static Set<Entry.Key> keys(List<Run> runs) {
    Set<Entry.Key> keys = new LinkedHashSet<>();
    runs.forEach(run -> run.entries().forEach(entry -> keys.add(entry.key())));
    return keys;
  }

  /** Lines for all sizes of a class, where there are several of them, and of runs. */
  private static List<Line> together(
      List<Line> lines, List<Run> base, List<Run> changed, Rules rules) {
    Map<String, List<Entry.Key>> classes = new LinkedHashMap<>();
    for (Line line : lines) {
      Entry.Key key = line.key();
      String name = key.outOfPlace().series() + " " + (key.size() > SMALL_BYTES);
      classes.computeIfAbsent(name, n -> new ArrayList<>()).add(key);
    }
    List<Line> found = new ArrayList<>();
    for (List<Entry.Key> keys : classes.values()) {
      Sides sides = Sides.of(base, changed, keys);
      if (keys.size() > 1
          && sides.base().size() >= LEAST_RUNS
          && sides.changed().size() >= LEAST_RUNS) {
        long most = keys.stream().mapToLong(Entry.Key::size).max().orElseThrow();
        found.add(line(sides.base().getFirst().key(), most, sides, rules));
      }
    }
    return found;
  }

  private static Line line(Entry.Key key, long most, Sides all, Rules rules) {
    if (all.turns().size() >= LEAST_TURNS) {
      Sides turns = all.inTurns();
      double[] logarithms = turns.turns().stream().mapToDouble(Sides.Turn::logarithm).toArray();
      return line(key, most, turns, Difference.ofTurns(logarithms), Verdict.SAME);
    }
    // What moved the ranks of one side moved those of the other.
    Sides sides = all.interleaved() ? all : all.at(all.placement());
    if (sides.base().isEmpty() || sides.changed().isEmpty()) {
      double before = Samples.ofRuns(all.base()).median();
      double after = Samples.ofRuns(all.changed()).median();
      double none = Double.NaN;
      Difference unknown = new Difference(after / before, none, none, none);
      return line(key, most, all, unknown, Verdict.NOT_COMPARABLE);
    }
    boolean enough = sides.base().size() >= LEAST_RUNS && sides.changed().size() >= LEAST_RUNS;
    Samples before = enough ? Samples.ofRuns(sides.base()) : Samples.ofRounds(sides.base());
    Samples after = enough ? Samples.ofRuns(sides.changed()) : Samples.ofRounds(sides.changed());
    Difference difference = Difference.of(before, after);
    boolean tested = before.count() >= LEAST_ROUNDS && after.count() >= LEAST_ROUNDS;
    return line(
        key,
        most,
        sides,
        tested ? difference : difference.untested(),
        tested && (enough || rules.trustRounds()) ? Verdict.SAME : Verdict.UNSURE);
  }

  private static Line line(
      Entry.Key key, long most, Sides sides, Difference difference, Verdict verdict) {
    Samples before = Samples.ofRuns(sides.base());
    Samples after = Samples.ofRuns(sides.changed());
    boolean wrong = sides.changed().stream().anyMatch(entry -> entry.wrong().orElse(0) > 0);
    return new Line(
        key,
        most,
        before.median(),
        after.median(),
        difference.ratio(),
        difference.low(),
        difference.high(),
        before.spread(),
        after.spread(),
        sides.base().size(),
        sides.changed().size(),
        sides.turns().size() >= LEAST_TURNS,
        difference.p(),
        verdict == Verdict.NOT_COMPARABLE ? Double.NaN : sides.placement(),
        wrong ? Verdict.WRONG : verdict);
  }

  /** Changes the verdicts of lines whose difference is believed and relevant. */
  private static List<Line> decided(List<Line> lines, Rules rules) {
    List<Line> tested = lines.stream().filter(line -> !Double.isNaN(line.p())).toList();
    boolean[] believed =
        Difference.believed(tested.stream().mapToDouble(Line::p).toArray(), rules.level());
    List<Line> decided = new ArrayList<>();
    int next = 0;
    for (Line line : lines) {
      boolean differs = Double.isNaN(line.p()) ? isRelevant(line, rules) : believed[next++];
      decided.add(line.with(verdict(line, differs && isRelevant(line, rules))));
    }
    return decided;
  }

  private static boolean isRelevant(Line line, Rules rules) {
    return Math.abs(Math.log(line.ratio())) > Math.log1p(rules.threshold());
  }

  private static Verdict verdict(Line line, boolean differs) {
    return switch (line.verdict()) {
      case SAME -> !differs ? Verdict.SAME : line.ratio() > 1 ? Verdict.WORSE : Verdict.BETTER;
      case UNSURE -> differs ? Verdict.UNSURE : Verdict.SAME;
      default -> line.verdict();
    };
  }

  /** All lines, those for several measurements last. */
  List<Line> all() {
    return Stream.concat(lines.stream(), together.stream()).toList();
  }

  /** How many lines have a verdict, those for several measurements too. */
  public long count(Verdict verdict) {
    return all().stream().filter(line -> line.verdict() == verdict).count();
  }

  /** The worst that was found, in the order of {@link Verdict}'s weight for a program of checks. */
  public Verdict worst() {
    for (Verdict verdict : List.of(Verdict.WRONG, Verdict.WORSE)) {
      if (count(verdict) > 0) {
        return verdict;
      }
    }
    return count(Verdict.NOT_COMPARABLE) == all().size() ? Verdict.NOT_COMPARABLE : Verdict.SAME;
  }

  /** What to do for a better answer, in one line; null if there is nothing. */
  public @Nullable String advice() {
    if (count(Verdict.UNSURE) > 0) {
      return "one run cannot tell a change from the usual differences between runs: give "
          + LEAST_RUNS
          + " or more files per side, measured in turns, or use --trust-rounds";
    }
    if (count(Verdict.NOT_COMPARABLE) > 0) {
      return "lines are not comparable where the processors were not equally far apart: run again";
    }
    double hidden = hidden();
    return hidden > MOST_HIDDEN
        ? String.format(
            Locale.ROOT,
            "'same' can hide a difference of up to %.0f %%, by the intervals: more runs narrow"
                + " them",
            100 * hidden)
        : null;
  }

  /** The largest difference that an interval of a line called the same has room for. */
  private double hidden() {
    return lines.stream()
        .filter(line -> line.verdict() == Verdict.SAME && !Double.isNaN(line.low()))
        .mapToDouble(line -> Math.max(line.high() - 1, 1 - line.low()))
        .max()
        .orElse(0);
  }
}
