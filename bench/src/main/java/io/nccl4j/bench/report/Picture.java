package io.nccl4j.bench.report;

import io.nccl4j.InvalidArgumentException;
import java.util.List;
import java.util.OptionalDouble;
import java.util.Set;

/** The times of one operation, of all runs, as a picture that stands alone: SVG with a legend. */
public final class Picture {
  private static final int LEGEND_LINE = 20;
  private static final int TITLE = 28;

  private Picture() {}

  /**
   * The picture.
   *
   * @param runs in the order of their colours
   * @throws InvalidArgumentException if they measure no operation, or several
   */
  public static String of(String title, List<Run> runs) {
    Set<String> operations = Line.operations(runs);
    if (operations.size() != 1) {
      throw new InvalidArgumentException(
          "a picture shows one operation, not " + operations,
          "name files that measure the same operation");
    }
    List<Line> lines = Line.of(runs, operations.iterator().next());
    int bottom = TITLE + LogChart.HEIGHT;
    int height = bottom + LEGEND_LINE * lines.size() + LEGEND_LINE / 2;
    StringBuilder out = new StringBuilder();
    out.append("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ").append(LogChart.WIDTH);
    out.append(' ').append(height).append("\" role=\"img\">\n<title>");
    out.append(Units.escaped(title)).append("</title>\n<style>\n");
    out.append(HtmlReport.resource("chart.css"));
    out.append("svg { font-family: system-ui, sans-serif; }\n</style>\n");
    out.append("<rect width=\"100%\" height=\"100%\" fill=\"var(--card)\"/>\n");
    out.append("<text x=\"14\" y=\"19\">").append(Units.escaped(title));
    out.append(": time, µs</text>\n<svg y=\"").append(TITLE).append("\" width=\"");
    out.append(LogChart.WIDTH).append("\" height=\"").append(LogChart.HEIGHT).append("\">");
    out.append(
        LogChart.svg(
            title,
            "µs",
            lines.stream()
                .map(line -> line.drawn(entry -> OptionalDouble.of(entry.micros())))
                .toList()));
    out.append("</svg>\n");
    for (int i = 0; i < lines.size(); i++) {
      Line line = lines.get(i);
      int y = bottom + LEGEND_LINE * i + LEGEND_LINE / 2;
      out.append("<line class=\"line").append(line.series().inPlace() ? " dashed" : "");
      out.append("\" style=\"stroke:var(--c")
          .append(line.colour())
          .append(")\" x1=\"20\" x2=\"46\"");
      out.append(" y1=\"").append(y).append("\" y2=\"").append(y).append("\"/><text x=\"54\" y=\"");
      out.append(y + 4).append("\">").append(Units.escaped(line.label())).append("</text>\n");
    }
    return out.append("</svg>\n").toString();
  }
}
