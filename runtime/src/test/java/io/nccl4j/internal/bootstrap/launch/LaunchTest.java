package io.nccl4j.internal.bootstrap.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Launch;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.diagnose.Diagnosis;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.bootstrap.JoinMain;
import io.nccl4j.internal.bootstrap.Joiner;
import io.nccl4j.internal.bootstrap.MeetingFolder;
import io.nccl4j.internal.bootstrap.NetworkMeeting;
import io.nccl4j.internal.bootstrap.Place;
import io.nccl4j.internal.bootstrap.Ranks;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.machine.Machine;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Environments as launchers make them, and the folder where the unique id is left. */
@Timeout(60)
@Tag("parallel")
class LaunchTest {
  private static final Duration SOON = Duration.ofMillis(50);

  @TempDir Path folder;

  /** {@code A=1 B=2} as a map. */
  private static Map<String, String> environment(String text) {
    Map<String, String> environment = new HashMap<>();
    for (String word : text.strip().split("\\s+")) {
      int equals = word.indexOf('=');
      environment.put(word.substring(0, equals), word.substring(equals + 1));
    }
    return environment;
  }

  private static final String TORCHRUN =
      "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 RANK=3 WORLD_SIZE=4 LOCAL_RANK=1"
          + " LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=node0 MASTER_PORT=29500";
  private static final String SLURM =
      "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3"
          + " SLURM_STEP_NUM_NODES=1";
  private static final String OPENMPI =
      "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3"
          + " OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=1784217601 PMIX_RANK=3";
  private static final String MPICH =
      "PMI_RANK=3 PMI_SIZE=4 PMI_FD=6 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4";

  static Stream<Arguments> sources() {
    return Stream.of(
        Arguments.of("torchrun", TORCHRUN, 1, 2),
        Arguments.of("slurm", SLURM, 3, 4),
        Arguments.of("slurm", SLURM + " PMIX_NAMESPACE=slurm.pmix.77.0 PMIX_RANK=3", 3, 4),
        Arguments.of("slurm", SLURM + " SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=9", 3, 4),
        Arguments.of("slurm", SLURM.replace("NODES=1", "NODES=2"), 3, -1),
        Arguments.of("slurm", SLURM + " PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=77.0", 3, 4),
        Arguments.of("openmpi", OPENMPI, 3, 4),
        // A script's variables of Slurm are not those of a process that srun started.
        Arguments.of("openmpi", OPENMPI + " SLURM_PROCID=0 SLURM_NTASKS=1", 3, 4),
        Arguments.of(
            "openmpi", OPENMPI + " SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=4294967291", 3, 4),
        Arguments.of("mpich", MPICH, 3, 4),
        Arguments.of("mpich", "PMI_RANK=3 PMI_SIZE=4", -1, -1),
        // Right by name, although another one disagrees.
        Arguments.of("mpich", MPICH + " NCCL4J_LAUNCHER=mpich RANK=x " + SLURM + "7", 3, 4));
  }

  @ParameterizedTest
  @MethodSource("sources")
  void eachSourceIsUnderstood(String launcher, String text, int local, int locals) {
    Launch launch = JobLaunch.detect(environment(text)).orElseThrow();
    assertEquals(launcher, launch.launcher());
    assertEquals(3, launch.firstRank(1));
    assertEquals(4, launch.nranks(1));
    assertEquals(6, launch.firstRank(2));
    assertEquals(8, launch.nranks(2));
    assertEquals(local < 0 ? OptionalInt.empty() : OptionalInt.of(local), launch.localProcess());
    assertEquals(
        locals < 0 ? OptionalInt.empty() : OptionalInt.of(locals), launch.localProcesses());
  }

  @Test
  void ownVariablesCountRanks() {
    String own = "NCCL4J_RANK=6 NCCL4J_NRANKS=8 NCCL4J_UNIQUE_ID=x";
    for (String text : new String[] {own, own + " " + SLURM, own + " " + OPENMPI}) {
      Launch launch = JobLaunch.detect(environment(text)).orElseThrow();
      assertEquals("nccl4j", launch.launcher());
      assertEquals(6, launch.firstRank(2));
      assertEquals(8, launch.nranks(2));
    }
    assertEquals(
        OptionalInt.of(6), JobLaunch.detect(environment(own)).orElseThrow().localProcess());
    String second = own + " NCCL4J_LOCAL_RANK=2";
    assertEquals(
        OptionalInt.of(2), JobLaunch.detect(environment(second)).orElseThrow().localProcess());
  }

