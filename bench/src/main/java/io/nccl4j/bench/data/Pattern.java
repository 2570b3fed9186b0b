package io.nccl4j.bench.data;

import io.nccl4j.DataType;

/**
 * What a buffer holds, or should hold: element <i>i</i> is the table's entry in a column drawn from
 * hash(seed, <i>i</i>). Writing and comparing an element costs about a nanosecond, whatever the
 * reduction and however many ranks went into the table.
 *
 * <p>Immutable; may be shared between threads.
 */
public final class Pattern {
  /** Entries of every table. */
  static final int COLUMNS = 1024;

  private static final int COLUMN_SHIFT = 64 - 10;

  private final DataType type;
  private final long[] bits;
  private final Object table;
  private final long seed;
  private final int tolerance;

  /**
   * A pattern.
   *
   * @param bits the raw bits of each column's element
   * @param seed patterns with different seeds have the same columns in different places
   * @param tolerance how many representable values a result may be off; 0 compares bits
   */
  Pattern(DataType type, long[] bits, long seed, int tolerance) {
    this.type = type;
    this.bits = bits;
    this.table = table(type, bits);
    this.seed = Mix.of(seed);
    this.tolerance = tolerance;
  }

  private static Object table(DataType type, long[] bits) {
    Object table = Elements.newArray(type, bits.length);
    for (int c = 0; c < bits.length; c++) {
      switch (table) {
        case byte[] bytes -> bytes[c] = (byte) bits[c];
        case short[] shorts -> shorts[c] = (short) bits[c];
        case int[] ints -> ints[c] = (int) bits[c];
        default -> ((long[]) table)[c] = bits[c];
      }
    }
    return table;
  }

  /** The columns' elements, in an array of their width. */
  Object table() {
    return table;
  }

  /** What is added to an element's index before its column is drawn. */
  long seed() {
    return seed;
  }

  /** How many representable values a result may be off; 0 compares bits. */
  int tolerance() {
    return tolerance;
  }

  /** The type of the elements. */
  DataType type() {
    return type;
  }

  /** The raw bits of one element. */
  long at(long index) {
    return bits[column(index, seed)];
  }

  private static int column(long index, long seed) {
    long x = (index + seed) * 0x9e3779b97f4a7c15L;
    x = (x ^ x >>> 32) * 0xd6e8feb86659fd93L;
    return (int) (x >>> COLUMN_SHIFT);
  }

  /**
   * Writes elements.
   *
   * @param array receives them from its start
   * @param first index of the first element
   * @param invert whether to write every bit's opposite, which no comparison accepts
   */
  void write(Object array, long first, boolean invert) {
    int flip = invert ? -1 : 0;
    switch (array) {
      case byte[] to -> {
        byte[] from = (byte[]) table;
        for (int i = 0; i < to.length; i++) {
          to[i] = (byte) (from[column(first + i, seed)] ^ flip);
        }
      }
      case short[] to -> {
        short[] from = (short[]) table;
        for (int i = 0; i < to.length; i++) {
          to[i] = (short) (from[column(first + i, seed)] ^ flip);
        }
      }
      case int[] to -> {
        int[] from = (int[]) table;
        for (int i = 0; i < to.length; i++) {
          to[i] = from[column(first + i, seed)] ^ flip;
        }
      }
      default -> {
        long[] to = (long[]) array;
        long[] from = (long[]) table;
        for (int i = 0; i < to.length; i++) {
          to[i] = from[column(first + i, seed)] ^ flip;
        }
      }
    }
  }

  /** What is wrong in {@code array}, whose first element has index {@code first}. */
  Wrong check(Object array, long first) {
    long count = countWrong(array, first);
    if (count == 0) {
      return Wrong.NOTHING;
    }
    int i = 0;
    while (isRight(Elements.bits(array, i), first + i)) {
      i++;
    }
    return new Wrong(count, i, Elements.bits(array, i) & Elements.mask(type), at(first + i));
  }

  private boolean isRight(long got, long index) {
    long expected = at(index);
    return ((got ^ expected) & Elements.mask(type)) == 0
        || tolerance > 0 && Elements.ulps(type, got, expected) <= tolerance;
  }

  /** How many elements of {@code array}, the first of which has index {@code first}, are wrong. */
  long countWrong(Object array, long first) {
    return tolerance == 0 ? countUnequal(array, first) : countBeyondTolerance(array, first);
  }

  private long countUnequal(Object array, long first) {
    long wrong = 0;
    switch (array) {
      case byte[] got -> {
        byte[] expected = (byte[]) table;
        for (int i = 0; i < got.length; i++) {
          wrong += got[i] == expected[column(first + i, seed)] ? 0 : 1;
        }
      }
      case short[] got -> {
        short[] expected = (short[]) table;
        for (int i = 0; i < got.length; i++) {
          wrong += got[i] == expected[column(first + i, seed)] ? 0 : 1;
        }
      }
      case int[] got -> {
        int[] expected = (int[]) table;
        for (int i = 0; i < got.length; i++) {
          wrong += got[i] == expected[column(first + i, seed)] ? 0 : 1;
        }
      }
      default -> {
        long[] got = (long[]) array;
        long[] expected = (long[]) table;
        for (int i = 0; i < got.length; i++) {
          wrong += got[i] == expected[column(first + i, seed)] ? 0 : 1;
        }
      }
    }
    return wrong;
  }

  private long countBeyondTolerance(Object array, long first) {
    long wrong = 0;
    int length = java.lang.reflect.Array.getLength(array);
    for (int i = 0; i < length; i++) {
      wrong += isRight(Elements.bits(array, i), first + i) ? 0 : 1;
    }
    return wrong;
  }
}
