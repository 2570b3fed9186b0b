package io.nccl4j.internal.diagnose;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.SharedMemoryException;
import io.nccl4j.internal.diagnose.SharedMemory.State;
import io.nccl4j.internal.machine.ControlGroups;
import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.internal.machine.MemoryLimit;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is said of shared memory, in whatever a process runs. */
class SharedMemoryTest {
  private static final long MIB = 1 << 20;
  private static final SharedMemory SMALL = new SharedMemory(State.USABLE, 64 * MIB, 60 * MIB);

  @TempDir Path root;

  private MachineFiles machine(String... variables) {
    Map<String, String> environment = new java.util.HashMap<>();
    for (int i = 0; i < variables.length; i += 2) {
      environment.put(variables[i], variables[i + 1]);
    }
    return new MachineFiles(root, environment);
  }

  private void write(String file, String text) throws IOException {
    Path path = root.resolve(file.substring(1));
    Files.createDirectories(path.getParent());
    Files.writeString(path, text);
  }

  private SharedMemoryException obstacle(SharedMemory memory, long need) {
    return memory.obstacle(machine(), need, "it", "").orElseThrow();
  }

  @ParameterizedTest(name = "{0}")
  @CsvSource(
      delimiter = '|',
      value = {
        "/.dockerenv|docker run --shm-size=1g",
        "/run/.containerenv|podman run --shm-size=1g",
        "/var/run/secrets/kubernetes.io/x|emptyDir: {medium: Memory, sizeLimit: 1Gi} at /dev/shm",
        "/nothing|as root: mount -o remount,size=1g /dev/shm"
      })
  void remedyFitsWhereItRuns(String sign, String remedy) throws IOException {
    write(sign, "");
    SharedMemoryException e = obstacle(SMALL, 100 * MIB);
    assertTrue(e.remedy().endsWith(remedy), e::remedy);
    assertEquals(
        "it needs 100.0 MiB of shared memory in /dev/shm, where 60.0 MiB of 64.0 MiB are free",
        e.problem());
    assertEquals(100 * MIB, e.needBytes());
    assertEquals(60 * MIB, e.freeBytes());
  }

  @Test
  void controlGroupsNameTheContainer() throws IOException {
    write("/proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-2.scope\n");
    assertEquals(Container.KUBERNETES, Container.of(machine()));
    write("/proc/self/cgroup", "4:memory:/docker/0123\n0::/\n");
    assertEquals(Container.DOCKER, Container.of(machine()));
    write("/proc/self/cgroup", "0::/machine.slice/libpod-12.scope\n");
    assertEquals(Container.PODMAN, Container.of(machine()));
    write("/proc/self/cgroup", "0::/user.slice\n");
    assertEquals(Container.NONE, Container.of(machine()));
    assertEquals(Container.OTHER, Container.of(machine("container", "lxc")));
    assertEquals(Container.APPTAINER, Container.of(machine("APPTAINER_CONTAINER", "/x.sif")));
    assertEquals(Container.KUBERNETES, Container.of(machine("KUBERNETES_SERVICE_HOST", "::1")));
  }

  @Test
  void enoughIsEnough() {
    assertTrue(SMALL.obstacle(machine(), 60 * MIB, "it", "").isEmpty());
    assertTrue(SMALL.obstacle(machine(), 0, "it", "").isEmpty());
  }

  @Test
  void missingFolderIsRefusedEvenWhereNothingIsNeeded() {
    SharedMemory missing = SharedMemory.of(machine());
    assertEquals(State.MISSING, missing.state());
    SharedMemoryException e = obstacle(missing, 0);
    assertTrue(e.getMessage().contains("does not exist; as root: mkdir -p /dev/shm"), e::toString);
  }

  @Test
  void otherObstaclesHaveTheirRemedies() {
    SharedMemoryException e = obstacle(new SharedMemory(State.READ_ONLY, MIB, MIB), 5);
    assertTrue(e.getMessage().contains("remount,rw"), e::toString);
    assertEquals(0, e.freeBytes());
    e = obstacle(new SharedMemory(State.FORBIDDEN, MIB, MIB), 5);
    assertTrue(e.getMessage().contains("chmod 1777 /dev/shm"), e::toString);
    e = SMALL.obstacle(machine(), 3L << 30, "it", "go without").orElseThrow();
    assertTrue(e.remedy().endsWith("size=6g /dev/shm; or go without"), e::remedy);
  }

  @Test
  void freeSpaceOfThisMachineIsSeen() throws IOException {
    Files.createDirectories(root.resolve("dev/shm"));
    SharedMemory memory = SharedMemory.of(machine());
    assertEquals(State.USABLE, memory.state());
    assertTrue(memory.freeBytes() > 0 && memory.freeBytes() <= memory.totalBytes());
  }

  @Test
  void lastMountOnTheFolderCounts() throws IOException {
    Files.createDirectories(root.resolve("dev/shm"));
    write("/proc/self/mounts", "x / ext4 ro 0 0\nshm /dev/shm tmpfs ro,size=1k 0 0\n");
    assertEquals(State.READ_ONLY, SharedMemory.of(machine()).state());
    write("/proc/self/mounts", "shm /dev/shm tmpfs ro 0 0\nshm /dev/shm tmpfs rw,nodev 0 0\n");
    assertEquals(State.USABLE, SharedMemory.of(machine()).state());
    write("/proc/self/mounts", "x / overlay ro,y 0 0\nx /dev/shm2 tmpfs rw 0 0\n");
    assertEquals(State.READ_ONLY, SharedMemory.of(machine()).state());
  }

  // ---- memory limits

  @Test
  void limitOfVersion2IsTheTightestOnTheWayUp() throws IOException {
    write("/proc/self/cgroup", "0::/a/b\n");
    write("/sys/fs/cgroup/a/b/memory.max", "max\n");
    write("/sys/fs/cgroup/a/memory.max", Long.toString(100 * MIB));
    write("/sys/fs/cgroup/a/memory.current", Long.toString(90 * MIB));
    write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file " + 20 * MIB + "\n");
    MemoryLimit limit = ControlGroups.of(machine()).tightest().orElseThrow();
    assertEquals("/sys/fs/cgroup/a", limit.group());
    assertEquals(30 * MIB, limit.roomBytes());
    SharedMemoryException e = obstacle(SMALL, 40 * MIB);
    assertTrue(e.problem().contains("the memory limit of 100.0 MiB leaves 30.0 MiB"), e::problem);
    assertTrue(e.remedy().contains("/sys/fs/cgroup/a by 1 GiB"), e::remedy);
    assertEquals(30 * MIB, e.freeBytes());
    write("/.dockerenv", "");
    assertTrue(obstacle(SMALL, 40 * MIB).remedy().contains("docker run --memory"));
    assertTrue(SMALL.obstacle(machine(), 30 * MIB, "it", "").isEmpty());
  }

  /** In a container the mount is the group itself, whatever the file says. */
  @Test
  void limitOfVersion1() throws IOException {
    write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/12\n0::/\n");
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", Long.toString(64 * MIB));
    write("/sys/fs/cgroup/memory/memory.usage_in_bytes", Long.toString(60 * MIB));
    write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file " + MIB + "\n");
    assertEquals(5 * MIB, ControlGroups.of(machine()).tightest().orElseThrow().roomBytes());
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    assertTrue(ControlGroups.of(machine()).tightest().isEmpty());
  }
}
