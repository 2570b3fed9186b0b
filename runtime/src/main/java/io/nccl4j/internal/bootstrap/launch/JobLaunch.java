package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Launch;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.Deadline;
import io.nccl4j.internal.bootstrap.MeetingAddress;
import io.nccl4j.internal.bootstrap.MeetingFolder;
import io.nccl4j.internal.bootstrap.NetworkCreator;
import io.nccl4j.internal.bootstrap.NetworkId;
import io.nccl4j.internal.bootstrap.NetworkMeeting;
import io.nccl4j.internal.machine.ProcessFiles;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/** The process's place in a job, as its environment tells it. */
public final class JobLaunch implements Launch {
  private static final Logger LOG = LogManager.getLogger(JobLaunch.class);
  private static final String ID = "NCCL4J_UNIQUE_ID";
  static final String ID_FILE = "NCCL4J_UNIQUE_ID_FILE";

  private final Map<String, String> environment;
  private final LaunchSource source;

  /** The launcher, if there is one, whatever source gives the numbers. */
  private final LaunchSource job;

  private final List<LaunchSource> sources;

  private final List<Path> left = new ArrayList<>();
  private @Nullable Thread hook;
  private @Nullable JobSpace space;
  private int ids;

  private JobLaunch(
      Map<String, String> environment,
      List<LaunchSource> sources,
      LaunchSource source,
      LaunchSource job) {
    this.environment = environment;
    this.sources = sources;
    this.source = source;
    this.job = job;
  }

  /**
   * What an environment says; empty if it says nothing.
   *
   * @throws InvalidArgumentException if it contradicts itself or lacks something
   */
  public static Optional<Launch> detect(Map<String, String> environment) {
    List<LaunchSource> sources = LaunchSource.all(environment);
    for (LaunchSource one : sources) {
      for (LaunchSource other : sources) {
        if (!one.agrees(other)) {
          throw new InvalidArgumentException(
              one.describe() + ", " + other.describe(),
              "set "
                  + LaunchSource.LAUNCHER
                  + " to "
                  + one.launcher()
                  + " or "
                  + other.launcher()
                  + ", whichever is right");
        }
      }
    }
    if (sources.isEmpty()) {
      return Optional.empty();
    }
    LaunchSource first =
        sources.stream()
            .filter(source -> source.size() > 0)
            .findFirst()
            .orElseThrow(
                () ->
                    new InvalidArgumentException(
                        sources.getFirst().describe() + ", and nothing says of how many",
                        "set " + LaunchSource.RANK + " and " + LaunchSource.NRANKS));
    LaunchSource job =
        sources.stream().filter(source -> !source.countsRanks()).findFirst().orElse(first);
    JobLaunch launch = new JobLaunch(Map.copyOf(environment), sources, first, job);
    if (first.size() > 1
        && job.countsRanks()
        && !launch.hasId()
        && !MeetingAddress.isIn(environment)
        && launch.givenName().isEmpty()) {
      boolean apart = Boolean.FALSE.equals(job.oneMachine());
      throw new InvalidArgumentException(
          job.variable() + " is set, but nothing says how the processes of the job meet",
          (apart
                  ? ""
                  : "on one machine set "
                      + MeetingFolder.JOB
                      + " to a name of the job, the same in all; else ")
              + "set "
              + MeetingAddress.VARIABLE
              + " and "
              + MeetingAddress.SECRET
              + ", or "
              + ID
              + " or "
              + ID_FILE);
    }
    return Optional.of(launch);
  }

  private String givenName() {
    return environment.getOrDefault(MeetingFolder.JOB, "").strip();
  }

  private boolean hasId() {
    return environment.containsKey(ID) || environment.containsKey(ID_FILE);
  }

  @Override
  public String launcher() {
    return source.launcher();
  }

  @Override
  public int firstRank(int ranksPerProcess) {
    return source.firstRank(ranksPerProcess);
  }

  @Override
  public int nranks(int ranksPerProcess) {
    return source.nranks(ranksPerProcess);
  }

  @Override
  public OptionalInt localProcess() {
    return job.localRank();
  }

  @Override
  public OptionalInt localProcesses() {
    return job.localSize();
  }

  @Override
  public UniqueId uniqueId(Backend backend) {
    int number = ids++;
    Duration timeout = CommunicatorConfig.defaults().initTimeout();
    if (hasId()) {
      if (number > 0) {
        throw new InvalidUsageException(
            ID + " or " + ID_FILE + " gives one unique id, and it was used",
            "split the communicator, or unset the variable");
      }
      return given(backend, timeout);
    }
    if (source.size() == 1) {
      return UniqueId.create(backend);
    }
    Optional<MeetingAddress> address = MeetingAddress.of(environment);
    if (address.isPresent()) {
      return meet(address.get(), number, backend, timeout);
    }
    if (!environment.containsKey(MeetingFolder.VARIABLE)
        && !job.countsRanks()
        && !Boolean.TRUE.equals(job.oneMachine())) {
      if (space().isPresent()) {
        return share(space().get(), number, backend, timeout);
      }
      Optional<MeetingAddress> launchers = LauncherAddress.of(job.launcher(), environment);
      if (launchers.isPresent()) {
        return meet(launchers.get(), number, backend, timeout);
      }
    }
    MeetingFolder folder = folder();
    String name = jobName() + "#" + number;
    if (source.rank() > 0) {
      return folder.take(name, timeout);
    }
    UniqueId id = UniqueId.create(backend, reach());
    leave(folder.leave(name, id));
    return id;
  }

