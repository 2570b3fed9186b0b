package io.nccl4j.bench.report;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * Reads what harnesses of MPI, Gloo and others print: {@code
 * peer,op,bytes,ranks,time_us,algbw,busbw,min_us[,placement]}; other lines are passed over. Each
 * peer is a run; with lines of both, each of its placements is one.
 */
final class PeerLines {
  private static final int FIELDS = 8;
  private static final String NUMBER = "[0-9.]+(e[-+]?[0-9]+)?";

  private PeerLines() {}

  static List<Run> read(String name, String text) {
    Map<String, List<String[]>> peers = new LinkedHashMap<>();
    for (String line : text.lines().toList()) {
      String[] fields = line.strip().split(",", -1);
      if (isResult(fields)) {
        String placement = fields.length > FIELDS ? fields[FIELDS] : "";
        peers.computeIfAbsent(fields[0] + "," + placement, key -> new ArrayList<>()).add(fields);
      }
    }
    List<Run> runs = new ArrayList<>();
    peers.forEach(
        (key, lines) -> {
          String peer = key.substring(0, key.indexOf(','));
          String placement = key.substring(key.indexOf(',') + 1);
          boolean several =
              peers.keySet().stream().filter(other -> other.startsWith(peer + ",")).count() > 1;
          runs.add(run(name + "#" + peer + (several ? "-" + placement : ""), placement, lines));
        });
    return runs;
  }

  private static boolean isResult(String[] fields) {
    if (fields.length < FIELDS) {
      return false;
    }
    for (int i = 2; i < FIELDS; i++) {
      if (!fields[i].strip().matches(NUMBER)) {
        return false;
      }
    }
    return true;
  }

  private static Run run(String name, String placement, List<String[]> lines) {
    List<Entry> entries = new ArrayList<>();
    for (String[] line : lines) {
      entries.add(
          new Entry(
              new Entry.Key(Run.operation(line[1]), "", "", "", false, Long.parseLong(line[2])),
              Double.parseDouble(line[4]),
              OptionalDouble.of(Double.parseDouble(line[5])),
              OptionalDouble.of(Double.parseDouble(line[6])),
              OptionalLong.empty(),
              List.of(),
              Entry.placed(placement)));
    }
    int ranks = Integer.parseInt(lines.getFirst()[3]);
    return new Run(
        name,
        ranks,
        Map.of("peer", lines.getFirst()[0], "ranks", Integer.toString(ranks)),
        entries);
  }
}
