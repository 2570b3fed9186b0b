package io.nccl4j.bench.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.result.LineLatency;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Made-up times with the noise that was seen: skewed, alike in a row, different between runs. */
class ComparisonTest {
  private static final Comparison.Rules RULES = new Comparison.Rules(0.03, 0.02, false);
  private static final Comparison.Rules ROUNDS = new Comparison.Rules(0.03, 0.02, true);
  private static final long[] SIZES = {8, 1 << 10, 1 << 20, 16 << 20};
  private static final int TRIES = 200;

  /** 19 of 20. */
  private static final int MOST = TRIES * 19 / 20;

  private final Random random = new Random(20260301);

  /**
   * A run whose large sizes take {@code factor} times as long.
   *
   * @param between how much runs differ, as a standard deviation
   * @param within the same of rounds
   * @param alike correlation of a round with the next one
   */
  private Run run(double factor, double between, double within, double alike, double nanos) {
    List<Entry> entries = new ArrayList<>();
    for (long size : SIZES) {
      double micros = (1 + size / 20e3) * Math.exp(between * random.nextGaussian());
      micros *= size >= 1 << 20 ? factor : 1;
      List<Double> rounds = new ArrayList<>();
      double noise = random.nextGaussian();
      for (int i = 0; i < 40; i++) {
        noise = alike * noise + Math.sqrt(1 - alike * alike) * random.nextGaussian();
        double hiccup = random.nextInt(20) == 0 ? 3 : 1;
        rounds.add(micros * Math.exp(within * noise) * hiccup);
      }
      entries.add(entry(size, rounds, nanos, nanos));
    }
    return new Run("run", 2, Map.of(), entries);
  }

  private static Entry entry(long size, List<Double> rounds, double before, double after) {
    return new Entry(
        new Entry.Key("allreduce", "float", "sum", "-1", false, size),
        rounds.getFirst(),
        OptionalDouble.of(1),
        OptionalDouble.of(1),
        OptionalLong.of(0),
        rounds,
        new LineLatency(OptionalDouble.of(before), OptionalDouble.of(after)));
  }

