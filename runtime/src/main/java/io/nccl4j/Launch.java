package io.nccl4j;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * This process's place among the processes of a job, as given by a launcher or by nccl4j's own
 * variables, and a way for those processes to share one {@link UniqueId}.
 *
 * <pre>{@code
 * try (Launch launch = Launch.detect().orElseThrow();
 *     Communicator comm = launch.initRank(Backend.AUTO)) {
 *   // …
 * }
 * }</pre>
 *
 * <p>{@link #run} lets one program have both kinds of ranks: processes, if it was launched, or else
 * threads.
 *
 * <p>The following sources are read; if several are present, they must agree:
 *
 * <table>
 * <caption>Sources</caption>
 * <tr><th>launcher</th><th>recognised by</th><th>numbers</th></tr>
 * <tr><td>{@code nccl4j}</td><td>NCCL4J_RANK or NCCL4J_NRANKS</td><td>those, in ranks; NCCL4J_LOCAL_RANK</td></tr>
 * <tr><td>{@code kubernetes}</td><td>JOB_COMPLETION_INDEX and NCCL4J_NRANKS, without NCCL4J_RANK</td><td>
 * JOB_COMPLETION_INDEX, in processes; NCCL4J_NRANKS, in ranks</td></tr>
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
 * <p>Across machines the unique id goes through the launcher where it has PMIx or PMI, version 1.
 * Others pass on no secret. On one machine the process with rank 0 leaves the unique id in a folder
 * that only its user can enter, under a name that identifies the job. nccl4j's own variables name
 * none: set {@code NCCL4J_JOB} to any name, the same in all processes. Across machines {@code
 * NCCL4J_RENDEZVOUS_DIR} names such a folder that they all share, or {@code NCCL4J_RENDEZVOUS}, as
 * {@code tcp://host:port}, says where the process with rank 0 listens, and {@code NCCL4J_SECRET} or
 * {@code NCCL4J_SECRET_FILE} has a secret of all processes: then no id need travel. With torchrun
 * and Slurm a secret suffices, because they say on which machine rank 0 is. {@code
 * NCCL4J_UNIQUE_ID} or {@code NCCL4J_UNIQUE_ID_FILE}, if set, are used instead.
 *
 * <p>Not thread-safe.
 */
public interface Launch extends AutoCloseable {
  /** Reads the environment of this process; empty if it says nothing of a launch. */
  static Optional<Launch> detect() {
    return detect(System.getenv());
  }

  /**
   * Reads an environment; empty if it says nothing of a launch.
   *
   * @throws InvalidArgumentException if a variable is missing or cannot be understood, or if
   *     sources disagree; the message names them
   */
  static Optional<Launch> detect(Map<String, String> environment) {
    return Provider.get().launch(Require.present(environment, "environment"));
  }

  /**
   * Runs {@code task} as this process's rank of the job if a launcher started it, or else as {@code
   * threads} ranks that are threads of this process. Communicators are closed when it returns.
   *
   * <p>With a launcher, the rank joins as in {@link #initRank(Backend)}; without, the ranks are
   * those of {@link Communicator#initAll(Backend, int)}. In both cases they run as {@link
   * Communicators#run} says: on threads of their own, and if one throws, all ranks learn why.
   *
   * @param threads number of ranks without a launcher, 1 or more; unused with one
   * @throws InvalidArgumentException if {@code threads} is less than 1 or there are fewer devices,
   *     or the environment cannot be understood (see {@link #detect(Map)})
   * @throws NcclException as {@link #initRank(Backend)} does
   * @throws Exception what a rank of this process has thrown
   */
  static void run(Backend backend, int threads, Communicators.RankTask task) throws Exception {
    Require.present(backend, "backend");
    Require.present(task, "task");
    Optional<Launch> launch = detect();
    try (Communicators ranks =
        launch.isPresent()
            ? new Communicators(List.of(launch.get().initRank(backend)))
            : Communicator.initAll(backend, threads)) {
      ranks.run(task);
    }
  }

  /** The launcher's name, as in the table. */
  String launcher();

  /**
   * The number of this process's first rank; its other ranks follow.
   *
   * @param ranksPerProcess the same in every process
   */
  int firstRank(int ranksPerProcess);

  /**
   * Number of ranks of all processes.
   *
   * @param ranksPerProcess the same in every process
   */
  int nranks(int ranksPerProcess);

  /**
   * The process's number among those of this machine, if the launcher provides it. With nccl4j's
   * own variables, which number ranks, it is {@code NCCL4J_LOCAL_RANK}, the number of the process's
   * first rank on this machine, or without that {@code NCCL4J_RANK}.
   */
  OptionalInt localProcess();

  /** Number of processes on this machine, if the launcher provides it. */
  OptionalInt localProcesses();

  /**
   * Returns an id that is the same in all processes. The process with rank 0 creates it, and must
   * live until all have joined; the others wait for it up to the init timeout of {@link
   * CommunicatorConfig#defaults()}. Call it again for each further communicator, in all processes
   * in the same order.
   *
   * @throws DeadlineException if the id does not come in time
   * @throws InvalidUsageException if there is no way to pass it on (several machines, and no
   *     setting that says where), or it is requested again although a setting provides only one
   * @throws SystemErrorException if the folder or the file cannot be used, or belongs to somebody
   *     else
   */
  UniqueId uniqueId(Backend backend);

  /**
   * Joins a communicator of all processes, as the only rank of this one, with the default
   * configuration. The device is the one with this process's number on its machine ({@link
   * #localProcess}), or device 0 if the launcher does not provide that.
   *
   * @throws InvalidArgumentException if the backend is null or has no such device
   * @throws NcclException as {@link #uniqueId} and {@link Communicator#initRank} do
   */
  default Communicator initRank(Backend backend) {
    Device device = Device.get(backend, localProcess().orElse(0));
    return initRank(device, CommunicatorConfig.defaults());
  }

  /**
   * Joins a communicator of all processes, as the only rank of this one.
   *
   * @throws NcclException as {@link #uniqueId} and {@link Communicator#initRank} do
   */
  default Communicator initRank(Device device, CommunicatorConfig config) {
    UniqueId id = uniqueId(Require.present(device, "device").backend());
    Communicator communicator = Communicator.initRank(device, nranks(1), id, firstRank(1), config);
    close();
    return communicator;
  }

  /**
   * Removes what this process left for others: call it when all have joined. It also happens when
   * the process ends.
   */
  @Override
  void close();
}
