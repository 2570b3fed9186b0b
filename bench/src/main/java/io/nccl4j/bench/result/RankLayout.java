package io.nccl4j.bench.result;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Which ranks share a host: runs with different layouts cannot be compared. */
public final class RankLayout {
  private RankLayout() {}

  /**
   * The ranks of each host, hosts in the order of their lowest ranks.
   *
   * @param hosts of all ranks in order: anything that is equal for ranks of the same host
   */
  public static List<List<Integer>> of(List<?> hosts) {
    Map<Object, List<Integer>> ranks = new LinkedHashMap<>();
    for (int rank = 0; rank < hosts.size(); rank++) {
      ranks.computeIfAbsent(hosts.get(rank), host -> new ArrayList<>()).add(rank);
    }
    return List.copyOf(ranks.values());
  }

  /** For people: {@code ranks 0-1 | 2-3}, a bar between two hosts. */
  public static String text(List<List<Integer>> ranksOfHosts) {
    return ranksOfHosts.stream()
        .map(RankLayout::ranges)
        .collect(Collectors.joining(" | ", "ranks ", ""));
  }

  private static String ranges(List<Integer> ranks) {
    List<String> ranges = new ArrayList<>();
    for (int first = 0, next; first < ranks.size(); first = next) {
      next = first + 1;
      while (next < ranks.size() && ranks.get(next) == ranks.get(first) + next - first) {
        next++;
      }
      ranges.add(ranks.get(first) + (next == first + 1 ? "" : "-" + ranks.get(next - 1)));
    }
    return String.join(",", ranges);
  }
}
