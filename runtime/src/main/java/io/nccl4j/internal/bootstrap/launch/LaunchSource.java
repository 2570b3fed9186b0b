package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.InvalidArgumentException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/**
 * What one launcher's variables say.
 *
 * @param launcher its name
 * @param variable the variable that gives the rank; a process that lacks it is not of the job
 * @param rank number of the process, or of its first rank where nccl4j's own variables say so
 * @param size how many there are; 0 if the launcher does not say; ranks where it {@link
 *     #countsRanks}
 * @param localRank number among those of this machine
 * @param localSize how many there are on this machine
 * @param oneMachine whether all are on this machine; null if the launcher does not say
 * @param job what tells the job from others of the same launcher, as far as variables do; empty if
 *     they do not
 */
record LaunchSource(
    String launcher,
    String variable,
    int rank,
    int size,
    OptionalInt localRank,
    OptionalInt localSize,
    @Nullable Boolean oneMachine,
    String job) {
  static final String RANK = "NCCL4J_RANK";
  static final String NRANKS = "NCCL4J_NRANKS";
  private static final String LOCAL_RANK = "NCCL4J_LOCAL_RANK";
  static final String LAUNCHER = "NCCL4J_LAUNCHER";

  private static final String OWN = "nccl4j";
  private static final String KUBERNETES = "kubernetes";
  private static final String POD = "JOB_COMPLETION_INDEX";
  private static final String NONE = "none";

  /** The names that {@link #LAUNCHER} may have. */
  private static final List<String> NAMES =
      List.of(OWN, KUBERNETES, "torchrun", "slurm", "openmpi", "mpich", "pmix", NONE);

  /** From here on numbers of job steps are Slurm's own, of scripts and shells, not of srun. */
  private static final long FIRST_OWN_STEP = 0xfffffffaL;

  /**
   * All sources that an environment has, nccl4j's own first.
   *
   * @throws InvalidArgumentException if a variable is missing or cannot be understood
   */
  static List<LaunchSource> all(Map<String, String> environment) {
    String wanted = environment.get(LAUNCHER);
    if (wanted != null && !NAMES.contains(wanted)) {
      throw new InvalidArgumentException(
          LAUNCHER + " is '" + wanted + "'", "use one of " + String.join(", ", NAMES));
    }
    Reader read = new Reader(environment);
    List<LaunchSource> sources = new ArrayList<>();
    for (String name : NAMES) {
      LaunchSource source = wanted == null || wanted.equals(name) ? of(name, read) : null;
      if (source != null) {
        sources.add(source);
      } else if (name.equals(wanted) && !name.equals(NONE)) {
        throw new InvalidArgumentException(
            LAUNCHER + " is '" + wanted + "', but its variables are not set",
            "start the process with it, or unset " + LAUNCHER);
      }
    }
    return sources;
  }

  private static @Nullable LaunchSource of(String name, Reader read) {
    return switch (name) {
      case OWN -> own(read);
      // Pods of an indexed job; each has a network of its own.
      case KUBERNETES ->
          isOfPod(read) ? read.source(name, POD, read.number(NRANKS)).on(false) : null;
      case "torchrun" ->
          read.has("TORCHELASTIC_RUN_ID")
              ? read.source(name, "RANK", read.number("WORLD_SIZE"))
                  .local(read.optional("LOCAL_RANK"), read.optional("LOCAL_WORLD_SIZE"))
                  .job(
                      read.text("TORCHELASTIC_RUN_ID"),
                      read.text("MASTER_ADDR"),
                      read.text("MASTER_PORT"),
                      read.text("TORCHELASTIC_RESTART_COUNT"))
              : null;
      case "slurm" -> slurm(name, read);
      case "openmpi" ->
          read.has("OMPI_COMM_WORLD_RANK")
              ? read.source(name, "OMPI_COMM_WORLD_RANK", read.number("OMPI_COMM_WORLD_SIZE"))
                  .local(
                      read.optional("OMPI_COMM_WORLD_LOCAL_RANK"),
                      read.optional("OMPI_COMM_WORLD_LOCAL_SIZE"))
                  .job(read.text("PMIX_NAMESPACE"), read.text("OMPI_MCA_orte_hnp_uri"))
              : null;
      case "mpich" ->
          read.has("PMI_RANK")
              ? read.source(name, "PMI_RANK", read.number("PMI_SIZE"))
                  .local(read.optional("MPI_LOCALRANKID"), read.optional("MPI_LOCALNRANKS"))
                  .job(read.text("PMI_JOBID"))
              : null;
      case "pmix" ->
          read.has("PMIX_RANK") && read.has("PMIX_NAMESPACE")
              ? read.source(name, "PMIX_RANK", 0).job(read.text("PMIX_NAMESPACE"))
              : null;
      default -> null;
    };
  }

  // On one machine the first rank tells the process from the others.
  private static @Nullable LaunchSource own(Reader read) {
    if (!read.has(RANK) && !read.has(NRANKS) || isOfPod(read)) {
      return null;
    }
    LaunchSource source =
        read.source(OWN, RANK, read.number(NRANKS, "set both " + RANK + " and " + NRANKS));
    OptionalInt local = read.optional(LOCAL_RANK);
    return source.local(
        local.isPresent() ? local : OptionalInt.of(source.rank), OptionalInt.empty());
  }

  private static boolean isOfPod(Reader read) {
    return read.has(POD) && read.has(NRANKS) && !read.has(RANK);
  }

  // The variables of a script's or a shell's step say nothing of processes that srun started.
  private static @Nullable LaunchSource slurm(String name, Reader read) {
    if (!read.has("SLURM_PROCID")
        || !read.has("SLURM_STEP_ID")
        || read.wide("SLURM_STEP_ID") >= FIRST_OWN_STEP) {
      return null;
    }
    int size =
        read.number(read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    OptionalInt nodes =
        read.optional(read.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES");
    boolean one = nodes.isPresent() && nodes.getAsInt() == 1;
    LaunchSource source =
        read.source(name, "SLURM_PROCID", size)
            .local(
                read.optional("SLURM_LOCALID"), one ? OptionalInt.of(size) : OptionalInt.empty());
    return source
        .on(nodes.isEmpty() ? null : one)
        .job(
            read.text("SLURM_JOB_ID"),
            read.text("SLURM_STEP_ID"),
            read.text("SLURM_RESTART_COUNT"));
  }

  private LaunchSource local(OptionalInt number, OptionalInt size) {
    Boolean one = size.isEmpty() ? null : size.getAsInt() == this.size;
    return new LaunchSource(launcher, variable, rank, this.size, number, size, one, job);
  }

  private LaunchSource on(@Nullable Boolean one) {
    return new LaunchSource(launcher, variable, rank, size, localRank, localSize, one, job);
  }

  /** The job's name of its parts, of which the first must be there. */
  private LaunchSource job(String... parts) {
    String name = parts[0].isEmpty() ? "" : String.join("/", parts);
    return new LaunchSource(launcher, variable, rank, size, localRank, localSize, oneMachine, name);
  }

  /** What it says, for messages. */
  String describe() {
    return launcher + " (" + variable + ") says rank " + rank + (size > 0 ? " of " + size : "");
  }

  /** Whether both can be true; nccl4j's own variables count ranks, launchers processes. */
  boolean agrees(LaunchSource other) {
    boolean own = countsRanks() || other.countsRanks();
    if (size == 0 || other.size == 0) {
      return own || rank == other.rank;
    }
    return own
        ? (long) rank * other.size == (long) other.rank * size
        : rank == other.rank && size == other.size;
  }

  /** Whether {@link #size} is of ranks rather than of processes. */
  boolean countsRanks() {
    return launcher.equals(OWN) || launcher.equals(KUBERNETES);
  }

  /** Number of the first rank of the process. */
  int firstRank(int ranksPerProcess) {
    return launcher.equals(OWN) ? rank : rank * ranksPerProcess;
  }

  /** Number of ranks of all processes. */
  int nranks(int ranksPerProcess) {
    return countsRanks() ? size : size * ranksPerProcess;
  }

  /** Takes numbers from variables. */
  private record Reader(Map<String, String> environment) {
    boolean has(String variable) {
      return environment.containsKey(variable);
    }

    String text(String variable) {
      return environment.getOrDefault(variable, "");
    }

    LaunchSource source(String launcher, String variable, int size) {
      int rank =
          number(
              variable,
              launcher.equals(OWN)
                  ? "set both " + RANK + " and " + NRANKS
                  : "start the process with " + launcher + ", or set " + LAUNCHER + "=none");
      if (launcher.equals("pmix") ? rank < 0 : rank < 0 || rank >= size) {
        throw new InvalidArgumentException(
            variable + " is " + rank + ", but there are " + size + " ranks",
            "number ranks from 0 to nranks-1");
      }
      return new LaunchSource(
          launcher, variable, rank, size, OptionalInt.empty(), OptionalInt.empty(), null, "");
    }

    OptionalInt optional(String variable) {
      return has(variable) ? OptionalInt.of(number(variable)) : OptionalInt.empty();
    }

    int number(String variable) {
      return number(variable, "the launcher should have set it; " + LAUNCHER + "=none ignores it");
    }

    int number(String variable, String remedy) {
      String text = environment.get(variable);
      if (text == null) {
        throw new InvalidArgumentException(variable + " is not set", remedy);
      }
      try {
        return Integer.parseInt(text);
      } catch (NumberFormatException e) {
        throw bad(variable, text, e);
      }
    }

    long wide(String variable) {
      String text = text(variable);
      try {
        return Long.parseLong(text);
      } catch (NumberFormatException e) {
        throw bad(variable, text, e);
      }
    }

    private static InvalidArgumentException bad(String variable, String text, Exception cause) {
      return (InvalidArgumentException)
          new InvalidArgumentException(variable + " is '" + text + "'", "use a number")
              .causedBy(cause);
    }
  }
}
