package io.nccl4j.launch;

import java.util.List;
import java.util.Optional;

/**
 * How the processes of a job ended, those of this machine.
 *
 * @param ranks by rank
 * @param firstFailure of the processes that ended with an exit code other than 0 before all were
 *     told to, the first that a signal ended, else the first; empty if there is none. Peers of a
 *     process that is killed may notice it and end before the system is done with that process.
 */
public record JobExit(List<RankExit> ranks, Optional<RankExit> firstFailure) {
  /** How the processes ended. */
  public JobExit {
    ranks = List.copyOf(ranks);
  }

  /** Whether all ended with exit code 0. */
  public boolean succeeded() {
    return exitCode() == 0;
  }

  /** The exit code of the first failure; without one, the first of the ranks' that is not 0. */
  public int exitCode() {
    return firstFailure
        .map(RankExit::exitCode)
        .orElseGet(
            () ->
                ranks.stream()
                    .mapToInt(RankExit::exitCode)
                    .filter(c -> c != 0)
                    .findFirst()
                    .orElse(0));
  }

  /**
   * What happened, in one line: the first failure, and how many processes failed or were ended
   * after it.
   */
  public String describe() {
    long stopped = ranks.stream().filter(RankExit::stopped).count();
    if (firstFailure.isEmpty()) {
      return stopped == 0 ? "all ranks ended with exit code 0" : "the ranks were stopped";
    }
    long later = ranks.stream().filter(RankExit::failed).count() - 1;
    return firstFailure.get().describe()
        + (later > 0 ? "; after it " + later + " more failed" : "")
        + (stopped > 0 ? "; " + stopped + (stopped > 1 ? " were" : " was") + " ended" : "");
  }
}
