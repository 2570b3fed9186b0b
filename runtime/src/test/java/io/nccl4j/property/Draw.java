package io.nccl4j.property;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;

/** Draws the values of one try, and remembers them by name. */
public final class Draw {
  private final RandomGenerator random;
  private final int number;
  private final int tries;
  private final Map<String, String> drawn = new LinkedHashMap<>();

  Draw(long seed, int number, int tries) {
    // SplittableRandom mixes its seed well: neighbouring tries have nothing in common.
    this.random =
        RandomGeneratorFactory.of("SplittableRandom")
            .create(seed + 0x632b_e59b_d9b4_e019L * number);
    this.number = number;
    this.tries = tries;
  }

  public boolean flag(String name) {
    return keep(name, random.nextBoolean());
  }

  /** A number from {@code min} to {@code max}, either included. */
  public int integer(String name, int min, int max) {
    return (int) number(name, min, max);
  }

  /** A number from {@code min} to {@code max}, either included. */
  public long number(String name, long min, long max) {
    return keep(name, next(min, max));
  }

  /** Numbers from {@code min} to {@code max}: none in the first try, {@code size} in the last. */
  public int[] list(String name, int size, int min, int max) {
    int[] list = new int[(int) ((long) size * number / Math.max(1, tries - 1))];
    Arrays.setAll(list, i -> (int) next(min, max));
    keep(name, Arrays.toString(list));
    return list;
  }

  /** Up to {@code size} Latin letters. */
  public String letters(String name, int size) {
    StringBuilder text = new StringBuilder();
    for (int i = (int) next(0, size); i > 0; i--) {
      text.append((char) ((random.nextBoolean() ? 'a' : 'A') + random.nextInt(26)));
    }
    return keep(name, text.toString());
  }

  /** Every eighth lies at a bound or at zero, and every fourth is of any order of magnitude. */
  private long next(long min, long max) {
    int way = random.nextInt(8);
    if (way == 0) {
      long[] edges = {min, max, 0, 1, -1, min + 1, max - 1};
      long edge = edges[random.nextInt(edges.length)];
      return Math.clamp(edge, min, max);
    }
    if (way < 3) {
      long size = random.nextLong() >>> random.nextInt(Long.SIZE);
      long offset = Math.max(min, Math.min(0, max));
      long value = random.nextBoolean() ? offset + size : offset - size;
      return min <= value && value <= max ? value : next(min, max);
    }
    return max == Long.MAX_VALUE
        ? min == Long.MIN_VALUE ? random.nextLong() : random.nextLong(min - 1, max) + 1
        : random.nextLong(min, max + 1);
  }

  private <T> T keep(String name, T value) {
    drawn.put(name, String.valueOf(value));
    return value;
  }

  /** Each value drawn so far on a line of its own. */
  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    drawn.forEach((name, value) -> text.append("\n  ").append(name).append(" = ").append(value));
    return text.toString();
  }
}
