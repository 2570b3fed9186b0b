package io.nccl4j.internal.diagnose;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.DeviceInfo;
import io.nccl4j.BackendInfo.Fact;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.Feature;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.diagnose.Diagnosis.Status;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.diagnose.SharedMemorySegment.Use;
import io.nccl4j.internal.machine.LocalAddress;
import io.nccl4j.internal.machine.MachineFiles;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What the doctor says of machines that are made of files and variables. */
class ChecksTest {
  private static final String LIMITS =
      """
      Limit                     Soft Limit           Hard Limit           Units
      Max stack size            %s                   unlimited            bytes
      Max processes             %s                   96365                processes
      Max open files            %s                   20000                files
      Max locked memory         %s                   8388608              bytes
      """;

  @TempDir Path root;

  private void write(String file, String text) throws IOException {
    Path path = root.resolve(file.substring(1));
    Files.createDirectories(path.getParent());
    Files.writeString(path, text);
  }

  private static Check find(List<Check> checks, String name) {
    return checks.stream().filter(check -> check.name().equals(name)).findFirst().orElseThrow();
  }

  // ---- variables

  @ParameterizedTest(name = "{0}={1} with {2}")
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_DEBUG|VERSION|23007|OK|Log: VERSION, WARN, INFO",
        "NCCL_DEBUG|info|23007|WARN|write much",
        "NCCL_BUFFSIZE|8388608|23007|OK|Bytes of a buffer of the protocol Simple",
        "NCCL_CUMEM_ENABLE|0|23007|WARN|deadlock",
        "NCCL_P2P_DISABLE|0|23007|OK|GPUs do not use each other's memory",
        "NCCL_P2P_DISABLE|1|23007|WARN|slower",
        "NCCL_SHM_USE_CUDA_MEMCPY|1|23007|WARN|no longer read since NCCL 2.30.7 unset it",
        "NCCL_SHM_USE_CUDA_MEMCPY|1|23004|OK|copy engines",
        "NCCL_WORK_FIFO_DEPTH|64|22304|WARN|since NCCL 2.22.3 use NCCL_WORK_FIFO_BYTES",
        "NCCL_RAS_ENABLE|0|22304|WARN|not read by NCCL 2.23.4 it exists from NCCL 2.24.3 on",
        "NCCL_RAS_ENABLE|0|0|OK|Status service",
        "NCCL_NVLS_ENABEL|0|23007|WARN|no release of NCCL reads it did you mean NCCL_NVLS_ENABLE?",
        "NCCL_OFI_PROTOCOL|RDMA|23007|OK|read by a plugin",
        "CUDA_LAUNCH_BLOCKING|1|0|FAIL|waits for its kernel",
        "CUDA_VISIBLE_DEVICES|-1|0|WARN|hides all GPUs",
        "NCCL4J_INIT_TIMEOT|1s|0|WARN|nccl4j does not read it did you mean NCCL4J_INIT_TIMEOUT?"
      })
  void variablesAreJudged(String name, String value, int release, Status status, String words) {
    MachineFiles machine = new MachineFiles(root, Map.of(name, value));
    Check check = find(new VariableChecks(machine, release).run(), name);
    assertEquals(status, check.status(), check::toString);
    assertTrue((check.found() + " " + check.remedy()).contains(words), check::toString);
    assertTrue(status == Status.OK == check.remedy().isEmpty(), check::toString);
  }

  @Test
  void fileThatIsNotThereIsSaid() {
    MachineFiles machine = new MachineFiles(root, Map.of("NCCL_CONF_FILE", "/no/file"));
    List<Check> checks = new VariableChecks(machine, 0).run();
    assertEquals("there is no /no/file, and ~/.nccl.conf is not read", checks.getFirst().found());
  }

  // ---- the system

  private List<Check> system(boolean gpus, long need, SharedMemorySegment... segments) {
    return new SystemChecks(new MachineFiles(root, Map.of()), gpus, need).run(List.of(segments));
  }

  @Test
  void limitsAreJudged() throws IOException {
    write("/proc/self/limits", LIMITS.formatted("unlimited", "1024", "1024", "65536"));
    write("/sys/class/infiniband/mlx5_0", "");
    List<Check> checks = system(false, 0);
    for (String name : List.of("open files", "processes", "locked memory", "stack")) {
      assertEquals(Status.WARN, find(checks, name).status(), name);
    }
    assertTrue(find(checks, "locked memory").found().startsWith("64.0 KiB"));
    write("/proc/self/limits", LIMITS.formatted("8388608", "unlimited", "20000", "unlimited"));
    assertTrue(
        system(false, 0).stream().allMatch(check -> check.status() == Status.OK),
        () -> system(false, 0).toString());
  }

  @Test
  void sharedMemoryCountsWhereThereAreGpus() throws IOException {
    assertEquals(Status.OK, find(system(false, 0), "/dev/shm").status());
    Check missing = find(system(true, 0), "/dev/shm");
    assertEquals(Status.FAIL, missing.status(), missing::toString);
    Files.createDirectories(root.resolve("dev/shm"));
    assertEquals(Status.OK, find(system(true, 0), "/dev/shm").status());
    assertEquals(Status.OK, find(system(true, 1000), "/dev/shm").status());
    Check large = find(system(true, 1L << 60), "/dev/shm");
    assertEquals(Status.FAIL, large.status());
    assertTrue(large.found().contains("needs 1048576.0 TiB of shared memory"), large::toString);
    write("/proc/self/mounts", "shm /dev/shm tmpfs ro 0 0\n");
    assertEquals(Status.WARN, find(system(true, 0), "/dev/shm").status());
    assertEquals(Status.FAIL, find(system(true, 1000), "/dev/shm").status());
  }

  @Test
  void leftoversAreCounted() {
    SharedMemorySegment unused =
        new SharedMemorySegment("/x", 2048, "me", Duration.ZERO, Use.UNUSED, "");
    SharedMemorySegment used =
        new SharedMemorySegment("/y", 1, "me", Duration.ZERO, Use.USED, "used by x (1)");
    Check check = find(system(false, 0, unused, used), "leftovers");
    assertEquals(Status.WARN, check.status());
    assertEquals("2 files of NCCL, 1 unused (2.0 KiB), 0 not known", check.found());
    assertEquals(Status.OK, find(system(false, 0, used), "leftovers").status());
  }

  @Test
  void littleMemoryIsSaid() throws IOException {
    write("/proc/self/cgroup", "0::/\n");
    write("/sys/fs/cgroup/memory.max", "1000000");
    write("/sys/fs/cgroup/memory.current", "0");
    assertEquals(Status.WARN, find(system(false, 0), "memory limit").status());
  }

  // ---- several machines

  private List<Check> network(String problem, Map<String, String> environment) {
    return network(problem, environment, "no libucp");
  }

  private List<Check> network(String problem, Map<String, String> environment, String noUcx) {
    FeatureInfo feature =
        new FeatureInfo(Feature.NETWORK_RANKS, problem.isEmpty(), "Netty", problem);
    BackendInfo host =
        new BackendInfo(Backend.HOST, "", "", List.of(), List.of(), List.of(feature), List.of());
    return new NetworkChecks(
            new MachineFiles(root, environment), host, () -> "no libpmix", () -> noUcx)
        .run();
  }

  @ParameterizedTest(name = "{0}, NCCL4J_NETWORK={1}")
  @CsvSource({
    "'', '', OK, ranks may be on several machines",
    "'', netty, OK, ranks may be on several machines",
    "it is missing, netty, WARN, it is missing; all ranks must be on one machine add Netty",
    "it is missing, off, OK, off by NCCL4J_NETWORK: all ranks must be on one machine"
  })
  void theNetworkIsJudged(String problem, String wanted, Status status, String words) {
    Check check = find(network(problem, Map.of("NCCL4J_NETWORK", wanted)), "network");
    assertEquals(status, check.status(), check::toString);
    assertEquals(words, (check.found() + " " + check.remedy()).strip());
  }

  @ParameterizedTest(name = "{0}")
  @CsvSource({
    "127.0.0.1, WARN, 127.0.0.1 (lo): only this machine reaches it",
    "lo, WARN, (lo): only this machine reaches it",
    "nowhere0, FAIL, NCCL4J_NETWORK_INTERFACE is 'nowhere0' and no interface of",
    "203.0.113.255/32, FAIL, NCCL4J_NETWORK_INTERFACE is '203.0.113.255/32' and no interface of"
  })
  void theInterfaceIsJudged(String wanted, Status status, String words) {
    Check check = find(network("", Map.of("NCCL4J_NETWORK_INTERFACE", wanted)), "network address");
    assertEquals(status, check.status(), check::toString);
    assertTrue(check.found().replace(",", "").contains(words), check::toString);
    assertTrue(!check.remedy().isEmpty(), check::toString);
  }

  @Test
  void withoutAnInterfaceTheDefaultRoutesCounts() {
    Check check = find(network("", Map.of()), "network address");
    InetAddress address = LocalAddress.ofDefaultRoute();
    assertEquals(Status.OK, check.status());
    assertTrue(
        check
            .found()
            .startsWith(
                address.isLoopbackAddress()
                    ? "none that other machines reach"
                    : address.getHostAddress() + " ("),
        check::toString);
  }

  @Test
  void congestionControlIsJudged() throws IOException {
    String file = "/proc/sys/net/ipv4/tcp_congestion_control";
    assertEquals("not known", find(network("", Map.of()), "congestion control").found());
    write(file, "cubic\n");
    assertEquals(Status.OK, find(network("", Map.of()), "congestion control").status());
    write(file, "bbr\n");
    Check slow = find(network("", Map.of()), "congestion control");
    assertEquals(Status.WARN, slow.status());
    assertEquals("as root: sysctl -w net.ipv4.tcp_congestion_control=cubic", slow.remedy());
    write("/.dockerenv", "");
    assertEquals(
        "start the container with docker run --sysctl net.ipv4.tcp_congestion_control=cubic",
        find(network("", Map.of()), "congestion control").remedy());
  }

  @Test
  void libpmixCountsWhereALauncherHasIt() {
    assertTrue(network("", Map.of()).stream().noneMatch(one -> one.name().equals("libpmix")));
    Map<String, String> launched = Map.of("PMIX_NAMESPACE", "x");
    Check missing = find(network("", launched), "libpmix");
    assertEquals(Status.WARN, missing.status());
    assertTrue(missing.found().startsWith("no libpmix; "), missing::toString);
    assertTrue(missing.remedy().contains("NCCL4J_PMIX_LIBRARY"), missing::toString);
    BackendInfo nothing =
        new BackendInfo(Backend.HOST, "", "", List.of(), List.of(), List.of(), List.of());
    List<Check> found =
        new NetworkChecks(new MachineFiles(root, launched), nothing, () -> "", () -> "").run();
    assertEquals(Status.OK, find(found, "libpmix").status());
  }

  @Test
  void libucpCountsWhereItIsToBeUsed() {
    assertTrue(network("", Map.of()).stream().noneMatch(one -> one.name().equals("libucp")));
    Check missing = find(network("", Map.of("NCCL4J_NETWORK", "ucx")), "libucp");
    assertEquals(Status.FAIL, missing.status());
    assertEquals("no libucp", missing.found());
    assertTrue(missing.remedy().contains("NCCL4J_UCX_LIBRARY"), missing::toString);
  }

  @Test
  void oldLibucpIsFoundFaulty() {
    String reason = Ucp.unavailableReason();
    assumeTrue(reason.isEmpty(), reason);
    Check found = find(network("", Map.of("NCCL4J_NETWORK", "ucx"), ""), "libucp");
    boolean isOld = Ucp.version().startsWith("1.13.");
    assertEquals(isOld ? Status.WARN : Status.OK, found.status());
  }

  // ---- GPUs

  private List<Check> gpus(BackendInfo info, boolean required) {
    return new GpuChecks(new MachineFiles(root, Map.of()), info, required).run();
  }

  private static BackendInfo info(String problem, String p2p) {
    boolean usable = problem.isEmpty();
    DeviceInfo device = new DeviceInfo(0, "x", "9.0", 1, 1, "");
    return new BackendInfo(
        Backend.CUDA,
        problem,
        usable ? "" : "install it",
        List.of(),
        usable ? List.of(device, device) : List.of(),
        List.of(
            new FeatureInfo(Feature.VIRTUAL_MEMORY, false, "a driver", "the device says no"),
            new FeatureInfo(Feature.MULTICAST, false, "NVSwitch", "no device has it")),
        List.of(new Fact("P2P", p2p)));
  }

  @Test
  void absentGpusFailOnlyWhereTheyAreWanted() throws IOException {
    BackendInfo none = info("no driver", "");
    assertEquals(Status.OK, find(gpus(none, false), "cuda").status());
    assertEquals(Status.FAIL, find(gpus(none, true), "cuda").status());
    assertEquals("install it", find(gpus(none, true), "cuda").remedy());
    write("/dev/nvidiactl", "");
    assertEquals(Status.FAIL, find(gpus(none, false), "cuda").status());
  }

  @Test
  void devicesAreJudged() throws IOException {
    List<Check> checks = gpus(info("", "every pair of 2 devices"), false);
    assertEquals(Status.OK, find(checks, "P2P").status());
    assertEquals(Status.FAIL, find(checks, "cuMem virtual memory").status());
    assertEquals("no multicast: no device has it", find(checks, "NVLS").found());
    assertEquals(Status.OK, find(checks, "Fabric Manager").status());
    assertEquals(Status.WARN, find(gpus(info("", "not 0-1"), false), "P2P").status());
    write("/proc/driver/nvidia-nvswitch/devices/0000:01:00.0", "");
    assertEquals(Status.FAIL, find(gpus(info("", ""), false), "Fabric Manager").status());
    write("/proc/812/comm", "nv-fabricmanage\n");
    assertEquals("runs", find(gpus(info("", ""), false), "Fabric Manager").found());
  }

  @Test
  void numaCallsCountInContainers() throws IOException {
    write("/.dockerenv", "");
    write("/proc/self/status", "Name:\tjava\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n");
    assertEquals(Status.WARN, find(gpus(info("", ""), false), "NUMA calls").status());
    write("/proc/self/status", "Name:\tjava\nCapEff:\t00000000a88425fb\nSeccomp:\t2\n");
    assertEquals(Status.OK, find(gpus(info("", ""), false), "NUMA calls").status());
  }
}
