package io.nccl4j.internal.core;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Launch;
import io.nccl4j.Provider;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclProvider;
import io.nccl4j.diagnose.DiagnoseProvider;
import io.nccl4j.diagnose.Diagnosis;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.internal.bootstrap.launch.JobLaunch;
import io.nccl4j.internal.bootstrap.launch.LeftIds;
import io.nccl4j.internal.check.Require;
import io.nccl4j.internal.diagnose.Doctor;
import io.nccl4j.internal.machine.ProcessFiles;
import io.nccl4j.internal.schedule.Creation;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.WaitSteps;
import io.nccl4j.internal.spi.BackendDevice;
import io.nccl4j.internal.spi.BackendProvider;
import io.nccl4j.internal.spi.BackendRuntime;
import io.nccl4j.internal.spi.LibraryVersion;
import io.nccl4j.internal.spi.MemoryOwner;
import io.nccl4j.internal.spi.NcclRuntime;
import io.nccl4j.internal.spi.SmallFloats;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryProvider;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryReport;
import java.io.IOException;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.function.Supplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/** The runtime behind the API. */
public final class CoreProvider
    implements Provider, MemoryProvider, NcclProvider, DiagnoseProvider {
  private static final Logger LOG = LogManager.getLogger(CoreProvider.class);

  /** A backend of this machine, and what became of it. */
  private static final class Found {
    final BackendProvider provider;
    private @Nullable BackendRuntime runtime;
    private @Nullable BackendUnavailableException failure;

    Found(BackendProvider provider) {
      this.provider = provider;
    }

    /** Opened at the first use, so that who wants the host loads no driver. */
    synchronized BackendRuntime runtime() {
      if (failure != null) {
        throw (BackendUnavailableException)
            new BackendUnavailableException(failure.problem(), failure.remedy()).causedBy(failure);
      }
      if (runtime == null) {
        try {
          runtime = provider.open();
        } catch (BackendUnavailableException e) {
          failure = e;
          throw e;
        }
      }
      return runtime;
    }
  }

  /** The preferred ones first. */
  private final List<Found> backends =
      ServiceLoader.load(BackendProvider.class, BackendProvider.class.getClassLoader()).stream()
          .map(service -> new Found(service.get()))
          .sorted(Comparator.comparingInt((Found found) -> -found.provider.preference()))
          .toList();

  /** The one that {@link java.util.ServiceLoader} makes. */
  public CoreProvider() {}

  private Found found(@Nullable Backend backend) {
    for (Found found : backends) {
      if (found.provider.backend() == backend) {
        return found;
      }
    }
    throw backend == null
        ? new InvalidArgumentException("the backend is null", "pass Backend.AUTO, HOST or CUDA")
        : new BackendUnavailableException(
            "the " + backend.label() + " backend is not in this application",
            "add the jar or module that has it");
  }

  private BackendRuntime automatic() {
    for (Found found : backends) {
      try {
        return found.runtime();
      } catch (BackendUnavailableException e) {
        String label = found.provider.backend().label();
        LOG.debug("{} is not chosen, because it is not available: {}", label, e.getMessage());
      }
    }
    return found(Backend.HOST).runtime();
  }

  private BackendRuntime runtime(@Nullable Backend backend) {
    WaitSteps.requireKnown();
    return backend == Backend.AUTO ? automatic() : found(backend).runtime();
  }

  private NcclRuntime nccl() {
    return (NcclRuntime) runtime(Backend.CUDA);
  }

  @Override
  public Device device(Backend backend, int ordinal) {
    return runtime(backend).device(ordinal);
  }

  @Override
  public List<Device> devices(Backend backend) {
    return runtime(backend).devices();
  }

  @Override
  public byte[] createUniqueId(Backend backend, UniqueId.Reach reach) {
    return runtime(backend).createUniqueId(reach);
  }

  @Override
  public String processMark() {
    return LeftIds.processMark();
  }

  @Override
  public boolean isGone(String mark) {
    return LeftIds.isGone(mark);
  }

  @Override
  public Optional<UserPrincipal> user() throws IOException {
    return ProcessFiles.HERE.owner();
  }

  @Override
  public Optional<Launch> launch(Map<String, String> environment) {
    return JobLaunch.detect(environment);
  }

  @Override
  public Group startGroup() {
    return GroupScope.open();
  }

  @Override
  public void checkRanks(Backend backend, int nranks) {
    runtime(backend).checkRanks(nranks);
  }

  @Override
  public List<Communicator> initAll(List<Device> devices, CommunicatorConfig config) {
    Require.present(config, "config");
    if (devices == null || devices.isEmpty()) {
      throw new InvalidArgumentException(
          "there are no devices to create communicators on",
          "pass one device per rank, at least one");
    }
    for (Device device : devices) {
      Require.present(device, "device");
      if (device.backend() != devices.getFirst().backend()) {
        throw new InvalidArgumentException(
            "the devices are of different backends: "
                + devices.getFirst().backend().label()
                + " and "
                + device.backend().label(),
            "a communicator lives on one backend");
      }
    }
    BackendRuntime runtime = runtime(devices.getFirst().backend());
    return Creation.all("initAll", () -> runtime.initAll(devices, config));
  }

  @Override
  public void placeThread(Device device) {
    runtime(device.backend()).placeThread(device);
  }

  @Override
  public void setTaskEnded(Communicator rank, boolean ended) {
    ((ScheduledCommunicator<?>) rank).setTaskEnded(ended);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    Require.present(device, "device");
    Require.present(id, "id");
    Require.present(config, "config");
    BackendRuntime runtime = runtime(device.backend());
    return created("initRank", () -> runtime.initRank(device, nranks, id, rank, config));
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    Require.present(device, "device");
    Require.present(ids, "ids");
    Require.present(config, "config");
    if (ids.isEmpty() || ids.size() > Math.max(nranks, 1)) {
      throw new InvalidArgumentException(
          "there are " + ids.size() + " unique ids for " + nranks + " ranks",
          "pass one id or more, and at most one per rank");
    }
    for (int i = 0; i < ids.size(); i++) {
      Require.present(ids.get(i), "id");
      if (ids.indexOf(ids.get(i)) < i) {
        throw new InvalidArgumentException(
            "unique id " + i + " appears twice", "create a new id each time");
      }
    }
    BackendRuntime runtime = runtime(device.backend());
    return created("initRank", () -> runtime.initRank(device, nranks, ids, rank, config));
  }

  @Override
  public NcclCommunicator joinGrowing(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    Require.present(device, "device");
    Require.present(id, "id");
    Require.present(config, "config");
    if (device.backend() != Backend.CUDA) {
      throw new InvalidUsageException(
          "the " + device.backend().label() + " backend cannot grow communicators",
          "use a device of Backend.CUDA");
    }
    NcclRuntime runtime = nccl();
    return created("joinGrowing", () -> runtime.joinGrowing(device, nranks, id, rank, config));
  }

  private static <C extends Communicator> C created(String how, Supplier<C> create) {
    return Creation.all(how, () -> List.of(create.get())).getFirst();
  }

  @Override
  public Duration simulate(Runnable operations) {
    Require.present(operations, "operations");
    return nccl().simulate(operations);
  }

  @Override
  public List<String> parameterKeys() {
    return nccl().parameterKeys();
  }

  @Override
  public Optional<String> parameter(String key) {
    Require.present(key, "key");
    return nccl().parameter(key);
  }

  @Override
  public void narrow(
      DataType type, float[] from, int fromIndex, short[] to, int toIndex, int count) {
    if (type == DataType.FLOAT16) {
      SmallFloats.toFloat16(from, fromIndex, to, toIndex, count);
    } else {
      SmallFloats.toBfloat16(from, fromIndex, to, toIndex, count);
    }
  }

  @Override
  public void narrow(
      DataType type, float[] from, int fromIndex, byte[] to, int toIndex, int count) {
    float8(type).fromFloats(from, fromIndex, to, toIndex, count);
  }

  @Override
  public void widen(
      DataType type, short[] from, int fromIndex, float[] to, int toIndex, int count) {
    if (type == DataType.FLOAT16) {
      SmallFloats.fromFloat16(from, fromIndex, to, toIndex, count);
    } else {
      SmallFloats.fromBfloat16(from, fromIndex, to, toIndex, count);
    }
  }

  @Override
  public void widen(DataType type, byte[] from, int fromIndex, float[] to, int toIndex, int count) {
    float8(type).toFloats(from, fromIndex, to, toIndex, count);
  }

  private static SmallFloats.Float8 float8(DataType type) {
    return type == DataType.FLOAT8_E4M3 ? SmallFloats.Float8.E4M3 : SmallFloats.Float8.E5M2;
  }

  @Override
  public BackendInfo info(Backend backend) {
    if (backend != Backend.AUTO) {
      return found(backend).provider.info();
    }
    return backends.stream()
        .map(found -> found.provider.info())
        .filter(BackendInfo::isUsable)
        .findFirst()
        .orElseGet(() -> info(Backend.HOST));
  }

  @Override
  public List<BackendInfo.TuningInfo> tuning(
      Backend backend, int nranks, CommunicatorConfig config) {
    Backend chosen = backend == Backend.AUTO ? info(backend).backend() : backend;
    return found(chosen).provider.tuning(nranks, config);
  }

  @Override
  public MemoryPrediction predict(MemoryQuery query) {
    return found(Require.present(query, "query").backend()).provider.predictMemory(query);
  }

  @Override
  public MemoryReport report(Device device) {
    return own(device).memory();
  }

  @Override
  public MemoryReport report(Communicator communicator) {
    if (Require.present(communicator, "communicator") instanceof MemoryOwner owner) {
      return owner.memory();
    }
    throw foreign(communicator, "communicator", "create it with Communicator.initAll or initRank");
  }

  @Override
  public MemoryPool newPool(Device device, MemoryPoolOptions options) {
    return own(device).newMemoryPool(Require.present(options, "options"));
  }

  private static BackendDevice own(Device device) {
    if (Require.present(device, "device") instanceof BackendDevice own) {
      return own;
    }
    throw foreign(device, "device", "get it with Device.get or Device.all");
  }

  private static InvalidArgumentException foreign(Object object, String what, String remedy) {
    return new InvalidArgumentException("the " + what + " " + object + " is not nccl4j's", remedy);
  }

  @Override
  public Diagnosis diagnose(Backend backend) {
    Require.present(backend, "backend");
    BackendInfo gpus = backend == Backend.HOST ? null : info(Backend.CUDA);
    long shmBytes = gpus != null && gpus.isUsable() ? nccl().sharedMemoryNeed() : 0;
    return Doctor.examine(
        info(Backend.HOST), gpus, backend == Backend.CUDA, shmBytes, LeftIds.here().check());
  }

  @Override
  public List<SharedMemorySegment> removeUnusedSegments() {
    return Doctor.removeUnused();
  }

  @Override
  public List<Path> removeStaleIds() {
    return LeftIds.here().remove();
  }

  @Override
  public String version() {
    return LibraryVersion.text();
  }
}
