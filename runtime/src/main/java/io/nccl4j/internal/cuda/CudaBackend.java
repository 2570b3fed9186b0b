package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.nccl.NcclParameterTable;
import io.nccl4j.internal.cuda.nccl.NcclResults;
import io.nccl4j.internal.cuda.nccl.SharedMemoryNeed;
import io.nccl4j.internal.cuda.nccl.Team;
import io.nccl4j.internal.cuda.nccl.Teams;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.spi.NcclRuntime;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/** The cuda backend: the GPUs of this machine, and how ranks join through NCCL. */
final class CudaBackend implements NcclRuntime {
  private static final AtomicLong CREATED = new AtomicLong();

  private final List<CudaGpu> devices;
  private final Teams<UniqueId> teams = new Teams<>();

  /**
   * A backend over the libraries of this machine; the runtime makes one.
   *
   * @throws io.nccl4j.BackendUnavailableException if they, a GPU or its driver are missing or too
   *     old; the message says which and what to do
   */
  CudaBackend() {
    CudaLibraries.require();
    devices = IntStream.range(0, CudaLibraries.deviceCount()).mapToObj(CudaGpu::new).toList();
  }

  @Override
  public Backend backend() {
    return Backend.CUDA;
  }

  @Override
  public void checkRanks(int nranks) {
    if (nranks > devices.size()) {
      throw new InvalidArgumentException(
          "nranks is " + nranks + ", and this process sees " + devices.size() + " cuda devices",
          "use one rank per device; CUDA_VISIBLE_DEVICES chooses them");
    }
  }

  @Override
  public Device device(int ordinal) {
    if (ordinal < 0 || ordinal >= devices.size()) {
      throw new InvalidArgumentException(
          "there is no cuda device " + ordinal,
          "this process sees "
              + devices.size()
              + " (CUDA_VISIBLE_DEVICES chooses them): 0 to "
              + (devices.size() - 1));
    }
    return devices.get(ordinal);
  }

  @Override
  public List<Device> devices() {
    return List.copyOf(devices);
  }

  /** NCCL's ids reach every machine. */
  @Override
  public byte[] createUniqueId(UniqueId.Reach reach) {
    return createUniqueId();
  }

  private byte[] createUniqueId() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment id = ncclUniqueId.allocate(arena);
      NcclResults.check(Nccl.ncclGetUniqueId(id), "ncclGetUniqueId");
      return id.toArray(ValueLayout.JAVA_BYTE);
    }
  }

  @Override
  public void placeThread(Device device) {
    Affinity.placeThreadNear(((CudaGpu) device).pciAddress());
  }

  @Override
  public List<Communicator> initAll(List<Device> requested, CommunicatorConfig config) {
    List<CudaInit.Rank> ranks = new ArrayList<>();
    for (Device device : requested) {
      ranks.add(rank(ranks.size(), device));
    }
    String name = config.name() == null ? "cuda-" + CREATED.incrementAndGet() : config.name();
    return List.copyOf(
        new CudaInit(ranks, ranks.size(), new Team(name, true), config, name)
            .join(this::createUniqueId));
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return initRank(device, nranks, List.of(id), rank, config);
  }

  @Override
  public Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config) {
    requireRank(nranks, rank);
    UniqueId first = ids.getFirst();
    ByteBuffer bytes = ByteBuffer.allocate(ids.size() * UniqueId.BYTES);
    ids.forEach(id -> bytes.put(id.toBytes()));
    return init(device, nranks, first, rank, config).join(bytes::array).getFirst();
  }

  @Override
  public NcclCommunicator joinGrowing(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    requireRank(nranks, rank);
    return init(device, nranks, id, rank, config).joinGrowing(id);
  }

  private CudaInit init(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    return new CudaInit(List.of(rank(rank, device)), nranks, teamOf(id), config, name(id, config));
  }

  private static CudaInit.Rank rank(int rank, Device device) {
    return new CudaInit.Rank(rank, ((CudaGpu) device).deviceMemory());
  }

  @Override
  public Duration simulate(Runnable operations) {
    return NcclSimulation.run(operations);
  }

  @Override
  public List<String> parameterKeys() {
    return NcclParameterTable.keys();
  }

  @Override
  public Optional<String> parameter(String key) {
    return NcclParameterTable.get(key);
  }

  @Override
  public long sharedMemoryNeed() {
    return SharedMemoryNeed.ofProcesses(
        devices.stream().map(CudaGpu::gpu).toList(), CommunicatorConfig.defaults());
  }

  private static void requireRank(int nranks, int rank) {
    if (nranks < 1) {
      throw new InvalidArgumentException(
          "nranks is " + nranks, "a communicator has at least one rank");
    }
    if (rank < 0 || rank >= nranks) {
      throw new InvalidArgumentException("rank is " + rank, "the ranks are 0 to " + (nranks - 1));
    }
  }

  private static String name(UniqueId id, CommunicatorConfig config) {
    String given = config.name();
    return given == null ? nameOf(id) : given;
  }

  /** The same on all ranks, and without the id, which is a secret. */
  private static String nameOf(UniqueId id) {
    return "cuda-" + HexFormat.of().toHexDigits(id.hashCode());
  }

  private Team teamOf(UniqueId id) {
    return teams.get(id, () -> new Team(nameOf(id), false));
  }
}
