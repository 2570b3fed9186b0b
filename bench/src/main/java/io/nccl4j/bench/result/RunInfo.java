package io.nccl4j.bench.result;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Program;
import java.time.LocalDateTime;
import java.util.List;
import java.util.OptionalInt;

/**
 * What is known of a run before its first size.
 *
 * @param program what is measured
 * @param options how
 * @param backend where the ranks run, never {@link Backend#AUTO}
 * @param version nccl4j's version
 * @param ranks all ranks in order
 * @param hosts which of them share a host
 * @param found what the process of rank 0 found on its machine: the host, and the backend if it is
 *     another one
 * @param start when it started, in local time
 */
public record RunInfo(
    Program program,
    Options options,
    Backend backend,
    String version,
    List<RankInfo> ranks,
    CommunicatorHosts hosts,
    List<BackendInfo> found,
    LocalDateTime start) {
  /** Copies the lists. */
  public RunInfo {
    ranks = List.copyOf(ranks);
    found = List.copyOf(found);
  }

  /** NCCL's version as NCCL counts it, 23007 for 2.30.7; empty where no NCCL is used. */
  public OptionalInt ncclVersion() {
    return found.stream()
        .flatMap(info -> info.libraries().stream())
        .filter(library -> library.name().startsWith("libnccl") && !library.version().isEmpty())
        .mapToInt(library -> ncclVersion(library.version()))
        .findFirst();
  }

  // As NCCL_VERSION of its header has it since 2.9, the floor being above that.
  private static int ncclVersion(String version) {
    int number = 0;
    for (String part : version.split("\\.")) {
      number = number * 100 + Integer.parseInt(part);
    }
    return number;
  }
}
