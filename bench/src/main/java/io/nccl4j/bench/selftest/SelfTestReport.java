package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.bench.output.Json;
import java.io.PrintStream;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;

/**
 * What a self test found.
 *
 * @param version nccl4j's
 * @param quick whether it was the short one
 * @param columns a layout of ranks each
 */
public record SelfTestReport(String version, boolean quick, List<Column> columns) {
  private static final int NAME_WIDTH = 22;

  /**
   * What a layout of ranks found.
   *
   * @param exitCode of the processes with the ranks
   * @param rows an operation each; none if the processes failed
   */
  public record Column(
      Backend backend, SelfTest.Layout layout, int nranks, int exitCode, List<SelfTest.Row> rows) {
    /** Copies the list. */
    public Column {
      rows = List.copyOf(rows);
    }

    /** Whether all was run and nothing is wrong. */
    public boolean passed() {
      return exitCode == 0
          && !rows.isEmpty()
          && rows.stream().allMatch(row -> row.wrong() == 0 && row.cases() > 0);
    }

    private String label() {
      return backend.label() + " " + nranks + " " + layout.label();
    }

    private Optional<SelfTest.Row> row(String operation) {
      return rows.stream().filter(row -> row.operation().equals(operation)).findFirst();
    }
  }

  /** Copies the list. */
  public SelfTestReport {
    columns = List.copyOf(columns);
  }

  /** Whether all was run and nothing is wrong. */
  public boolean passed() {
    return !columns.isEmpty() && columns.stream().allMatch(Column::passed);
  }

  /** Writes a line per operation, with cases, wrong elements and seconds for each layout. */
  public void writeText(PrintStream out) {
    out.println("# nccl4j " + version + " selftest" + (quick ? " --quick" : ""));
    StringBuilder first = new StringBuilder(pad("#"));
    StringBuilder second = new StringBuilder(pad("# operation"));
    for (Column column : columns) {
      first.append(String.format(Locale.ROOT, "  %22s", column.label()));
      second.append(String.format(Locale.ROOT, "  %6s %8s %6s", "cases", "wrong", "s"));
    }
    out.println(first);
    out.println(second);
    Set<String> operations = new LinkedHashSet<>();
    columns.forEach(column -> column.rows.forEach(row -> operations.add(row.operation())));
    for (String operation : operations) {
      StringBuilder line = new StringBuilder(pad("  " + operation));
      for (Column column : columns) {
        line.append(
            column
                .row(operation)
                .map(
                    row ->
                        String.format(
                            Locale.ROOT,
                            "  %6d %8d %6.1f",
                            row.cases(),
                            row.wrong(),
                            row.seconds()))
                .orElse(String.format(Locale.ROOT, "  %22s", "not finished")));
      }
      out.println(line);
    }
    for (Column column : columns) {
      long refused = column.rows.stream().mapToLong(SelfTest.Row::refused).sum();
      if (refused > 0) {
        out.println("# " + column.label() + ": " + refused + " cases of 8-bit floats were refused");
      }
      if (column.exitCode != 0 && column.rows.isEmpty()) {
        out.println("# " + column.label() + ": failed with exit code " + column.exitCode);
      }
    }
    long cases = sum(false);
    out.println(
        "# "
            + (passed()
                ? "OK: " + cases + " cases, nothing is wrong"
                : "FAILED: " + cases + " cases, " + sum(true) + " wrong elements"));
  }

  private long sum(boolean wrong) {
    return columns.stream()
        .flatMap(column -> column.rows.stream())
        .mapToLong(row -> wrong ? row.wrong() : row.cases())
        .sum();
  }

  private static String pad(String text) {
    return String.format(Locale.ROOT, "%-" + NAME_WIDTH + "s", text);
  }

  /** Writes the same as JSON. */
  public void writeJson(PrintStream out) {
    Json.print(
        out,
        new Json.Fields()
            .with("nccl4j_version", version)
            .with("quick", quick)
            .with("passed", passed())
            .with("layouts", columns, SelfTestReport::json));
  }

  private static Json.Fields json(Column column) {
    return new Json.Fields()
        .with("backend", column.backend.label())
        .with("layout", column.layout.label())
        .with("ranks", column.nranks)
        .with("passed", column.passed())
        .with("exit_code", column.exitCode)
        .with("operations", column.rows, SelfTestReport::json);
  }

  private static Json.Fields json(SelfTest.Row row) {
    return new Json.Fields()
        .with("operation", row.operation())
        .with("cases", row.cases())
        .with("refused", row.refused())
        .with("wrong", row.wrong())
        .with("seconds", row.seconds());
  }
}