  /** Pods are processes: with two ranks each there are half as many. */
  @Test
  void podsOfAnIndexedJobAreNumbered() {
    String pod = "JOB_COMPLETION_INDEX=3 NCCL4J_NRANKS=4 NCCL4J_UNIQUE_ID=x";
    Launch launch = JobLaunch.detect(environment(pod)).orElseThrow();
    assertEquals("kubernetes", launch.launcher());
    assertEquals(3, launch.firstRank(1));
    assertEquals(4, launch.nranks(1));
    assertEquals(4, launch.nranks(2));
    assertEquals(2, launch(pod, 1).firstRank(2));
    assertEquals(OptionalInt.empty(), launch.localProcess());
    // A rank that is given counts; without their number pods are none.
    Launch own = JobLaunch.detect(environment(pod + " NCCL4J_RANK=2")).orElseThrow();
    assertEquals("nccl4j", own.launcher());
    assertEquals(2, own.firstRank(1));
    assertEquals(Optional.empty(), JobLaunch.detect(environment("JOB_COMPLETION_INDEX=3")));
  }

  @ParameterizedTest
  @CsvSource({
    "HOME=/root",
    "RANK=1 WORLD_SIZE=2",
    "SLURM_JOB_ID=7 SLURM_NTASKS=4",
    "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=4294967290",
    "PMIX_RANK=1",
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 NCCL4J_LAUNCHER=none"
  })
  void whatIsNoLaunchersIsLeftAlone(String text) {
    assertEquals(Optional.empty(), JobLaunch.detect(environment(text)));
  }

  static Stream<Arguments> contradictions() {
    return Stream.of(
        Arguments.of(
            OPENMPI + " " + SLURM.replace("PROCID=3", "PROCID=1"),
            "slurm (SLURM_PROCID) says rank 1 of 4, openmpi (OMPI_COMM_WORLD_RANK) says rank 3 of"
                + " 4; set NCCL4J_LAUNCHER to slurm or openmpi"),
        Arguments.of(
            TORCHRUN + " " + MPICH.replace("SIZE=4", "SIZE=8"),
            "torchrun (RANK) says rank 3 of 4, mpich (PMI_RANK) says rank 3 of 8"),
        Arguments.of(
            SLURM + " PMIX_NAMESPACE=x PMIX_RANK=0",
            "slurm (SLURM_PROCID) says rank 3 of 4, pmix (PMIX_RANK) says rank 0;"),
        Arguments.of(
            SLURM + " NCCL4J_RANK=0 NCCL4J_NRANKS=4 NCCL4J_UNIQUE_ID=x",
            "nccl4j (NCCL4J_RANK) says rank 0 of 4, slurm (SLURM_PROCID) says rank 3 of 4"),
        Arguments.of("PMIX_NAMESPACE=x PMIX_RANK=0", "rank 0, and nothing says of how many"),
        Arguments.of("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"),
        Arguments.of("TORCHELASTIC_RUN_ID=x WORLD_SIZE=2", "RANK is not set"),
        Arguments.of("PMI_RANK=two PMI_SIZE=4", "PMI_RANK is 'two'; use a number"),
        Arguments.of("PMI_RANK=4 PMI_SIZE=4", "PMI_RANK is 4, but there are 4 ranks"),
        Arguments.of(
            "SLURM_PROCID=0 SLURM_STEP_ID=x SLURM_NTASKS=1", "SLURM_STEP_ID is 'x'; use a number"),
        Arguments.of(
            "NCCL4J_RANK=0 NCCL4J_NRANKS=2",
            "NCCL4J_RANK is set, but nothing says how the processes of the job meet; on one machine"
                + " set NCCL4J_JOB"),
        Arguments.of("NCCL4J_RANK=0 NCCL4J_NRANKS=2 NCCL4J_JOB=", "set NCCL4J_JOB"),
        Arguments.of(
            "JOB_COMPLETION_INDEX=0 NCCL4J_NRANKS=2",
            "nothing says how the processes of the job meet; set NCCL4J_RENDEZVOUS and"
                + " NCCL4J_SECRET, or"),
        Arguments.of(
            "JOB_COMPLETION_INDEX=2 NCCL4J_NRANKS=2",
            "JOB_COMPLETION_INDEX is 2, but there are 2 ranks"),
        Arguments.of("NCCL4J_NRANKS=2", "NCCL4J_RANK is not set; set both"),
        Arguments.of("NCCL4J_LAUNCHER=pbs", "NCCL4J_LAUNCHER is 'pbs'; use one of nccl4j"),
        Arguments.of("NCCL4J_LAUNCHER=slurm PMI_RANK=1", "its variables are not set"));
  }

