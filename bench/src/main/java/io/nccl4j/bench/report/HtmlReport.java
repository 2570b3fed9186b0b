package io.nccl4j.bench.report;

import io.nccl4j.bench.machine.ByteSize;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.Set;
import java.util.function.Function;

/**
 * One page with everything: charts of time and bandwidth against size with all runs in them, tables
 * of the same numbers, what is known of each run, and JMH's scores. It loads nothing.
 */
public final class HtmlReport {
  private final StringBuilder out = new StringBuilder();
  private final List<Run> runs;

  private HtmlReport(List<Run> runs) {
    this.runs = runs;
  }

  /**
   * The page.
   *
   * @param runs of collectives, in the order of their colours
   * @param scores JMH's results
   */
  public static String of(String title, List<Run> runs, List<JmhScore> scores) {
    HtmlReport report = new HtmlReport(runs);
    report.page(title, scores);
    return report.out.toString();
  }

  private void page(String title, List<JmhScore> scores) {
    out.append("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.append("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.append("<title>").append(Units.escaped(title)).append("</title>\n<style>\n");
    out.append(resource("chart.css"))
        .append(resource("report.css"))
        .append("</style>\n</head>\n<body>\n<main>\n");
    out.append("<h1>").append(Units.escaped(title)).append("</h1>\n");
    out.append("<p class=\"soft\">Times are µs of one operation, bandwidths GB/s with 1 GB = 10");
    out.append("<sup>9</sup> bytes.</p>\n");
    Line.operations(runs).forEach(this::operation);
    if (!scores.isEmpty()) {
      scores(scores);
    }
    if (!runs.isEmpty()) {
      facts();
    }
    out.append("</main>\n<div id=\"tip\"></div>\n<script>\n").append(resource("report.js"));
    out.append("</script>\n</body>\n</html>\n");
  }

  static String resource(String name) {
    try (InputStream in = HtmlReport.class.getResourceAsStream(name)) {
      if (in == null) {
        throw new IllegalStateException("resource " + name + " is missing");
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void operation(String operation) {
    List<Line> lines = Line.of(runs, operation);
    out.append("<section>\n<h2>").append(name(operation)).append("</h2>\n<ul class=\"legend\">\n");
    for (Line line : lines) {
      out.append("<li><svg viewBox=\"0 0 26 10\"><line class=\"line");
      out.append(line.series().inPlace() ? " dashed" : "").append("\" style=\"stroke:var(--c");
      out.append(line.colour()).append(")\" x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\"/></svg>");
      out.append(Units.escaped(line.label())).append("</li>\n");
    }
    out.append("</ul>\n<div class=\"charts\">\n");
    chart("Time", "µs", lines, entry -> OptionalDouble.of(entry.micros()));
    chart("Bus bandwidth", "GB/s", lines, Entry::busBw);
    out.append("</div>\n");
    table(lines);
    out.append("</section>\n");
  }

  private static String name(String operation) {
    return operation.isEmpty() ? "collective" : Units.escaped(operation);
  }

  private void chart(
      String title, String unit, List<Line> lines, Function<Entry, OptionalDouble> value) {
    List<LogChart.Series> series = lines.stream().map(line -> line.drawn(value)).toList();
    out.append("<figure><figcaption>").append(title).append(", ").append(unit);
    out.append("</figcaption>").append(LogChart.svg(title, unit, series)).append("</figure>\n");
  }

  private void table(List<Line> lines) {
    out.append("<div class=\"scroll\"><table>\n<thead><tr><th class=\"pin\"></th>");
    for (Line line : lines) {
      out.append("<th class=\"run\" colspan=\"2\"><span class=\"chip\" style=\"background:var(--c");
      out.append(line.colour()).append(")\"></span>").append(Units.escaped(line.label()));
      out.append("</th>");
    }
    out.append("</tr>\n<tr><th class=\"pin\">size</th>");
    lines.forEach(line -> out.append("<th class=\"first\">µs</th><th>GB/s bus</th>"));
    out.append("</tr></thead>\n<tbody>\n");
    lines.stream()
        .flatMap(line -> line.entries().stream().map(entry -> entry.key().size()))
        .distinct()
        .sorted()
        .forEach(
            size -> {
              out.append("<tr><td class=\"pin\">").append(ByteSize.text(size)).append("</td>");
              lines.forEach(line -> cells(line.at(size)));
              out.append("</tr>\n");
            });
    out.append("</tbody></table></div>\n");
  }

  private void cells(Optional<Entry> entry) {
    if (entry.isEmpty()) {
      out.append("<td class=\"first\"></td><td></td>");
      return;
    }
    long wrong = entry.get().wrong().orElse(0);
    out.append(wrong > 0 ? "<td class=\"first bad\">" : "<td class=\"first\">");
    out.append(Units.number(entry.get().micros()));
    out.append(wrong > 0 ? " (" + wrong + " wrong)" : "").append("</td><td>");
    OptionalDouble bus = entry.get().busBw();
    out.append(bus.isPresent() ? Units.number(bus.getAsDouble()) : "").append("</td>");
  }

  private void scores(List<JmhScore> scores) {
    out.append("<section>\n<h2>JMH</h2>\n");
    Set<String> files = new LinkedHashSet<>();
    scores.forEach(score -> files.add(score.file()));
    Set<String> benchmarks = new LinkedHashSet<>();
    scores.forEach(score -> benchmarks.add(score.benchmark()));
    for (String benchmark : benchmarks) {
      List<JmhScore> mine = scores.stream().filter(s -> s.benchmark().equals(benchmark)).toList();
      double most = mine.stream().mapToDouble(JmhScore::score).max().orElse(1);
      out.append("<h3>").append(Units.escaped(benchmark)).append("</h3>\n<div class=\"scroll\">");
      out.append("<table><thead><tr><th class=\"name pin\">parameters</th>");
      out.append("<th class=\"name\">file</th><th>score</th><th>± error</th>");
      out.append("<th class=\"name\">unit</th><th class=\"name\">mode</th><th></th></tr></thead>");
      out.append("<tbody>\n");
      for (JmhScore score : mine) {
        String parameters = score.parameters().isEmpty() ? "none" : score.parameters();
        out.append("<tr><td class=\"name pin\">").append(Units.escaped(parameters));
        out.append("</td><td class=\"name\">").append(Units.escaped(score.file()));
        out.append("</td><td>").append(Units.number(score.score())).append("</td><td>");
        out.append(Double.isNaN(score.error()) ? "N/A" : Units.number(score.error()));
        out.append("</td><td class=\"name\">").append(Units.escaped(score.unit()));
        out.append("</td><td class=\"name\">").append(Units.escaped(score.mode()));
        out.append("</td><td class=\"wide\"><span class=\"bar\" style=\"background:var(--c");
        out.append(new ArrayList<>(files).indexOf(score.file()) % Line.COLOURS);
        out.append(");width:").append(Math.round(100 * score.score() / most));
        out.append("%\"></span></td></tr>\n");
      }
      out.append("</tbody></table></div>\n");
    }
    out.append("</section>\n");
  }

  private void facts() {
    out.append("<section>\n<h2>Runs</h2>\n");
    for (Run run : runs) {
      out.append("<details><summary>").append(Units.escaped(run.name())).append("</summary><dl>");
      run.facts()
          .forEach(
              (name, value) ->
                  out.append("<dt>")
                      .append(Units.escaped(name))
                      .append("</dt><dd>")
                      .append(Units.escaped(value))
                      .append("</dd>"));
      out.append("</dl></details>\n");
    }
    out.append("</section>\n");
  }
}