  private List<Run> runs(int count, double factor, double between, double within) {
    List<Run> runs = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      runs.add(run(factor, between, within, 0.7, 26));
    }
    return runs;
  }

  @Test
  void theSameThingIsTheSame() {
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
      Comparison found = Comparison.of(runs(6, 1, 0.2, 0.05), runs(6, 1, 0.2, 0.05), RULES);
      same += found.count(Verdict.SAME) == SIZES.length + 2 ? 1 : 0;
    }
    assertTrue(same >= MOST, "same in " + same + " of " + TRIES);
  }

  /** Runs that differ by so much hide it in each size; in the mean of sizes they differ less. */
  @Test
  void fivePercentAreFoundInManySizesTogether() {
    int found = 0;
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
      Comparison slow = Comparison.of(manySizes(8, 1), manySizes(8, 1.05), RULES);
      assertEquals(1, slow.together().size());
      found += slow.together().getFirst().verdict() == Verdict.WORSE ? 1 : 0;
      Comparison alike = Comparison.of(manySizes(8, 1), manySizes(8, 1), RULES);
      same += alike.worst() == Verdict.SAME ? 1 : 0;
    }
    assertTrue(found >= MOST, "found in " + found + " of " + TRIES);
    assertTrue(same >= MOST, "same in " + same + " of " + TRIES);
  }

  /**
   * Runs of both sides in turns, on a machine that becomes faster and slower and changes placement.
   */
  private List<List<Run>> turns(int count, double factor) {
    List<Run> base = new ArrayList<>();
    List<Run> changed = new ArrayList<>();
    for (int turn = 0; turn < count; turn++) {
      boolean far = turn % 2 == 0;
      double speed = Math.exp(0.1 * random.nextGaussian()) * (far ? 2 : 1);
      for (boolean isBase : new boolean[] {true, false}) {
        double own = speed * Math.exp(0.015 * random.nextGaussian()) * (isBase ? 1 : factor);
        Map<String, String> facts =
            Map.of("started", String.format("2026-11-20 10:%02d:%02d", turn, isBase ? 5 : 35));
        Entry entry = entry(1 << 20, List.of(50 * own), far ? 140 : 26, far ? 140 : 26);
        (isBase ? base : changed).add(new Run("run", 2, facts, List.of(entry)));
      }
    }
    return List.of(base, changed);
  }

  @Test
  void fivePercentAreFoundInTurns() {
    int found = 0;
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
      List<List<Run>> slow = turns(12, 1.05);
      Comparison.Line line = Comparison.of(slow.get(0), slow.get(1), RULES).lines().getFirst();
      assertTrue(line.inTurns());
      assertEquals(12, line.baseRuns(), "of both placements");
      assertTrue(line.low() < line.ratio() && line.ratio() < line.high(), line.toString());
      found += line.verdict() == Verdict.WORSE ? 1 : 0;
      List<List<Run>> alike = turns(12, 1);
      same += Comparison.of(alike.get(0), alike.get(1), RULES).count(Verdict.SAME) == 1 ? 1 : 0;
    }
    assertTrue(found >= MOST, "found in " + found + " of " + TRIES);
    assertTrue(same >= MOST, "same in " + same + " of " + TRIES);
  }

  /**
   * Runs of both sides whose rounds were made in turns, on a machine whose speed changes all the
   * time and which moves the ranks.
   */
  private List<List<Run>> interleaved(int pairs, double factor) {
    List<Run> base = new ArrayList<>();
    List<Run> changed = new ArrayList<>();
    for (int pair = 0; pair < pairs; pair++) {
      List<Double> one = new ArrayList<>();
      List<Double> other = new ArrayList<>();
      double speed = 0;
      boolean far = false;
      for (int i = 0; i < 30; i++) {
        speed += 0.05 * random.nextGaussian();
        far ^= random.nextInt(10) == 0;
        double micros = 50 * Math.exp(speed) * (far ? 2 : 1);
        one.add(micros * Math.exp(0.05 * random.nextGaussian()));
        other.add(micros * factor * Math.exp(0.05 * random.nextGaussian()));
      }
      Map<String, String> facts = Map.of("turns", "turns-1-" + pair);
      base.add(new Run("run", 2, facts, List.of(entry(1 << 20, one, 26, far ? 140 : 26))));
      changed.add(new Run("run", 2, facts, List.of(entry(1 << 20, other, far ? 140 : 26, 26))));
    }
    return List.of(base, changed);
  }

  @Test
  void fivePercentAreFoundInRoundsInTurns() {
    int found = 0;
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
      List<List<Run>> slow = interleaved(8, 1.05);
      Comparison.Line line = Comparison.of(slow.get(0), slow.get(1), RULES).lines().getFirst();
      assertTrue(line.inTurns());
      assertEquals(8, line.baseRuns(), "of all placements");
      found += line.verdict() == Verdict.WORSE ? 1 : 0;
      List<List<Run>> alike = interleaved(8, 1);
      same += Comparison.of(alike.get(0), alike.get(1), RULES).count(Verdict.SAME) == 1 ? 1 : 0;
    }
    assertTrue(found >= MOST, "found in " + found + " of " + TRIES);
    assertTrue(same >= MOST, "same in " + same + " of " + TRIES);
  }

  @Test
  void aRunIsComparedRoundByRoundWithTheOneItTookTurnsWithOnly() {
    List<List<Run>> sides = interleaved(8, 1);
    List<Run> shuffled = new ArrayList<>(sides.get(1));
    Collections.shuffle(shuffled, random);
    Comparison.Line line = Comparison.of(sides.get(0), sides.get(1), RULES).lines().getFirst();
    Comparison.Line other = Comparison.of(sides.get(0), shuffled, RULES).lines().getFirst();
    assertEquals(line.ratio(), other.ratio(), 1e-12, "whatever the order of the files");
    List<Run> strangers = interleaved(8, 1).get(1);
    strangers.set(0, new Run("run", 2, Map.of("turns", "others"), strangers.get(0).entries()));
    assertFalse(Comparison.of(sides.get(0), strangers, RULES).lines().getFirst().inTurns());
    List<Run> twice = new ArrayList<>(sides.get(1).subList(0, 7));
    twice.add(twice.getFirst());
    assertFalse(Comparison.of(sides.get(0), twice, RULES).lines().getFirst().inTurns());
    List<Run> few = sides.get(0).subList(0, 5);
    Comparison.Line five = Comparison.of(few, sides.get(1).subList(0, 5), RULES).lines().getFirst();
    assertEquals(5, five.baseRuns(), "wherever the ranks were");
    assertFalse(five.inTurns());
  }

  @Test
  void runsThatWereNotMadeInTurnsAreNoTurns() {
    List<List<Run>> sides = turns(12, 1);
    List<Run> base = new ArrayList<>(sides.get(0));
    List<Run> changed = new ArrayList<>(sides.get(1));
    base.add(changed.removeLast());
    changed.add(base.remove(10));
    assertFalse(Comparison.of(base, changed, RULES).lines().getFirst().inTurns(), "two in a row");
    List<Run> fewer = sides.get(1).subList(1, 12);
    assertFalse(Comparison.of(sides.get(0), fewer, RULES).lines().getFirst().inTurns(), "one less");
    List<List<Run>> few = turns(7, 1);
    assertFalse(Comparison.of(few.get(0), few.get(1), RULES).lines().getFirst().inTurns(), "few");
  }

  private List<Run> manySizes(int count, double factor) {
    List<Run> runs = new ArrayList<>();
    for (int r = 0; r < count; r++) {
      List<Entry> entries = new ArrayList<>();
      for (long size = 1 << 20; size <= 128 << 20; size *= 2) {
        double micros = size / 20e3 * factor * Math.exp(0.05 * random.nextGaussian());
        entries.add(entry(size, List.of(micros), 26, 26));
      }
      runs.add(new Run("run", 2, Map.of(), entries));
    }
    return runs;
  }

  @Test
  void aRunWithoutAllSizesHasNoMean() {
    List<Run> whole = runs(5, 1, 0.01, 0.01);
    List<Run> part = new ArrayList<>(whole.subList(0, 4));
    Run last = whole.get(4);
    part.add(new Run("part", 2, Map.of(), last.entries().subList(0, 3)));
    Comparison found = Comparison.of(whole, part, RULES);
    assertEquals(
        List.of(1L << 10),
        found.together().stream().map(Comparison.Line::most).toList(),
        "only the small sizes are in five runs");
    assertEquals(8, found.together().getFirst().key().size());
  }

  @Test
  void fivePercentOfLargeSizesAreFound() {
    for (int i = 0; i < TRIES; i++) {
      Comparison found = Comparison.of(runs(8, 1, 0.003, 0.01), runs(8, 1.05, 0.003, 0.01), RULES);
      List<Verdict> verdicts = found.lines().stream().map(Comparison.Line::verdict).toList();
      assertEquals(List.of(Verdict.SAME, Verdict.SAME, Verdict.WORSE, Verdict.WORSE), verdicts);
      assertEquals(Verdict.WORSE, found.worst());
      Comparison back = Comparison.of(runs(8, 1.05, 0.003, 0.01), runs(8, 1, 0.003, 0.01), RULES);
      assertEquals(Verdict.BETTER, back.lines().getLast().verdict());
      assertEquals(Verdict.BETTER, back.together().getLast().verdict());
      assertEquals(Verdict.SAME, back.worst());
    }
  }

  /** What follows each other is alike: without blocks the test would see differences everywhere. */
  @Test
  void correlatedRoundsAreNoDifference() {
    int same = 0;
    for (int i = 0; i < TRIES; i++) {
      Comparison found =
          Comparison.of(
              List.of(run(1, 0, 0.05, 0.6, 26)), List.of(run(1, 0, 0.05, 0.6, 26)), ROUNDS);
      same += found.count(Verdict.SAME) == SIZES.length ? 1 : 0;
    }
    assertTrue(same >= MOST, "same in " + same + " of " + TRIES);
  }

  @Test
  void oneRunIsNotTrusted() {
    List<Run> base = List.of(run(1, 0, 0.01, 0, 26));
    List<Run> slow = List.of(run(1.5, 0, 0.01, 0, 26));
    Comparison careful = Comparison.of(base, slow, RULES);
    assertEquals(Verdict.UNSURE, careful.lines().getLast().verdict());
    assertEquals(Verdict.SAME, careful.worst());
    assertTrue(String.valueOf(careful.advice()).contains("5 or more files"), careful.advice());
    assertEquals(Verdict.WORSE, Comparison.of(base, slow, ROUNDS).worst());
  }

  @Test
  void whatTheSameCanHideIsSaid() {
    Comparison noisy = Comparison.of(runs(6, 1, 0.2, 0.05), runs(6, 1, 0.2, 0.05), RULES);
    assertTrue(String.valueOf(noisy.advice()).startsWith("'same' can hide a difference of up to "));
    Comparison calm = Comparison.of(runs(6, 1, 0.001, 0.001), runs(6, 1, 0.001, 0.001), RULES);
    assertNull(calm.advice());
  }

  @Test
  void placementsAreNotMixed() {
    List<Run> near = List.of(run(1, 0, 0.01, 0, 26));
    List<Run> far = List.of(run(1, 0, 0.01, 0, 140));
    Comparison found = Comparison.of(near, far, ROUNDS);
    assertEquals(SIZES.length, found.count(Verdict.NOT_COMPARABLE));
    assertEquals(Verdict.NOT_COMPARABLE, found.worst());
    // Of several runs those are taken that were placed alike.
    List<Run> both = List.of(run(1, 0, 0.01, 0, 139), run(1, 0, 0.01, 0, 27), far.getFirst());
    Comparison part = Comparison.of(far, both, ROUNDS);
    assertEquals(SIZES.length, part.count(Verdict.SAME));
    assertEquals(2, part.lines().getFirst().changedRuns());
  }

  @Test
  void aRunThatWasMovedIsLeftOut() {
    List<Double> rounds = List.of(1.0, 1.0, 1.0, 1.0);
    Run moved = new Run("a", 2, Map.of(), List.of(entry(8, rounds, 26, 140)));
    Run stayed = new Run("b", 2, Map.of(), List.of(entry(8, rounds, 26, 27)));
    assertEquals(
        Verdict.NOT_COMPARABLE,
        Comparison.of(List.of(stayed), List.of(moved), ROUNDS).lines().getFirst().verdict());
  }

  @Test
  void wrongElementsAreWorseThanTime() {
    Entry good = entry(8, List.of(1.0, 1.1, 0.9, 1.0), 26, 26);
    Entry bad =
        new Entry(
            good.key(),
            1,
            good.algBw(),
            good.busBw(),
            OptionalLong.of(3),
            good.rounds(),
            good.line());
    Comparison found =
        Comparison.of(
            List.of(new Run("a", 2, Map.of(), List.of(good))),
            List.of(new Run("b", 2, Map.of(), List.of(bad))),
            RULES);
    assertEquals(Verdict.WRONG, found.worst());
  }

  @Test
  void refusesWhatHasNothingInCommon() {
    Run two = run(1, 0, 0, 0, 26);
    Run four = new Run("four", 4, Map.of(), two.entries());
    Run none = new Run("none", 2, Map.of(), List.of());
    assertThrows(
        InvalidArgumentException.class, () -> Comparison.of(List.of(two), List.of(four), RULES));
    assertThrows(
        InvalidArgumentException.class, () -> Comparison.of(List.of(two), List.of(none), RULES));
  }

  @Test
  void refusesOtherHostsAndOtherNetworks() {
    Run lan = on("ranks 0 | 1", "netty (TCP) on eth0");
    assertRefused("ranks on different hosts", lan, on("ranks 0-1", ""));
    assertRefused("different networks", lan, on("ranks 0 | 1", "netty (TCP) on lo"));
    assertEquals(Verdict.SAME, Comparison.of(List.of(lan), List.of(lan), ROUNDS).worst());
    // A file that does not tell is not refused.
    Comparison.requireAlike(List.of(lan), List.of(on("", "")));
    Comparison.requireAlike(List.of(lan), List.of(on("ranks 0 | 1", "")));
  }

  private Run on(String hosts, String network) {
    return new Run(
        "run", 2, Map.of("hosts", hosts, "network", network), run(1, 0, 0, 0, 26).entries());
  }

  private static void assertRefused(String how, Run base, Run changed) {
    InvalidArgumentException e =
        assertThrows(
            InvalidArgumentException.class,
            () -> Comparison.of(List.of(base), List.of(changed), RULES));
    assertTrue(e.getMessage().contains(how), e.getMessage());
  }

  /** However long a label is, every line has its numbers below their titles. */
  @Test
  void columnsAreAsWideAsTheirLabels() {
    List<Entry> entries = new ArrayList<>();
    for (boolean inPlace : new boolean[] {false, true}) {
      entries.add(
          new Entry(
              new Entry.Key("allreduce", "bfloat16", "mulsum", "3", inPlace, 64),
              1.5,
              OptionalDouble.of(1),
              OptionalDouble.of(1),
              OptionalLong.of(0),
              List.of(1.5, 1.5),
              new LineLatency(OptionalDouble.of(26), OptionalDouble.of(26))));
    }
    List<Run> side = List.of(new Run("run", 2, Map.of(), entries));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ComparisonWriter.writeText(
        Comparison.of(side, side, RULES), new PrintStream(out, true, StandardCharsets.UTF_8));
    List<String> lines = out.toString(StandardCharsets.UTF_8).lines().toList();
    int end = lines.get(3).indexOf("(B)") + 3;
    List<String> rows = lines.stream().filter(line -> line.startsWith(" allreduce")).toList();
    assertTrue(rows.size() >= 2, rows::toString);
    for (String row : rows) {
      assertTrue(row.substring(0, end).endsWith(" 64"), row);
    }
  }

  @Test
  void beliefIsShared() {
    double[] p = {0.001, 0.5, 0.012, 0.014};
    boolean[] believed = Difference.believed(p, 0.02);
    assertTrue(believed[0] && !believed[1] && believed[2] && believed[3]);
    assertEquals(0, Samples.blocks(new double[] {1, 1, 1, 1}).length - 4);
  }
}