  @ParameterizedTest
  @MethodSource("contradictions")
  void contradictionsAreNamed(String text, String part) {
    Map<String, String> environment = environment(text);
    contains(part, InvalidArgumentException.class, () -> JobLaunch.detect(environment));
  }

  private static void contains(
      String part,
      Class<? extends NcclException> type,
      org.junit.jupiter.api.function.Executable task) {
    String message = assertThrows(type, task).getMessage();
    assertTrue(message.contains(part), message);
  }

  // ---- the folder

  private static Launch launch(String text, int rank) {
    return JobLaunch.detect(environment(text.replace("=3", "=" + rank))).orElseThrow();
  }

  private Path meeting() {
    return folder.resolve("meeting");
  }

  private String in(String text) {
    return text + " NCCL4J_RENDEZVOUS_DIR=" + meeting();
  }

  private long files() throws IOException {
    try (Stream<Path> files = Files.list(meeting())) {
      return files.count();
    }
  }

  @ParameterizedTest
  @CsvSource({TORCHRUN, SLURM, OPENMPI})
  void allProcessesGetTheSameId(String text) throws IOException {
    try (Launch first = launch(in(text), 0);
        Launch second = launch(in(text), 1)) {
      UniqueId one = first.uniqueId(Backend.HOST);
      UniqueId two = first.uniqueId(Backend.HOST);
      assertEquals(one, second.uniqueId(Backend.HOST));
      assertEquals(two, second.uniqueId(Backend.HOST));
      assertNotEquals(one, two);
      assertEquals(
          "rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(meeting())));
      assertEquals(2, files());
    }
    assertEquals(0, files());
  }

  /**
   * On one machine the launcher's own process names the job; here that is what started this JVM.
   */
  @Test
  void withoutAFolderTheUsersOwnServes() {
    try (Launch first = launch(MPICH, 0);
        Launch second = launch(MPICH, 1)) {
      assertEquals(first.uniqueId(Backend.HOST), second.uniqueId(Backend.HOST));
    }
  }

  /** Shells and scripts have no process of which all ranks descend, and need none. */
  @Test
  void onOneMachineANameOfTheJobSuffices() {
    String job = " NCCL4J_JOB=" + folder;
    try (Launch first = own(job, 0);
        Launch second = own(job, 1);
        Launch underSlurm = own(job + " NCCL4J_LAUNCHER=nccl4j " + SLURM, 1)) {
      UniqueId id = first.uniqueId(Backend.HOST);
      assertEquals(id, second.uniqueId(Backend.HOST));
      assertEquals(id, underSlurm.uniqueId(Backend.HOST));
      assertFalse(Rendezvous.isOverNetwork(id));
      assertEquals(first.uniqueId(Backend.HOST), second.uniqueId(Backend.HOST));
      try (Launch other = own(job + "/2", 0)) {
        assertNotEquals(id, other.uniqueId(Backend.HOST));
      }
    }
  }

  /** One that a folder for all machines needs where the launcher has none. */
  @Test
  void aNameOfTheJobCountsWithEveryLauncher() {
    for (String text : List.of(MPICH, TORCHRUN)) {
      try (Launch first = launch(in(text) + " NCCL4J_JOB=a", 0);
          Launch second = launch(in(text) + " NCCL4J_JOB=a", 1);
          Launch other = launch(in(text) + " NCCL4J_JOB=b", 0)) {
        UniqueId id = first.uniqueId(Backend.HOST);
        assertNotEquals(id, other.uniqueId(Backend.HOST));
        assertEquals(id, second.uniqueId(Backend.HOST));
      }
    }
  }

  @Test
  void severalMachinesNeedASetting() {
    contains(
        "set NCCL4J_SECRET and NCCL4J_RENDEZVOUS to the same in all processes",
        InvalidUsageException.class,
        () ->
            launch("JOB_COMPLETION_INDEX=3 NCCL4J_NRANKS=4 NCCL4J_JOB=a", 0)
                .uniqueId(Backend.HOST));
    contains(
        "set NCCL4J_SECRET to the same in all processes, or NCCL4J_RENDEZVOUS_DIR",
        InvalidUsageException.class,
        () -> launch(TORCHRUN, 0).uniqueId(Backend.HOST));
    contains(
        "set NCCL4J_SECRET and NCCL4J_RENDEZVOUS to the same in all processes",
        InvalidUsageException.class,
        () -> launch(SLURM.replace("NODES=1", "NODES=2"), 0).uniqueId(Backend.HOST));
    contains(
        "mpich does not name its jobs, so NCCL4J_RENDEZVOUS_DIR does not suffice; set NCCL4J_JOB",
        InvalidUsageException.class,
        () -> launch(in(MPICH), 0).uniqueId(Backend.HOST));
  }

  @Test
  void jobsAreToldApart() {
    MeetingFolder meeting = MeetingFolder.open(meeting());
    meeting.leave("one", UniqueId.create(Backend.HOST));
    contains("no unique id appeared", DeadlineException.class, () -> meeting.take("two", SOON));
  }

  @Test
  void whatTheDeadLeftIsPassedOver() throws IOException {
    MeetingFolder meeting = MeetingFolder.open(meeting());
    Path own = meeting.leave("job", UniqueId.create(Backend.HOST));
    UniqueId stale = UniqueId.create(Backend.HOST);
    String name = own.getFileName().toString();
    MeetingFolder.remove(own);
    // The same process id at another time, and a process that is not there.
    stale.writeTo(meeting().resolve(name.substring(0, name.lastIndexOf('.')) + ".1"));
    stale.writeTo(
        meeting()
            .resolve(name.replace("." + Place.HERE.pid() + ".", "." + Integer.MAX_VALUE + ".")));
    assertEquals(2, files());
    contains("no unique id appeared", DeadlineException.class, () -> meeting.take("job", SOON));
    UniqueId fresh = UniqueId.create(Backend.HOST);
    meeting.leave("job", fresh);
    assertEquals(fresh, meeting.take("job", SOON));
    assertEquals(1, files());
  }

  @Test
  void whatAnotherMachineLeftIsTaken() {
    MeetingFolder meeting = MeetingFolder.open(meeting());
    Path own = meeting.leave("job", UniqueId.create(Backend.HOST));
    String name = own.getFileName().toString();
    MeetingFolder.remove(own);
    UniqueId far = UniqueId.create(Backend.HOST);
    far.writeTo(
        meeting().resolve(name.replace(Place.HERE.boot().toString(), Machine.NO_BOOT.toString())));
    assertEquals(far, meeting.take("job", SOON));
  }

  @Test
  void foldersThatOthersMayEnterAreRefused() throws IOException {
    Files.createDirectory(meeting());
    Files.setPosixFilePermissions(meeting(), PosixFilePermissions.fromString("rwxr-xr-x"));
    contains(
        "can be used by others (rwxr-xr-x); it holds secrets: chmod 700 it",
        SystemErrorException.class,
        () -> MeetingFolder.open(meeting()));
  }

  @Test
  void whatIsNoFolderIsRefused() throws IOException {
    Path file = Files.createFile(folder.resolve("file"));
    contains("is no folder", SystemErrorException.class, () -> MeetingFolder.open(file));
    Path link = Files.createSymbolicLink(folder.resolve("link"), folder);
    contains("is no folder", SystemErrorException.class, () -> MeetingFolder.open(link));
    contains(
        "cannot be used",
        SystemErrorException.class,
        () -> MeetingFolder.open(folder.resolve("a/b")));
  }

  /** Only root can make such a folder; /proc/1 belongs to root for all others. */
  @Test
  void foldersOfSomebodyElseAreRefused() throws Exception {
    Path other = Path.of("/proc/1");
    if (Files.getOwner(Path.of("/proc/self")).getName().equals("root")) {
      Files.createDirectory(meeting());
      Files.setAttribute(meeting(), "unix:uid", 65534);
      other = meeting();
    }
    Path foreign = other;
    contains("belongs to ", SystemErrorException.class, () -> MeetingFolder.open(foreign));
  }

  @Test
  void filesThatOthersMayReadAreRefused() throws IOException {
    MeetingFolder meeting = MeetingFolder.open(meeting());
    Path file = meeting.leave("job", UniqueId.create(Backend.HOST));
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
    contains("by others", SystemErrorException.class, () -> meeting.take("job", SOON));
  }

  @Test
  void aSettingGivesOneId() {
    UniqueId id = UniqueId.create(Backend.HOST);
    Launch launch = launch(SLURM + " NCCL4J_UNIQUE_ID=" + id, 1);
    assertEquals(id, launch.uniqueId(Backend.HOST));
    contains(
        "gives one unique id", InvalidUsageException.class, () -> launch.uniqueId(Backend.HOST));
    launch.close();
  }

  // ---- a machine and a port

  private static final String SECRET = " NCCL4J_SECRET=0123456789abcdef";

  private static String at(int port) {
    return " NCCL4J_RENDEZVOUS=tcp://127.0.0.1:" + port;
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  private static String meet(UniqueId id, int rank, int nranks) {
    Joiner joiner = new Joiner(rank, nranks, PROCESS, 1, -1, 0, rank == 0 ? 0 : -1);
    try (NetworkMeeting meeting = NetworkMeeting.connect(id, rank, Duration.ofSeconds(30))) {
      int met = meeting.join(joiner, new byte[0]).size();
      meeting.agree();
      return meeting.name() + " " + met;
    }
  }

  private static final UUID PROCESS = UUID.randomUUID();

  private static Launch own(String text, int rank) {
    return launch("NCCL4J_RANK=3 NCCL4J_NRANKS=2" + text, rank);
  }

  @ParameterizedTest
  @CsvSource({TORCHRUN, SLURM, MPICH, "NCCL4J_RANK=3 NCCL4J_NRANKS=2"})
  void allProcessesComeToTheSameId(String text) throws Exception {
    String two =
        text.replaceAll("(WORLD_SIZE|NTASKS|PMI_SIZE)=4", "$1=2") + SECRET + at(freePort());
    Launch second = launch(two, 1);
    Launch first = launch(two, 0);
    for (int number = 0; number < 2; number++) {
      UniqueId later = second.uniqueId(Backend.HOST);
      UniqueId one = first.uniqueId(Backend.HOST);
      assertEquals(one, later);
      List<String> met = Ranks.run(List.of(() -> meet(one, 0, 2), () -> meet(later, 1, 2)));
      assertEquals(met.get(0), met.get(1));
      assertTrue(met.get(0).endsWith(" 2"), met::toString);
    }
    first.close();
    second.close();
  }

  /** They say where rank 0 is; what is missing is the secret. */
  @ParameterizedTest
  @ValueSource(strings = {"torchrun", "slurm"})
  void aSecretSufficesWhereTheLauncherNamesTheMachine(String launcher) throws Exception {
    Map<String, String> environment =
        launcher.equals("slurm") ? slurmAtAFreePort() : environment(TORCHRUN + SECRET);
    if (launcher.equals("torchrun")) {
      environment.put("MASTER_ADDR", "127.0.0.1");
      environment.put("MASTER_PORT", Integer.toString(freePort() - 1));
      environment.put("WORLD_SIZE", "2");
      environment.put("LOCAL_WORLD_SIZE", "1");
    }
    String number = launcher.equals("slurm") ? "SLURM_PROCID" : "RANK";
    environment.put(number, "1");
    Launch second = JobLaunch.detect(environment).orElseThrow();
    environment.put(number, "0");
    Launch first = JobLaunch.detect(environment).orElseThrow();
    UniqueId later = second.uniqueId(Backend.HOST);
    UniqueId one = first.uniqueId(Backend.HOST);
    assertEquals(one, later);
    List<String> met = Ranks.run(List.of(() -> meet(one, 0, 2), () -> meet(later, 1, 2)));
    assertEquals(met.get(0), met.get(1));

    // An address or a folder that is given counts more.
    environment.put("NCCL4J_RENDEZVOUS", "tcp://127.0.0.1:" + freePort());
    Launch named = JobLaunch.detect(environment).orElseThrow();
    assertNotEquals(one, named.uniqueId(Backend.HOST));
    environment.remove("NCCL4J_RENDEZVOUS");
    environment.put("NCCL4J_RENDEZVOUS_DIR", meeting().toString());
    try (Launch inFolder = JobLaunch.detect(environment).orElseThrow()) {
      assertTrue(Rendezvous.isOverNetwork(inFolder.uniqueId(Backend.HOST)));
      assertEquals(1, files());
    }
  }

  /** Of two machines, with a job whose port is free. */
  private static Map<String, String> slurmAtAFreePort() throws IOException {
    Map<String, String> environment =
        environment(SLURM.replace("NODES=1", "NODES=2").replace("NTASKS=4", "NTASKS=2") + SECRET);
    environment.put("SLURM_STEP_NODELIST", "127.0.0.[1-2]");
    for (long job = ProcessHandle.current().pid(); ; job++) {
      environment.put("SLURM_JOB_ID", Long.toString(job));
      int port = LauncherAddress.of("slurm", environment).orElseThrow().port();
      try (ServerSocket free = new ServerSocket(port, 1, InetAddress.ofLiteral("127.0.0.1"))) {
        assertEquals(port, free.getLocalPort());
        return environment;
      } catch (BindException taken) {
        continue;
      }
    }
  }

  /** On one machine nobody listens at a port that others reach. */
  @Test
  void aSecretChangesNothingOnOneMachine() throws Exception {
    String one = TORCHRUN.replace("LOCAL_WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4");
    try (Launch first = launch(one + SECRET, 0);
        Launch second = launch(one + SECRET, 1)) {
      UniqueId id = first.uniqueId(Backend.HOST);
      assertFalse(Rendezvous.isOverNetwork(id));
      assertEquals(id, second.uniqueId(Backend.HOST));
    }
  }

  @Test
  void jobsAndCommunicatorsAreToldApart() throws Exception {
    String here = at(freePort());
    Set<UniqueId> ids = new HashSet<>();
    for (String text :
        List.of(
            SLURM + SECRET,
            SLURM.replace("JOB_ID=77", "JOB_ID=78") + SECRET,
            SLURM.replace("STEP_ID=0", "STEP_ID=1") + SECRET,
            SLURM + SECRET + "g",
            TORCHRUN + SECRET)) {
      Launch launch = launch(text + here, 1);
      assertTrue(ids.add(launch.uniqueId(Backend.HOST)), text);
      assertTrue(ids.add(launch.uniqueId(Backend.HOST)), text);
    }
  }

  @Test
  void theRendezvousNeedsASecretAndAnAddress() throws Exception {
    String here = at(freePort());
    contains(
        "NCCL4J_RENDEZVOUS is set, but no secret",
        InvalidUsageException.class,
        () -> own(here, 1).uniqueId(Backend.HOST));
    contains(
        "the secret in NCCL4J_SECRET has 5 bytes",
        InvalidUsageException.class,
        () -> own(here + " NCCL4J_SECRET=short", 1).uniqueId(Backend.HOST));
    contains(
        "NCCL4J_RENDEZVOUS is 'node0'",
        InvalidArgumentException.class,
        () -> own(" NCCL4J_RENDEZVOUS=node0" + SECRET, 1).uniqueId(Backend.HOST));
    contains(
        "else set NCCL4J_RENDEZVOUS and NCCL4J_SECRET, or NCCL4J_UNIQUE_ID or"
            + " NCCL4J_UNIQUE_ID_FILE",
        InvalidArgumentException.class,
        () -> own(" NCCL4J_RENDEZVOUS=", 1));
  }

  @Test
  void aPortThatIsTakenIsNamed() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.ofLiteral("127.0.0.1"))) {
      contains(
          "127.0.0.1, TCP port " + taken.getLocalPort(),
          SystemErrorException.class,
          () -> own(at(taken.getLocalPort()) + SECRET, 0).uniqueId(Backend.HOST));
    }
  }

  /** One process needs neither a server nor a secret. */
  @Test
  void aSingleProcessMeetsNobody() throws Exception {
    Launch launch = launch("NCCL4J_RANK=3 NCCL4J_NRANKS=1" + at(freePort()), 0);
    assertFalse(Rendezvous.isOverNetwork(launch.uniqueId(Backend.HOST)));
  }

  @ParameterizedTest
  @CsvSource({"1, false", "2, true"})
  void ranksOfSeveralMachinesMeetOverTheNetwork(int machines, boolean network) {
    String text = in(SLURM.replace("NODES=1", "NODES=" + machines));
    try (Launch first = launch(text, 0);
        Launch second = launch(text, 1)) {
      UniqueId id = first.uniqueId(Backend.HOST);
      assertEquals(network, Rendezvous.isOverNetwork(id));
      assertEquals(id, second.uniqueId(Backend.HOST));
    }
  }

  @Test
  void aFileIsMadeAndRemoved() {
    Path file = folder.resolve("id");
    String own = "NCCL4J_NRANKS=2 NCCL4J_UNIQUE_ID_FILE=" + file;
    try (Launch first = JobLaunch.detect(environment("NCCL4J_RANK=0 " + own)).orElseThrow();
        Launch second = JobLaunch.detect(environment("NCCL4J_RANK=1 " + own)).orElseThrow()) {
      assertEquals(first.uniqueId(Backend.HOST), second.uniqueId(Backend.HOST));
      assertTrue(Files.exists(file));
    }
    assertFalse(Files.exists(file));
  }

  // ---- what killed jobs leave

  /** Leaves an id in files, as a process that was killed; returns the id. */
  private static UniqueId killed(Path... files) throws Exception {
    try (ChildJvm child = ChildJvm.start(JoinMain.class, (Object[]) withCommand(files))) {
      UniqueId id = UniqueId.parse(child.expect("id"));
      child.kill();
      child.await();
      return id;
    }
  }

  private static String[] withCommand(Path... files) {
    return Stream.concat(Stream.of("leave"), Stream.of(files).map(Path::toString))
        .toArray(String[]::new);
  }

  @Test
  void theFileOfAKilledJobIsWaitedOutAndReplaced() throws Exception {
    Assumptions.assumeTrue(Place.HERE.started() != 0, "processes cannot be told apart here");
    Path file = folder.resolve("id");
    killed(file);
    contains(
        "id did not appear within 50 ms: the present one belongs to an earlier job, whose process"
            + " is gone",
        DeadlineException.class,
        () -> UniqueId.readFrom(file, SOON));
    String own = "NCCL4J_NRANKS=2 NCCL4J_UNIQUE_ID_FILE=" + file;
    CompletableFuture<UniqueId> second =
        CompletableFuture.supplyAsync(
            () ->
                JobLaunch.detect(environment("NCCL4J_RANK=1 " + own))
                    .orElseThrow()
                    .uniqueId(Backend.HOST));
    Thread.sleep(100);
    try (Launch first = JobLaunch.detect(environment("NCCL4J_RANK=0 " + own)).orElseThrow()) {
      UniqueId fresh = first.uniqueId(Backend.HOST);
      UniqueId found = second.get(30, TimeUnit.SECONDS);
      assertEquals(fresh, found);
      assertEquals(Optional.of(file), found.file());
      assertEquals(fresh, UniqueId.parse(Files.readString(file)));
    }
  }

  /** Without its maker's mark a file could be of another machine: the join says what to do. */
  @Test
  void whatCannotBeToldNamesTheFileWhenTheJoinFails() throws Exception {
    Path file = folder.resolve("id");
    UniqueId dead = killed(file);
    Files.writeString(file, dead.toString());
    UniqueId id = UniqueId.readFrom(file, SOON);
    contains(
        "if " + file + " is an earlier job's, remove it: rm '" + file + "'",
        PeerFailedException.class,
        () -> Communicator.initRank(Device.get(Backend.HOST, 0), 2, id, 0));
  }

  @Test
  void secretsOfKilledJobsAreFoundAndRemoved() throws Exception {
    Assumptions.assumeTrue(Place.HERE.started() != 0, "processes cannot be told apart here");
    MeetingFolder meeting = MeetingFolder.open(meeting());
    Path own = meeting.leave("living", UniqueId.create(Backend.HOST));
    Path single = folder.resolve("single");
    String living = own.getFileName().toString();
    String dead = living.replace("." + Place.HERE.pid() + ".", ".999999999.");
    Path one = meeting().resolve(dead);
    Path two = meeting().resolve("0" + dead.substring(1));
    Path far = meeting().resolve(dead.replace(Place.HERE.boot().toString(), "" + Machine.NO_BOOT));
    killed(one, two, far, single);
    LeftIds left =
        LeftIds.of(
            List.of(meeting(), folder.resolve("none")),
            Map.of("NCCL4J_UNIQUE_ID_FILE", single.toString()));
    Diagnosis.Check check = left.check();
    assertEquals(Diagnosis.Status.WARN, check.status());
    assertTrue(
        check.found().startsWith("3 files of processes that are gone, with their secrets: "),
        check::found);
    for (Path file : List.of(one, two, single)) {
      assertTrue(check.found().contains(file.toString()), check::found);
    }
    assertEquals(Set.of(one, two, single), Set.copyOf(left.remove()));
    assertEquals(2, files());
    assertTrue(Files.exists(own) && Files.exists(far) && !Files.exists(single));
    assertEquals("2 in use, or of another machine or container", left.check().found());
    assertEquals(Diagnosis.Status.OK, left.check().status());
  }

  @Test
  void theNextJobRemovesWhatKilledOnesLeft() throws Exception {
    Assumptions.assumeTrue(Place.HERE.started() != 0, "processes cannot be told apart here");
    MeetingFolder meeting = MeetingFolder.open(meeting());
    Path own = meeting.leave("one", UniqueId.create(Backend.HOST));
    String dead = own.getFileName().toString().replace("." + Place.HERE.pid() + ".", ".999999999.");
    killed(meeting().resolve(dead));
    Path foreign = Files.createFile(meeting().resolve("notes.txt"));
    assertEquals(3, files());
    meeting.leave("two", UniqueId.create(Backend.HOST));
    assertFalse(Files.exists(meeting().resolve(dead)));
    assertTrue(Files.exists(own) && Files.exists(foreign));
  }

  /** Anybody can take the name of a folder in /tmp, and only its owner can give it back. */
  @Test
  void aFolderThatIsTakenHasASubstitute() throws Exception {
    Path taken = Files.createFile(folder.resolve("taken"));
    Path substitute = folder.resolve("substitute");
    UniqueId id = UniqueId.create(Backend.HOST);
    List<Path> folders = List.of(taken, substitute);
    MeetingFolder.openFirst(folders).leave("job", id);
    assertEquals(id, MeetingFolder.openFirst(folders).take("job", SOON));
    try (Stream<Path> files = Files.list(substitute)) {
      assertEquals(1, files.count());
    }
    contains(
        "set NCCL4J_RENDEZVOUS_DIR to a folder of yours",
        SystemErrorException.class,
        () -> MeetingFolder.openFirst(List.of(taken, taken)));
    List<Path> standard = MeetingFolder.standard();
    assertEquals(Path.of(System.getProperty("user.home"), ".nccl4j"), standard.getLast());
  }
}