  /** The processes come to the id by themselves; to one of NCCL they do not. */
  private UniqueId meet(MeetingAddress address, int number, Backend backend, Duration timeout) {
    String name = launchersName() + "#" + number;
    boolean serves = source.rank() == 0;
    boolean own = Device.get(backend, 0).backend() == Backend.HOST;
    NetworkId id = address.id(name + (own ? "" : " of nccl"), source.rank(), timeout);
    if (own) {
      if (serves) {
        NetworkCreator.serve(id, null, Deadline.after(timeout));
      }
      return id.toUniqueId();
    }
    if (!serves) {
      return UniqueId.ofBytes(NetworkMeeting.fetch(id, source.rank(), timeout));
    }
    UniqueId nccls = UniqueId.create(backend);
    NetworkMeeting.handOut(id, nccls.toBytes(), timeout);
    return nccls;
  }

  private Optional<JobSpace> space() {
    if (space == null) {
      space = JobSpace.of(environment).orElse(null);
    }
    return Optional.ofNullable(space);
  }

  private UniqueId share(JobSpace through, int number, Backend backend, Duration timeout) {
    remember();
    int process = source.rank();
    UniqueId id = process == 0 ? UniqueId.create(backend, UniqueId.Reach.NETWORK) : null;
    String text = id == null ? "" : id.toString();
    String shared = through.share("nccl4j-" + number, process, text, Deadline.after(timeout));
    return id == null ? UniqueId.parse(shared) : id;
  }

  private UniqueId.Reach reach() {
    return Boolean.FALSE.equals(job.oneMachine()) ? UniqueId.Reach.NETWORK : UniqueId.Reach.MACHINE;
  }

  private UniqueId given(Backend backend, Duration timeout) {
    String text = environment.get(ID);
    if (text != null) {
      return UniqueId.parse(text);
    }
    Path file = Path.of(environment.getOrDefault(ID_FILE, ""));
    if (source.rank() > 0) {
      return UniqueId.readFrom(file, timeout);
    }
    UniqueId id = UniqueId.create(backend, reach());
    id.writeTo(file);
    leave(file);
    return id;
  }

  private MeetingFolder folder() {
    String named = environment.get(MeetingFolder.VARIABLE);
    if (named != null) {
      return MeetingFolder.open(Path.of(named));
    }
    if (Boolean.FALSE.equals(job.oneMachine())) {
      boolean secretSuffices = LauncherAddress.isKnownTo(job.launcher(), environment);
      throw new InvalidUsageException(
          "the ranks are on several machines, and nothing says how the unique id comes to them",
          "set "
              + MeetingAddress.SECRET
              + (secretSuffices ? "" : " and " + MeetingAddress.VARIABLE)
              + " to the same in all processes, or "
              + MeetingFolder.VARIABLE
              + " to a folder of yours that all of them share");
    }
    MeetingFolder standard = MeetingFolder.openFirst(MeetingFolder.standard());
    if (job.oneMachine() == null && !job.countsRanks() && source.rank() == 0) {
      LOG.warn(
          "{} does not say whether all ranks are on this machine: the unique id is left in {},"
              + " where ranks on other machines cannot find it; if there are any, set {} to a"
              + " folder of yours that all of them share",
          job.launcher(),
          standard,
          MeetingFolder.VARIABLE);
    }
    return standard;
  }

  /**
   * What tells this job from all others: on one machine the launcher's process, too, because its
   * variables may come again.
   */
  private String jobName() {
    String name = launchersName();
    if (!environment.containsKey(MeetingFolder.VARIABLE)) {
      return name + "|" + launcherProcess();
    }
    if (name.isEmpty()) {
      throw new InvalidUsageException(
          job.launcher()
              + " does not name its jobs, so "
              + MeetingFolder.VARIABLE
              + " does not suffice",
          "set "
              + MeetingFolder.JOB
              + " to a new name for each job, the same in all its processes");
    }
    return name;
  }

  private String launchersName() {
    Stream<String> given = Stream.of(givenName()).filter(name -> !name.isEmpty());
    Stream<String> launchers =
        sources.stream()
            .filter(one -> !one.job().isEmpty())
            .map(one -> one.launcher() + "/" + one.job());
    return Stream.concat(given, launchers).collect(Collectors.joining("|"));
  }

  /**
   * The nearest ancestor whose own environment lacks a variable that a launcher set: shells in
   * between have inherited it. Empty where there is no launcher, because the processes of the job
   * may come from different shells.
   */
  private String launcherProcess() {
    if (job.countsRanks()) {
      return "";
    }
    Optional<ProcessHandle> ancestor = ProcessHandle.current().parent();
    while (ancestor.isPresent() && wasLaunched(ancestor.get().pid())) {
      ancestor = ancestor.get().parent();
    }
    return ancestor.map(a -> a.pid() + "@" + ProcessFiles.HERE.startOf(a.pid())).orElse("");
  }

  private boolean wasLaunched(long pid) {
    return sources.stream()
        .filter(one -> !one.countsRanks())
        .allMatch(one -> ProcessFiles.HERE.hasVariable(pid, one.variable()));
  }

  private void leave(Path file) {
    remember();
    left.add(file);
  }

  /** What is left to do when the process ends, if nobody closes this before. */
  private void remember() {
    if (hook == null) {
      hook = new Thread(this::clear, "nccl4j-ids");
      Runtime.getRuntime().addShutdownHook(hook);
    }
  }

  private void clear() {
    left.forEach(MeetingFolder::remove);
    left.clear();
    if (space != null) {
      space.close();
    }
  }

  @Override
  public void close() {
    if (hook == null) {
      return;
    }
    try {
      Runtime.getRuntime().removeShutdownHook(hook);
    } catch (IllegalStateException shuttingDown) {
      LOG.debug("the hook removes the files", shuttingDown);
      return;
    }
    hook = null;
    clear();
  }
}
