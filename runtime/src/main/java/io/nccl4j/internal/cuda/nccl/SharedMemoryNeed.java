package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Launch;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.memory.CudaMemory;
import io.nccl4j.internal.diagnose.NcclSettings;
import io.nccl4j.internal.diagnose.Preflight;
import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * What NCCL takes at least of {@code /dev/shm} for the ring of a communicator on this machine, so
 * that what is refused could not have worked: connections from a rank to the next, times what the
 * prediction says of one.
 *
 * <p>Ranks that reach each other's memory (P2P) take nothing, and only those count that are known
 * not to. NCCL 2.24 with driver 12.6 takes cuMem host memory between processes, unless told
 * otherwise.
 */
public final class SharedMemoryNeed {
  private static final int FIRST_HOST_MEMORY = 22304;
  private static final int DEFAULT_HOST_MEMORY = 22403;
  private static final int DRIVER_HOST_MEMORY = 12020;
  private static final int DRIVER_DEFAULT_HOST_MEMORY = 12060;

  private static final Logger LOG = LogManager.getLogger(SharedMemoryNeed.class);
  private static final String LOCAL_RANKS = "NCCL4J_LOCAL_NRANKS";

  private final MachineFiles machine = MachineFiles.here();
  private final NcclSettings settings = new NcclSettings(machine);
  private final CommunicatorConfig config;

  SharedMemoryNeed(CommunicatorConfig config) {
    this.config = config;
  }

  /**
   * Refuses to join where NCCL would fail on shared memory.
   *
   * @param devices of this process's ranks, one each
   * @param name the communicator's
   * @throws io.nccl4j.SharedMemoryException with need, free bytes and remedy
   */
  public static void require(
      List<Gpu> devices, int nranks, CommunicatorConfig config, String name) {
    SharedMemoryNeed need = new SharedMemoryNeed(config);
    int connections = need.connections(devices, nranks);
    String what =
        "communicator "
            + name
            + " of "
            + nranks
            + (connections == 0
                ? " ranks"
                : " ranks, whose GPUs here cannot reach each other's memory,");
    Preflight.requireSharedMemory(connections * need.connectionBytes(), what, need.instead());
  }

  /** Bytes for processes with a rank each, one on each device. */
  public static long ofProcesses(List<Gpu> devices, CommunicatorConfig config) {
    SharedMemoryNeed need = new SharedMemoryNeed(config);
    int islands = need.usesHostMemory() ? 0 : need.islands(devices);
    return islands > 1 ? islands * need.connectionBytes() : 0;
  }

  /** Bytes of one connection of the ring, over all channels: what each of two ranks takes. */
  private long connectionBytes() {
    Map<String, String> variables = new HashMap<>();
    settings.all().forEach(setting -> variables.put(setting.name(), setting.value()));
    MemoryQuery two =
        MemoryQuery.of(Backend.CUDA)
            .with(Lever.NRANKS, 2)
            .with(Lever.NCCL, CudaLibraries.ncclVersion())
            .with(config)
            .withEnvironment(variables)
            .with(Lever.P2P, 0)
            .with(Lever.SHM, 1)
            .with(Lever.CUMEM_HOST, 0);
    return CudaMemory.predict(two, true).bytes(MemoryPlace.SHM);
  }

  private long set(String variable, long normal) {
    return settings.number(variable).orElse(normal);
  }

  /** Connections of the ring that are known to go through files in /dev/shm. */
  private int connections(List<Gpu> devices, int nranks) {
    boolean elsewhere = set("NCCL_SHM_DISABLE", 0) == 1 || !settings.value("NCCL_HOSTID").isEmpty();
    if (nranks == 1 || elsewhere) {
      return 0;
    }
    if (devices.size() == nranks) {
      int islands = islands(devices);
      return islands > 1 ? islands : 0;
    }
    int here = Math.min(nranks, ranksHere(devices.size()));
    boolean shared = NcclJoin.mayShareGpus() && CudaLibraries.deviceCount() < here;
    if (here < 2 || shared || usesHostMemory()) {
      return 0;
    }
    // A ring that goes on to other machines leaves here instead of coming back.
    int opening = here == nranks ? 0 : 1;
    if (isWithoutPeers()) {
      return here - opening;
    }
    // Which GPUs the other processes have is not known: in and out of this one's.
    return devices.stream().allMatch(device -> device.peers().isEmpty()) ? 2 - opening : 0;
  }

  /** Ranks on this machine, as a launcher tells its processes; 0 if none does. */
  private int ranksHere(int ranksPerProcess) {
    String value = machine.environment().getOrDefault(LOCAL_RANKS, "");
    if (value.matches("[1-9]\\d{0,5}")) {
      return Integer.parseInt(value);
    }
    try {
      return Launch.detect(machine.environment())
          .map(launch -> launch.localProcesses().orElse(0) * ranksPerProcess)
          .orElse(0);
    } catch (InvalidArgumentException e) {
      // Who joins without asking launchers is not to be stopped by what their variables say.
      LOG.debug("how many ranks are on this machine is not known", e);
      return 0;
    }
  }

  /** Sets of devices that reach each other; a ring has to leave each one and come back. */
  private int islands(List<Gpu> devices) {
    List<Gpu> left = new ArrayList<>(new LinkedHashSet<>(devices));
    int islands = 0;
    while (!left.isEmpty()) {
      islands++;
      Deque<Gpu> island = new ArrayDeque<>(List.of(left.removeLast()));
      while (!island.isEmpty() && !isWithoutPeers()) {
        List<Integer> peers = island.removeLast().peers();
        left.stream().filter(other -> peers.contains(other.ordinal())).forEach(island::add);
        left.removeAll(island);
      }
    }
    return islands;
  }

  private boolean isWithoutPeers() {
    String level = settings.value("NCCL_P2P_LEVEL");
    return set("NCCL_P2P_DISABLE", 0) == 1 || level.equals("LOC") || level.equals("0");
  }

  /** Whether processes share memory without /dev/shm. */
  private boolean usesHostMemory() {
    int nccl = CudaLibraries.ncclVersion();
    int driver = CudaLibraries.driverVersion();
    if (nccl < FIRST_HOST_MEMORY
        || driver < DRIVER_HOST_MEMORY
        || set("NCCL_CUMEM_ENABLE", 1) == 0) {
      return false;
    }
    boolean normally = nccl >= DEFAULT_HOST_MEMORY && driver >= DRIVER_DEFAULT_HOST_MEMORY;
    long told = set("NCCL_CUMEM_HOST_ENABLE", -1);
    return told == -1 ? normally : told != 0;
  }

  /** What else would help with the libraries at hand. */
  private String instead() {
    List<String> ways = new ArrayList<>();
    if (!usesHostMemory()
        && CudaLibraries.ncclVersion() >= FIRST_HOST_MEMORY
        && CudaLibraries.driverVersion() >= DRIVER_HOST_MEMORY) {
      ways.add(
          "set NCCL_CUMEM_HOST_ENABLE=1 for all ranks: ranks in processes of their own then need"
              + " none (in a container with --cap-add SYS_NICE)");
    }
    if (isWithoutPeers()) {
      ways.add("let GPUs reach each other's memory (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL)");
    }
    return String.join("; or ", ways);
  }
}
