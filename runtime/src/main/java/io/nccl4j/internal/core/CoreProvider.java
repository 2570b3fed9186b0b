package io.nccl4j.internal.core;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.Diagnosis;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Launch;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryQuery;
import io.nccl4j.NcclCommunicator;
import io.nccl4j.Provider;
import io.nccl4j.SharedMemorySegment;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.JobLaunch;
import io.nccl4j.internal.bootstrap.LeftIds;
import io.nccl4j.internal.cuda.CudaBackend;
import io.nccl4j.internal.cuda.CudaInfo;
import io.nccl4j.internal.cuda.memory.CudaMemory;
import io.nccl4j.internal.diagnose.Doctor;
import io.nccl4j.internal.host.HostBackend;
import io.nccl4j.internal.machine.ProcessFiles;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.spi.BackendRuntime;
import java.io.IOException;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/** The runtime behind the API. */
public final class CoreProvider implements Provider {
  private static final Logger LOG = LogManager.getLogger(CoreProvider.class);

  private final HostBackend host = new HostBackend();
  private @Nullable CudaBackend cuda;
  private @Nullable BackendUnavailableException cudaFailure;

  /** The one that {@link java.util.ServiceLoader} makes. */
  public CoreProvider() {}

  /** Made at the first use, so that who wants the host loads no driver. */
  private synchronized CudaBackend cuda() {
    if (cuda == null) {
      if (cudaFailure != null) {
        throw (BackendUnavailableException)
            new BackendUnavailableException(cudaFailure.problem(), cudaFailure.remedy())
                .causedBy(cudaFailure);
      }
      try {
        cuda = new CudaBackend();
      } catch (BackendUnavailableException e) {
        cudaFailure = e;
        throw e;
      }
    }
    return cuda;
  }

  private BackendRuntime automatic() {
    try {
      return cuda();
    } catch (BackendUnavailableException e) {
      LOG.debug("the host backend is chosen, because cuda is not available: {}", e.getMessage());
      return host;
    }
  }

  private BackendRuntime runtime(@Nullable Backend backend) {
    if (backend == null) {
      // Not a case of the switch, which would then be linked at run time, at each start.
      throw new InvalidArgumentException("the backend is null", "pass Backend.AUTO, HOST or CUDA");
    }
    return switch (backend) {
      case AUTO -> automatic();
      case HOST -> host;
      case CUDA -> cuda();
    };
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
  public byte[] createUniqueId(Backend backend) {
    return runtime(backend).createUniqueId();
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
    require(config, "config");
    if (devices == null || devices.isEmpty()) {
      throw new InvalidArgumentException(
          "there are no devices to create communicators on",
          "pass one device per rank, at least one");
    }
    for (Device device : devices) {
      require(device, "device");
      if (device.backend() != devices.getFirst().backend()) {
        throw new InvalidArgumentException(
            "the devices are of different backends: "
                + devices.getFirst().backend().label()
                + " and "
                + device.backend().label(),
            "a communicator lives on one backend");
      }
    }
    return runtime(devices.getFirst().backend()).initAll(devices, config);
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
    require(device, "device");
    require(id, "id");
    require(config, "config");
    return runtime(device.backend()).initRank(device, nranks, id, rank, config);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    require(device, "device");
    require(ids, "list of ids");
    require(config, "config");
    if (ids.isEmpty() || ids.size() > Math.max(nranks, 1)) {
      throw new InvalidArgumentException(
          "there are " + ids.size() + " unique ids for " + nranks + " ranks",
          "pass one id or more, and at most one per rank");
    }
    for (int i = 0; i < ids.size(); i++) {
      require(ids.get(i), "id");
      if (ids.indexOf(ids.get(i)) < i) {
        throw new InvalidArgumentException(
            "unique id " + i + " appears twice", "create a new id each time");
      }
    }
    return runtime(device.backend()).initRank(device, nranks, ids, rank, config);
  }

  @Override
  public NcclCommunicator joinGrowing(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    require(device, "device");
    require(id, "id");
    require(config, "config");
    if (device.backend() != Backend.CUDA) {
      throw new InvalidUsageException(
          "the " + device.backend().label() + " backend cannot grow communicators",
          "use a device of Backend.CUDA");
    }
    return cuda().joinGrowing(device, nranks, id, rank, config);
  }

  @Override
  public Duration simulate(Runnable operations) {
    return cuda().simulate(operations);
  }

  @Override
  public List<String> ncclParameterKeys() {
    return cuda().parameterKeys();
  }

  @Override
  public Optional<String> ncclParameter(String key) {
    return cuda().parameter(key);
  }

  @Override
  public BackendInfo info(Backend backend) {
    return switch (backend) {
      case HOST -> host.info();
      case CUDA -> CudaInfo.collect();
      case AUTO -> {
        BackendInfo gpus = CudaInfo.collect();
        yield gpus.isUsable() ? gpus : host.info();
      }
    };
  }

  @Override
  public MemoryPrediction predictMemory(MemoryQuery query) {
    return query.backend() == Backend.HOST
        ? HostBackend.predictMemory(query)
        : CudaMemory.predict(query, true);
  }

  @Override
  public Diagnosis diagnose(Backend backend) {
    BackendInfo gpus = backend == Backend.HOST ? null : CudaInfo.collect();
    long shmBytes = gpus != null && gpus.isUsable() ? cuda().sharedMemoryNeed() : 0;
    return Doctor.examine(
        host.info(), gpus, backend == Backend.CUDA, shmBytes, LeftIds.here().check());
  }

  @Override
  public List<SharedMemorySegment> removeUnusedSegments() {
    return Doctor.removeUnused();
  }

  @Override
  public List<Path> removeStaleIds() {
    return LeftIds.here().remove();
  }

  private static void require(@Nullable Object argument, String name) {
    if (argument == null) {
      throw new InvalidArgumentException("the " + name + " is null", "pass a " + name);
    }
  }

  @Override
  public String version() {
    String version = CoreProvider.class.getPackage().getImplementationVersion();
    return version == null ? "0.1.0-SNAPSHOT" : version;
  }
}
