package io.nccl4j;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What this process was told about its place among the processes of a job, by a launcher or by
 * variables of nccl4j's own; and how those processes get one {@link UniqueId}.
 *
 * <pre>{@code
 * try (Launch launch = Launch.detect().orElseThrow()) {
 *   Device device = Device.get(launch.localProcess().orElse(0));
 *   Communicator comm = launch.initRank(device, CommunicatorConfig.defaults());
 * }
 * }</pre>
 *
 * <p>Read are, and if there are several they must agree:
 *
 * <table>
 * <caption>Sources</caption>
 * <tr><th>launcher</th><th>recognised by</th><th>numbers</th></tr>
 * <tr><td>{@code nccl4j}</td><td>NCCL4J_RANK or NCCL4J_NRANKS</td><td>those, in ranks</td></tr>
 * <tr><td>{@code torchrun}</td><td>TORCHELASTIC_RUN_ID</td><td>RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE</td></tr>
 * <tr><td>{@code slurm}</td><td>SLURM_PROCID and SLURM_STEP_ID of srun</td><td>SLURM_PROCID, SLURM_STEP_NUM_TASKS or
 * SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NUM_NODES</td></tr>
 * <tr><td>{@code openmpi}</td><td>OMPI_COMM_WORLD_RANK</td><td>OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 * </td></tr>
 * <tr><td>{@code mpich}</td><td>PMI_RANK</td><td>PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS</td></tr>
 * <tr><td>{@code pmix}</td><td>PMIX_RANK and PMIX_NAMESPACE</td><td>PMIX_RANK; the number of processes must come from
 * another source</td></tr>
 * </table>
 *
 * <p>{@code NCCL4J_LAUNCHER} names the one to believe, or {@code none}.
 *
 * <p>Launchers hand over no secret. On one machine the process with rank 0 leaves the unique id in
 * a folder that only its user can enter, under a name of the job. Across machines {@code
 * NCCL4J_RENDEZVOUS_DIR} names such a folder that all of them share. {@code NCCL4J_UNIQUE_ID} or
 * {@code NCCL4J_UNIQUE_ID_FILE}, if set, are used instead.
 *
 * <p>Used by one thread.
 */
public interface Launch extends AutoCloseable {
  /** What the environment of this process says; empty if it says nothing. */
  static Optional<Launch> detect() {
    return detect(System.getenv());
  }

  /**
   * What an environment says; empty if it says nothing.
   *
   * @throws InvalidArgumentException if a variable is missing or cannot be understood, or sources
   *     disagree; the message names them
   */
  static Optional<Launch> detect(Map<String, String> environment) {
    return Provider.get().launch(Require.present(environment, "environment"));
  }

  /** The launcher's name, as in the table. */
  String launcher();

  /**
   * The number of this process's first rank; the others of the process follow.
   *
   * @param ranksPerProcess as many in every process
   */
  int firstRank(int ranksPerProcess);

  /**
   * Ranks of all processes.
   *
   * @param ranksPerProcess as many in every process
   */
  int nranks(int ranksPerProcess);

  /**
   * The process's number among those of this machine, if the launcher says so. By nccl4j's own
   * variables, which number the ranks of a machine, it is that of the process's first rank.
   */
  OptionalInt localProcess();

  /** Processes on this machine, if the launcher says so. */
  OptionalInt localProcesses();

  /**
   * An id that is the same in all processes: made by the one with rank 0, which must live until all
   * have joined; the others wait for it up to the init timeout of {@link
   * CommunicatorConfig#defaults()}. For each further communicator call it again, in all processes
   * in the same order.
   *
   * @throws DeadlineException if the id does not come in time
   * @throws InvalidUsageException if there is no way to hand it over: several machines and no
   *     setting that says where; or it was asked for again where a setting gives just one
   * @throws SystemErrorException if the folder or the file cannot be used, or is somebody else's
   */
  UniqueId uniqueId(Backend backend);

  /**
   * Joins a communicator of all processes, as the only rank of this one.
   *
   * @throws NcclException as {@link #uniqueId} and {@link Communicator#initRank} throw it
   */
  default Communicator initRank(Device device, CommunicatorConfig config) {
    UniqueId id = uniqueId(Require.present(device, "device").backend());
    Communicator communicator = Communicator.initRank(device, nranks(1), id, firstRank(1), config);
    close();
    return communicator;
  }

  /**
   * Removes what this process left for others: call it when all have joined. What is left when the
   * process ends is removed then.
   */
  @Override
  void close();
}
