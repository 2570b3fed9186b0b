package io.nccl4j.cli;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.Options;
import io.nccl4j.bench.Placement;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which ranks this process has, by its environment: all, those a launcher gave it, or none because
 * it starts processes that have them.
 */
final class RankEnvironment {
  /** Number of this process's first rank. */
  static final String RANK = "NCCL4J_RANK";

  /** Ranks of all processes. */
  static final String NRANKS = "NCCL4J_NRANKS";

  /** The token as text. */
  static final String UNIQUE_ID = "NCCL4J_UNIQUE_ID";

  /** The path of a file with the token. */
  static final String UNIQUE_ID_FILE = "NCCL4J_UNIQUE_ID_FILE";

  /** Set to 1 by {@link ProcessGroup}: this process was started by it and must not outlive it. */
  static final String CHILD = "NCCL4J_PROCS_CHILD";

  private final Map<String, String> environment;
  private final Options options;
  private final boolean parent;
  private final boolean launched;
  private final int rank;
  private final int nranks;

  private RankEnvironment(Map<String, String> environment, Options options, int procs) {
    this.environment = environment;
    this.options = options;
    this.launched = environment.containsKey(RANK) || environment.containsKey(NRANKS);
    this.parent = procs > 1 && !isChild();
    if (launched && parent) {
      throw new InvalidArgumentException(
          "--procs " + procs + " and " + RANK + " or " + NRANKS + " exclude each other",
          "let one of them make the processes");
    }
    this.rank = launched ? number(RANK) : 0;
    this.nranks = launched ? number(NRANKS) : procs * options.localRanks();
    if (launched && token(UNIQUE_ID) == null && token(UNIQUE_ID_FILE) == null) {
      throw new InvalidArgumentException(
          RANK + " is set, but no unique id", "set " + UNIQUE_ID + " or " + UNIQUE_ID_FILE);
    }
  }

  /**
   * Reads the environment.
   *
   * @param procs processes the user asked for
   * @throws InvalidArgumentException if it is incomplete, or contradicts the options
   */
  static RankEnvironment of(Map<String, String> environment, Options options, int procs) {
    if (procs < 1 || (long) procs * options.localRanks() > Options.MAX_RANKS) {
      throw new InvalidArgumentException(
          "procs is " + procs, "use 1 or more, and at most " + Options.MAX_RANKS + " ranks in all");
    }
    RankEnvironment ranks = new RankEnvironment(environment, options, procs);
    options.checkRanks(ranks.rank, ranks.nranks);
    return ranks;
  }

  /** Whether this process starts others that have the ranks. */
  boolean isParent() {
    return parent;
  }

  /** Ranks of the run in all processes. */
  int nranks() {
    return nranks;
  }

  /** Whether {@link ProcessGroup} started this process. */
  boolean isChild() {
    return "1".equals(environment.get(CHILD));
  }

  /** The ranks of this process; it may wait for rank 0 to write the token. */
  Placement placement() {
    return launched ? new Placement(rank, nranks, uniqueId()) : Placement.alone(options);
  }

  /** The file in which this process, having rank 0, writes the token; null if there is none. */
  @Nullable Path idFile() {
    String file = token(UNIQUE_ID_FILE);
    return launched && rank == 0 && token(UNIQUE_ID) == null && file != null ? Path.of(file) : null;
  }

  private UniqueId uniqueId() {
    String text = token(UNIQUE_ID);
    if (text != null) {
      return UniqueId.parse(text);
    }
    Path file = Path.of(String.valueOf(token(UNIQUE_ID_FILE)));
    if (rank > 0) {
      return UniqueId.readFrom(file, CommunicatorConfig.defaults().initTimeout());
    }
    UniqueId id = UniqueId.create(options.backend());
    id.writeTo(file);
    return id;
  }

  private @Nullable String token(String variable) {
    return environment.get(variable);
  }

  private int number(String variable) {
    String text = environment.get(variable);
    if (text == null) {
      throw new InvalidArgumentException(
          variable + " is not set", "set both " + RANK + " and " + NRANKS);
    }
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(variable + " is '" + text + "'", "use a number").causedBy(e);
    }
  }
}
