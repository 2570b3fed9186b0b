package io.nccl4j.cli.process;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Launch;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.run.RankRange;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which ranks this process has, by its environment: all, those a launcher gave it, or none because
 * it starts processes that have them.
 */
public final class RankEnvironment {
  /** Number of this process's first rank. */
  public static final String RANK = "NCCL4J_RANK";

  /** Ranks of all processes. */
  public static final String NRANKS = "NCCL4J_NRANKS";

  /** Those of them on this machine, for the check of shared memory. */
  public static final String LOCAL_NRANKS = "NCCL4J_LOCAL_NRANKS";

  /** Number of this process's first rank among those on this machine. */
  public static final String LOCAL_RANK = "NCCL4J_LOCAL_RANK";

  /** A name of the job, which suffices for processes of one machine to meet. */
  public static final String JOB = "NCCL4J_JOB";

  /** The token as text. */
  public static final String UNIQUE_ID = "NCCL4J_UNIQUE_ID";

  /** The path of a file with the token. */
  public static final String UNIQUE_ID_FILE = "NCCL4J_UNIQUE_ID_FILE";

  /** Where rank 0 listens, for ranks on several machines. */
  public static final String RENDEZVOUS = "NCCL4J_RENDEZVOUS";

  /** The secret that they share. */
  public static final String SECRET = "NCCL4J_SECRET";

  /** The path of a file with it. */
  public static final String SECRET_FILE = "NCCL4J_SECRET_FILE";

  /** The folder where rank 0 leaves the token. */
  public static final String RENDEZVOUS_DIR = "NCCL4J_RENDEZVOUS_DIR";

  /** Whose variables count. */
  public static final String LAUNCHER = "NCCL4J_LAUNCHER";

  /** {@link #LAUNCHER} for these variables, whatever others there are. */
  public static final String OWN = "nccl4j";

  /** Set to 1 by {@link ProcessRun}: this process has some of the ranks, and starts no others. */
  public static final String CHILD = "NCCL4J_PROCS_CHILD";

  private final Map<String, String> environment;
  private final Options options;
  private final boolean parent;
  private final @Nullable Launch launch;
  private final int firstRank;
  private final int nranks;

  private RankEnvironment(Map<String, String> environment, Options options, int procs) {
    this.environment = environment;
    this.options = options;
    this.launch = Launch.detect(environment).orElse(null);
    this.parent = procs > 1 && !isChild();
    int local = options.localRanks();
    boolean own = environment.containsKey(RANK) || environment.containsKey(NRANKS);
    if (launch != null && parent && (own || launch.nranks(1) > 1)) {
      throw new InvalidArgumentException(
          "--procs " + procs + " and the ranks of " + launch.launcher() + " cannot be combined",
          "let only one of them start processes");
    }
    this.firstRank = launch == null || parent ? 0 : launch.firstRank(local);
    this.nranks = launch == null || parent ? procs * local : launch.nranks(local);
  }

  /**
   * Reads the environment.
   *
   * @param procs processes the user asked for
   * @throws InvalidArgumentException if it is incomplete, or contradicts itself or the options
   */
  public static RankEnvironment of(Map<String, String> environment, Options options, int procs) {
    if (procs < 1 || (long) procs * options.localRanks() > Options.MAX_RANKS) {
      throw new InvalidArgumentException(
          "procs is " + procs, "use 1 or more, and at most " + Options.MAX_RANKS + " ranks in all");
    }
    RankEnvironment ranks = new RankEnvironment(environment, options, procs);
    options.checkRanks(ranks.firstRank, ranks.nranks);
    return ranks;
  }

  /** Whether this process starts others that have the ranks. */
  public boolean isParent() {
    return parent;
  }

  /** Ranks of the run in all processes. */
  public int nranks() {
    return nranks;
  }

  /** Whether {@link ProcessRun} started this process. */
  public boolean isChild() {
    return "1".equals(environment.get(CHILD));
  }

  /** The launch that gave this process its ranks; null if nobody did. */
  public @Nullable Launch launch() {
    return launch;
  }

  /** The ranks of this process; it may wait for rank 0 to leave the token. */
  public RankRange range() {
    Launch given = launch;
    boolean alone = nranks == options.localRanks();
    return given == null || alone && !given.launcher().equals(OWN)
        ? RankRange.alone(options)
        : new RankRange(firstRank, nranks, given.uniqueId(options.backend()));
  }
}
