package io.nccl4j.bench.report;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * What one run of one tool measured.
 *
 * @param name for people: the file's name, and the peer's in a file of several
 * @param nranks number of ranks; 0 if the file does not tell
 * @param facts what else is worth knowing, by name
 * @param entries measurements, in the file's order
 */
public record Run(String name, int nranks, Map<String, String> facts, List<Entry> entries) {
  /** Copies the collections. */
  public Run {
    facts = Collections.unmodifiableMap(new LinkedHashMap<>(facts));
    entries = List.copyOf(entries);
  }

  /** Its measurements of what has this key. */
  List<Entry> of(Entry.Key key) {
    return entries.stream().filter(entry -> key.matches(entry.key())).toList();
  }

  /** When it was started, in a form that sorts; empty if the file does not tell. */
  String started() {
    return facts.getOrDefault("started", "");
  }

  /** Which ranks share a host; empty if the file does not tell. */
  String hosts() {
    return facts.getOrDefault("hosts", "");
  }

  /** What carried data between hosts; empty if the file does not tell, or there was one host. */
  String network() {
    return facts.getOrDefault("network", "");
  }

  /** What it has in common with the one run that it took turns with; empty if with none. */
  String turns() {
    return facts.getOrDefault("turns", "");
  }

  /** Whose operations have one name, whatever the tool calls them: {@code all_reduce_perf}. */
  static String operation(String program) {
    String name = program.substring(program.lastIndexOf('/') + 1).replaceFirst("_perf.*$", "");
    return name.replaceAll("[^A-Za-z0-9]", "").toLowerCase(Locale.ROOT);
  }
}
