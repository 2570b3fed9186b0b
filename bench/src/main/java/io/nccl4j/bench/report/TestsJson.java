package io.nccl4j.bench.report;

import com.fasterxml.jackson.databind.JsonNode;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.RankLayout;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/** Reads JSON of schema version 3, ours and that of nccl-tests, which has strings for numbers. */
final class TestsJson {
  private TestsJson() {}

  static Run read(String name, JsonNode root) {
    String program = root.at("/args/0").asText("");
    if (program.endsWith("nccl4j")) {
      program = root.at("/args/1").asText("");
    }
    JsonNode config = root.path("config");
    int ranks =
        Math.max(
            config.path("devices").size(),
            config.path("nthreads").asInt(0) * config.path("ngpus").asInt(0));
    List<Entry> entries = new ArrayList<>();
    String operation = Run.operation(program);
    for (JsonNode result : root.path("results")) {
      JsonNode line = result.path("line_latency_ns");
      line = line.isObject() ? line : root.path("line_latency_ns");
      LineLatency latency =
          new LineLatency(number(line.path("before")), number(line.path("after")));
      add(entries, operation, result, "out_of_place", false, latency);
      add(entries, operation, result, "in_place", true, latency);
    }
    return new Run(name, ranks, facts(root, ranks), entries);
  }

  private static void add(
      List<Entry> entries,
      String operation,
      JsonNode result,
      String name,
      boolean inPlace,
      LineLatency line) {
    JsonNode placement = result.path(name);
    JsonNode time = placement.has("time") ? placement.get("time") : placement.path("cpu_time");
    OptionalDouble micros = number(time);
    if (micros.isEmpty()) {
      return;
    }
    OptionalDouble wrong = number(placement.path("nwrong"));
    entries.add(
        new Entry(
            new Entry.Key(
                operation,
                result.path("type").asText("").strip(),
                result.path("redop").asText("").strip(),
                result.path("root").asText("").strip(),
                inPlace,
                result.path("size").asLong()),
            micros.getAsDouble(),
            number(placement.path("alg_bw")),
            number(placement.path("bus_bw")),
            wrong.isEmpty() ? OptionalLong.empty() : OptionalLong.of((long) wrong.getAsDouble()),
            rounds(placement, result.path(name + "_per_iter")),
            line));
  }

  /** Our rounds, or nccl-tests' iterations without those it skips itself. */
  private static List<Double> rounds(JsonNode placement, JsonNode iterations) {
    JsonNode times = placement.path("rounds_us");
    int skipped = 0;
    if (times.isEmpty()) {
      times = iterations.path("times_us");
      skipped = iterations.path("skipped_iterations").asInt(0);
    }
    List<Double> rounds = new ArrayList<>();
    for (int i = skipped; i < times.size(); i++) {
      number(times.get(i)).ifPresent(rounds::add);
    }
    return rounds;
  }

  private static OptionalDouble number(JsonNode node) {
    double value = node.isTextual() ? parse(node.textValue()) : node.asDouble(Double.NaN);
    return Double.isFinite(value) && !node.isNull() && !node.isMissingNode()
        ? OptionalDouble.of(value)
        : OptionalDouble.empty();
  }

  private static double parse(String text) {
    try {
      return Double.parseDouble(text.strip());
    } catch (NumberFormatException e) {
      // "N/A" and the like.
      return Double.NaN;
    }
  }

  private static Map<String, String> facts(JsonNode root, int ranks) {
    Map<String, String> facts = new LinkedHashMap<>();
    fact(facts, "started", root.path("start_time"));
    fact(facts, "turns", root.path("turns"));
    fact(facts, "nccl4j", root.path("nccl4j_version"));
    fact(facts, "backend", root.path("backend"));
    fact(facts, "NCCL", root.path("nccl_version"));
    facts.put("ranks", ranks == 0 ? "" : Integer.toString(ranks));
    facts.put("hosts", hosts(root.at("/config/devices"), ranks));
    facts.put("network", network(root.path("network")));
    fact(facts, "host", root.at("/config/devices/0/hostname"));
    fact(facts, "device", root.at("/config/devices/0/device_info"));
    for (JsonNode backend : root.at("/system/backends")) {
      fact(facts, "processor", backend.at("/facts/processor"));
      for (JsonNode library : backend.path("libraries")) {
        if (library.path("name").asText().startsWith("libcuda")) {
          fact(facts, "driver", library.path("version"));
        }
      }
    }
    fact(facts, "Java", root.at("/system/java"));
    fact(facts, "iterations", root.at("/config/iterations"));
    List<String> words = new ArrayList<>();
    root.path("args").forEach(word -> words.add(word.asText()));
    facts.put("command", String.join(" ", words));
    unit(facts, "first call", root.path("cold_time_us"), "µs cold", root.path("warm_time_us"));
    unit(
        facts,
        "cache line, one way",
        root.at("/line_latency_ns/before"),
        "ns before",
        root.at("/line_latency_ns/after"));
    List<String> errors = new ArrayList<>();
    root.path("errors").forEach(error -> errors.add(error.asText()));
    facts.put("errors", String.join("; ", errors));
    facts.values().removeIf(String::isBlank);
    return facts;
  }

  /** By our numbers, or else by names; nccl-tests may list some of the ranks only. */
  private static String hosts(JsonNode devices, int ranks) {
    if (devices.size() != ranks) {
      return "";
    }
    List<String> hosts = new ArrayList<>();
    devices.forEach(one -> hosts.add(one.path(one.has("host") ? "host" : "hostname").asText()));
    return hosts.isEmpty() || hosts.contains("") ? "" : RankLayout.text(RankLayout.of(hosts));
  }

  private static String network(JsonNode network) {
    String on = network.path("interface").asText("");
    return network.path("name").asText("") + (on.isEmpty() ? "" : " on " + on);
  }

  private static void unit(
      Map<String, String> facts, String name, JsonNode first, String unit, JsonNode second) {
    if (first.isNumber() && second.isNumber()) {
      String other = unit.startsWith("ns") ? "ns after" : "µs warm";
      facts.put(
          name,
          String.format(
              Locale.ROOT,
              "%.4g %s, %.4g %s",
              first.doubleValue(),
              unit,
              second.doubleValue(),
              other));
    }
  }

  private static void fact(Map<String, String> facts, String name, JsonNode value) {
    if (!value.isMissingNode() && !value.isNull()) {
      facts.putIfAbsent(name, value.asText().strip());
    }
  }
}
