package io.nccl4j.memory;

import java.util.ArrayList;
import java.util.List;

/** Lays out a table of text: numbers right-aligned, the rest left-aligned, two blanks between. */
final class Columns {
  private final List<String[]> rows = new ArrayList<>();

  Columns(String... headings) {
    rows.add(headings);
  }

  void row(String... cells) {
    rows.add(cells);
  }

  /** One line per row, each with a line end. */
  @Override
  public String toString() {
    int columns = rows.getFirst().length;
    StringBuilder text = new StringBuilder();
    for (String[] row : rows) {
      StringBuilder line = new StringBuilder();
      for (int c = 0; c < columns; c++) {
        int width = width(c);
        String blanks = " ".repeat(width - row[c].length());
        line.append("  ").append(isNumeric(c) ? blanks + row[c] : row[c] + blanks);
      }
      text.append(line.toString().stripTrailing()).append('\n');
    }
    return text.toString();
  }

  private int width(int column) {
    return rows.stream().mapToInt(row -> row[column].length()).max().orElse(0);
  }

  private boolean isNumeric(int column) {
    return rows.stream().skip(1).allMatch(row -> row[column].matches("-?[0-9.]*"));
  }
}
