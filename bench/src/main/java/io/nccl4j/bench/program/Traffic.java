package io.nccl4j.bench.program;

import io.nccl4j.InvalidArgumentException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How many bytes each rank sends to each other in {@code alltoallv_perf}: the rows of a file, or a
 * share that grows with the distance of the two. All numbers are rounded down to 16 bytes. The
 * variables are those of nccl-tests; what they cannot mean is refused. Immutable.
 */
public final class Traffic {
  /** Names a file with a square of numbers: in row <i>i</i>, what rank <i>i</i> sends to each. */
  public static final String FILE = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE";

  /** What the file's numbers are multiplied with. */
  public static final String SCALE = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE";

  /** Without a file: 0 for the same to each rank, 1 for shares that grow with the distance. */
  public static final String SPREAD = "NCCL_TESTS_ALLTOALLV_SPREAD";

  /** Set to 1 for a summary behind each line of the table. */
  public static final String SUMMARY = "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY";

  private final double spread;
  private final @Nullable Path file;
  private final long[][] matrix;
  private final boolean summary;

  private Traffic(double spread, @Nullable Path file, long[][] matrix, boolean summary) {
    this.spread = spread;
    this.file = file;
    this.matrix = matrix;
    this.summary = summary;
  }

  /** Shares that grow with the distance. */
  static Traffic byDistance() {
    return new Traffic(1, null, new long[0][], false);
  }

  /**
   * What the variables say.
   *
   * @throws InvalidArgumentException if one cannot be understood, or the file not be read
   */
  public static Traffic of(Map<String, String> environment) {
    boolean summary = summary(environment.getOrDefault(SUMMARY, "0"));
    double spread = number(environment, SPREAD, 1, 1);
    double scale = number(environment, SCALE, 1, Double.MAX_VALUE);
    String name = environment.get(FILE);
    if (name == null) {
      return new Traffic(spread, null, new long[0][], summary);
    }
    Path file = Path.of(name);
    return new Traffic(spread, file, read(file, scale), summary);
  }

  private static boolean summary(String text) {
    if (!text.equals("0") && !text.equals("1")) {
      throw new InvalidArgumentException(SUMMARY + " is '" + text + "'", "use 0 or 1");
    }
    return text.equals("1");
  }

  private static double number(
      Map<String, String> environment, String variable, double standard, double most) {
    String text = environment.get(variable);
    if (text == null) {
      return standard;
    }
    double value;
    try {
      value = Double.parseDouble(text);
    } catch (NumberFormatException e) {
      value = Double.NaN;
    }
    // Not a number fails both.
    if (!(value >= 0 && value <= most)) {
      throw new InvalidArgumentException(
          variable + " is '" + text + "'",
          most == 1 ? "use a number from 0 to 1" : "use a number that is not negative");
    }
    return value;
  }

  private static long[][] read(Path file, double scale) {
    List<String> lines;
    try {
      lines = Files.readAllLines(file).stream().map(String::strip).toList();
    } catch (IOException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  "cannot read the matrix " + file + ": " + e, "correct " + FILE)
              .causedBy(e);
    }
    List<long[]> rows = new ArrayList<>();
    for (int i = 0; i < lines.size(); i++) {
      if (!lines.get(i).isEmpty()) {
        rows.add(row(file, i + 1, lines.get(i), scale));
      }
    }
    for (long[] row : rows) {
      if (row.length != rows.size()) {
        throw new InvalidArgumentException(
            "the matrix "
                + file
                + " has "
                + rows.size()
                + " rows, and a row of "
                + row.length
                + " numbers",
            "give as many numbers in each row as there are rows");
      }
    }
    if (rows.isEmpty()) {
      throw new InvalidArgumentException("the matrix " + file + " is empty", "give a row per rank");
    }
    return rows.toArray(long[][]::new);
  }

  private static long[] row(Path file, int line, String text, double scale) {
    String[] words = text.split("\\s+");
    long[] row = new long[words.length];
    for (int i = 0; i < row.length; i++) {
      double bytes;
      try {
        bytes = Double.parseDouble(words[i]) * scale;
      } catch (NumberFormatException e) {
        bytes = Double.NaN;
      }
      if (!(bytes >= 0 && bytes < 1L << 62)) {
        throw new InvalidArgumentException(
            "'" + words[i] + "' in line " + line + " of " + file + " is not a number of bytes",
            "use numbers from 0 to 2^62, with " + SCALE);
      }
      row[i] = (long) bytes & -16L;
    }
    return row;
  }

  /** The file that was read; null if there is none. */
  @Nullable Path file() {
    return file;
  }

  /** Whether what each rank moved is to be printed. */
  public boolean summary() {
    return summary;
  }

  /** Rows of the file. */
  public int rows() {
    return matrix.length;
  }

  /** In words and numbers, for the summary. */
  public String describe() {
    return file == null ? "generated, spread " + spread : "matrix " + file;
  }

  /**
   * What one rank sends to another.
   *
   * @param total bytes that each rank sends to all others together, if there is no file
   */
  public long bytes(int from, int to, int nranks, long total) {
    if (file != null) {
      return matrix[from][to];
    }
    if (nranks == 1) {
      return total & -16L;
    }
    long distances = (long) nranks * (nranks - 1) / 2;
    double even = (double) total / nranks;
    double byDistance = (double) Math.floorMod(to - from, nranks) * total / distances;
    return (long) ((1 - spread) * even + spread * byDistance) & -16L;
  }

  /** What a rank sends to the ranks before {@code peer}; to all for nranks. */
  public long sentBefore(int peer, int rank, int nranks, long total) {
    long sum = 0;
    for (int to = 0; to < peer; to++) {
      sum += bytes(rank, to, nranks, total);
    }
    return sum;
  }

  /** What a rank receives from the ranks before {@code peer}; from all for nranks. */
  public long receivedBefore(int peer, int rank, int nranks, long total) {
    long sum = 0;
    for (int from = 0; from < peer; from++) {
      sum += bytes(from, rank, nranks, total);
    }
    return sum;
  }
}
