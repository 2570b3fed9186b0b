package io.nccl4j.bench.report;

import io.nccl4j.bench.machine.ByteSize;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import java.util.Locale;

/**
 * A chart as SVG: values against sizes, both axes logarithmic. Its colours are those of the page's
 * style sheet, so that it is light or dark as the page is.
 */
final class LogChart {
  /** Of all charts, in the units of their lines. */
  static final int WIDTH = 520;

  /** See {@link #WIDTH}. */
  static final int HEIGHT = 340;

  private static final int LEFT = 62;
  private static final int RIGHT = 28;
  private static final int TOP = 12;
  private static final int BOTTOM = 44;
  private static final int MOST_LABELS = 8;

  /**
   * What is drawn as one line.
   *
   * @param name for people
   * @param colour number of the colour
   * @param dashed whether the line is dashed and its points are hollow
   * @param points rising by size
   */
  record Series(String name, int colour, boolean dashed, List<Point> points) {}

  /** A value above 0 at a size above 0. */
  record Point(long size, double value) {}

  private final List<Series> all;
  private final String unit;
  private final double least;
  private final double most;
  private final double lowest;
  private final double highest;

  private LogChart(List<Series> all, String unit) {
    this.all = all;
    this.unit = unit;
    List<Point> points = all.stream().flatMap(series -> series.points.stream()).toList();
    double min = points.stream().mapToDouble(Point::size).min().orElse(1);
    double max = points.stream().mapToDouble(Point::size).max().orElse(1);
    least = min == max ? min / 2 : min;
    most = min == max ? max * 2 : max;
    // Whole steps of 1, 2, 5, so that the axis ends with a grid line.
    lowest = step(points.stream().mapToDouble(Point::value).min().orElse(1), false);
    double top = step(points.stream().mapToDouble(Point::value).max().orElse(1), true);
    highest = top > lowest ? top : step(lowest * 1.5, true);
  }

  /** The chart as one SVG element; without points it says so. */
  static String svg(String title, String unit, List<Series> series) {
    List<Series> drawn = series.stream().filter(one -> !one.points.isEmpty()).toList();
    StringBuilder out = new StringBuilder();
    out.append("<svg viewBox=\"0 0 ").append(WIDTH).append(' ').append(HEIGHT);
    out.append("\" role=\"img\" aria-label=\"").append(Units.escaped(title)).append("\">");
    if (drawn.isEmpty()) {
      out.append(text(WIDTH / 2.0, HEIGHT / 2.0, "middle", "no values above 0"));
    } else {
      new LogChart(drawn, unit).draw(out);
    }
    return out.append("</svg>").toString();
  }

  private void draw(StringBuilder out) {
    double octaves = Math.log(most / least) / Math.log(2);
    int every = Math.max(1, (int) Math.ceil(octaves / (MOST_LABELS - 1)));
    int first = (int) Math.ceil(Math.log(least) / Math.log(2) - 1e-9);
    for (int exponent = first; Math.pow(2, exponent) <= most * 1.0001; exponent += every) {
      long size = 1L << Math.max(0, exponent);
      out.append(line("grid", x(size), TOP, x(size), HEIGHT - BOTTOM));
      out.append(text(x(size), HEIGHT - BOTTOM + 17, "middle", ByteSize.text(size)));
    }
    double decades = Math.log10(highest / lowest);
    for (double value = lowest; value <= highest * 1.0001; value = step(value * 1.01, true)) {
      out.append(line("grid", LEFT, y(value), WIDTH - RIGHT, y(value)));
      boolean power = Math.abs(Math.log10(value) - Math.rint(Math.log10(value))) < 1e-6;
      if (power || decades <= 3) {
        out.append(text(LEFT - 6, y(value) + 4, "end", tick(value)));
      }
    }
    out.append(line("axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM));
    out.append(text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8, "middle", "size"));
    all.forEach(series -> line(out, series));
  }

  private void line(StringBuilder out, Series series) {
    String colour = "var(--c" + series.colour + ")";
    out.append("<polyline class=\"line").append(series.dashed ? " dashed" : "");
    out.append("\" style=\"stroke:").append(colour).append("\" points=\"");
    for (Point point : series.points) {
      out.append(format("%.1f,%.1f ", x(point.size), y(point.value)));
    }
    out.append("\"/>");
    for (Point point : series.points) {
      String told =
          series.name
              + "\n"
              + ByteSize.text(point.size)
              + ": "
              + Units.number(point.value)
              + " "
              + unit;
      out.append(format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"", x(point.size), y(point.value)));
      out.append(" style=\"stroke:").append(colour).append(";stroke-width:1.5;fill:");
      out.append(series.dashed ? "var(--card)" : colour);
      out.append("\" data-tip=\"").append(Units.escaped(told)).append("\"/>");
    }
  }

  private double x(double size) {
    return LEFT + (WIDTH - LEFT - RIGHT) * Math.log(size / least) / Math.log(most / least);
  }

  private double y(double value) {
    double part = Math.log(value / lowest) / Math.log(highest / lowest);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part;
  }

  /** The next of 1, 2, 5 times a power of ten, up or down. */
  static double step(double value, boolean up) {
    double power = Math.pow(10, Math.floor(Math.log10(value)));
    double[] steps = {1, 2, 5, 10};
    if (up) {
      for (double step : steps) {
        if (step * power >= value * 0.999999) {
          return step * power;
        }
      }
    }
    for (int i = steps.length - 1; i >= 0; i--) {
      if (steps[i] * power <= value * 1.000001) {
        return steps[i] * power;
      }
    }
    return power;
  }

  /** One digit, at most, behind zeros: ticks are 1, 2 or 5 times a power of ten. */
  private static String tick(double value) {
    BigDecimal digit = new BigDecimal(value).round(new MathContext(1)).stripTrailingZeros();
    return value >= 1e-4 && value < 1e7 ? digit.toPlainString() : digit.toString();
  }

  private static String line(String style, double x1, double y1, double x2, double y2) {
    return format(
        "<line class=\"" + style + "\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
        x1,
        y1,
        x2,
        y2);
  }

  private static String text(double x, double y, String anchor, String text) {
    return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"", x, y)
        + anchor
        + "\">"
        + text
        + "</text>";
  }

  private static String format(String format, Object... values) {
    return String.format(Locale.ROOT, format, values);
  }
}
