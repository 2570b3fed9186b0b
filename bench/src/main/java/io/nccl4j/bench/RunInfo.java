package io.nccl4j.bench;

import io.nccl4j.Backend;
import java.time.LocalDateTime;
import java.util.List;

/**
 * What is known of a run before its first size.
 *
 * @param program what is measured
 * @param options how
 * @param backend where the ranks run, never {@link Backend#AUTO}
 * @param version nccl4j's version
 * @param ranks all ranks in order
 * @param start when it started, in local time
 */
public record RunInfo(
    Program program,
    Options options,
    Backend backend,
    String version,
    List<RankInfo> ranks,
    LocalDateTime start) {
  /** Copies the list. */
  public RunInfo {
    ranks = List.copyOf(ranks);
  }
}
