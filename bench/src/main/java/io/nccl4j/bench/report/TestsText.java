package io.nccl4j.bench.report;

import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.RankLayout;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads nccl-tests' table. Columns are counted from the right, as scripts do it: on the left some
 * versions and programs leave type, reduction or root out.
 */
final class TestsText {
  private static final Pattern PROGRAM =
      Pattern.compile("^# Collective test starting: (\\S+)", Pattern.MULTILINE);
  private static final Pattern VERSION =
      Pattern.compile("^# (nccl4j|nccl-tests) version (.*?)\\s*$", Pattern.MULTILINE);
  private static final Pattern RANK =
      Pattern.compile("^# +Rank +\\d+ .*? on +(\\S+) device .*", Pattern.MULTILINE);
  private static final Pattern HOSTS = Pattern.compile("^# Hosts \\d+: (.*)$", Pattern.MULTILINE);
  private static final Pattern NETWORK =
      Pattern.compile("^# Network: (.*), \\S+$", Pattern.MULTILINE);
  private static final Pattern LINE =
      Pattern.compile("^# Cache line, one way *: (\\d+) ns before, (\\d+) ns", Pattern.MULTILINE);
  private static final Pattern TITLES =
      Pattern.compile("^# +size +count.* (?:cpu)?time .*busbw.*$", Pattern.MULTILINE);
  private static final Pattern ROW = Pattern.compile("^ *\\d+ +\\d+ .*$", Pattern.MULTILINE);

  private TestsText() {}

  static boolean isTable(String text) {
    return TITLES.matcher(text).find();
  }

  static Run read(String name, String text) {
    Matcher program = PROGRAM.matcher(text);
    String operation = program.find() ? Run.operation(program.group(1)) : "";
    Matcher titles = TITLES.matcher(text);
    titles.find();
    List<String> columns =
        new ArrayList<>(List.of(titles.group().substring(1).strip().split(" +")));
    boolean timestamps = columns.remove("timestamp");
    int first = columns.contains("time") ? columns.indexOf("time") : columns.indexOf("cputime");
    List<String> right = columns.subList(first, columns.size());
    int half = right.size() / 2;
    List<Entry> entries = new ArrayList<>();
    LineLatency line = line(text);
    Matcher rows = ROW.matcher(text);
    while (rows.find()) {
      List<String> cells = new ArrayList<>(List.of(rows.group().strip().split(" +")));
      // Date and time of day.
      int end = cells.size() - (timestamps ? 2 : 0);
      int left = end - right.size();
      if (left < 2) {
        throw new IllegalArgumentException("a line has too few columns: " + rows.group().strip());
      }
      for (int placement = 0; placement < 2; placement++) {
        List<String> values = cells.subList(left + placement * half, left + (placement + 1) * half);
        Entry.Key key =
            new Entry.Key(
                operation,
                left >= 5 ? cells.get(2) : "",
                left >= 5 ? cells.get(3) : "",
                left >= 5 ? cells.get(4) : "",
                placement == 1,
                Long.parseLong(cells.get(0)));
        add(entries, key, right, values, line);
      }
    }
    Matcher version = VERSION.matcher(text);
    Map<String, String> facts = new LinkedHashMap<>();
    if (version.find()) {
      facts.put(version.group(1), version.group(2));
    }
    List<String> names = RANK.matcher(text).results().map(rank -> rank.group(1)).toList();
    facts.put("ranks", Integer.toString(names.size()));
    Matcher hosts = HOSTS.matcher(text);
    if (hosts.find()) {
      facts.put("hosts", hosts.group(1));
    } else if (!names.isEmpty()) {
      facts.put("hosts", RankLayout.text(RankLayout.of(names)));
    }
    Matcher network = NETWORK.matcher(text);
    if (network.find()) {
      facts.put("network", network.group(1));
    }
    return new Run(name, names.size(), facts, entries);
  }

  private static void add(
      List<Entry> entries,
      Entry.Key key,
      List<String> titles,
      List<String> values,
      LineLatency line) {
    OptionalDouble micros = number(values.getFirst());
    if (micros.isEmpty()) {
      return;
    }
    OptionalDouble wrong = number(values.get(titles.indexOf("#wrong")));
    entries.add(
        new Entry(
            key,
            micros.getAsDouble(),
            number(values.get(titles.indexOf("algbw"))),
            number(values.get(titles.indexOf("busbw"))),
            wrong.isEmpty() ? OptionalLong.empty() : OptionalLong.of((long) wrong.getAsDouble()),
            List.of(),
            line));
  }

  private static OptionalDouble number(String cell) {
    return cell.matches("[-+.eE0-9]+")
        ? OptionalDouble.of(Double.parseDouble(cell))
        : OptionalDouble.empty();
  }

  private static LineLatency line(String text) {
    Matcher line = LINE.matcher(text);
    return line.find()
        ? new LineLatency(
            OptionalDouble.of(Double.parseDouble(line.group(1))),
            OptionalDouble.of(Double.parseDouble(line.group(2))))
        : LineLatency.UNKNOWN;
  }
}
