package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** What is beyond the limit of a control group is refused; it would be the end of the process. */
@Tag("process")
@Timeout(value = 180, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class ControlGroupTest {
  private static final Path MOUNT = Path.of("/sys/fs/cgroup");
  private static final long LIMIT = 512L << 20;

  /** Two groups, the outer one with the limit; null and a reason where none can be made. */
  private static Path newGroup() throws IOException {
    boolean first = Files.isDirectory(MOUNT.resolve("memory"));
    Path outer =
        MOUNT
            .resolve(first ? "memory" : "")
            .resolve("nccl4j-test-" + ProcessHandle.current().pid());
    try {
      Files.createDirectories(outer);
      if (!first) {
        Files.writeString(outer.resolve("cgroup.subtree_control"), "+memory");
      }
      Files.writeString(
          outer.resolve(first ? "memory.limit_in_bytes" : "memory.max"), Long.toString(LIMIT));
      return Files.createDirectories(outer.resolve("inner"));
    } catch (IOException e) {
      Files.deleteIfExists(outer);
      assumeTrue(false, () -> "skipped: no control group can be made here: " + e);
      throw e;
    }
  }

  @Test
  void whatALimitAboveDoesNotAllowIsRefused() throws Exception {
    Path inner = newGroup();
    try {
      ChildJvm child =
          ChildJvm.startAfter("echo $$ > " + inner.resolve("cgroup.procs"), Main.class);
      String heap = child.expect("heap");
      assertTrue(heap.contains("control group") && heap.contains("" + LIMIT), heap);
      int blocks = Integer.parseInt(child.expect("taken"));
      assertTrue(blocks >= 4 && blocks <= 15, blocks + " blocks of 32 MiB");
      String pinned = child.expect("pinned");
      assertTrue(pinned.contains("control group"), pinned);
      child.expect("again");
      child.expect("alive");
      assertTrue(child.await() == 0);
    } finally {
      Files.delete(inner);
      Files.delete(inner.getParent());
    }
  }

  /** Takes memory until it is refused, in one piece and in small ones. */
  static final class Main {
    private Main() {}

    public static void main(String[] arguments) {
      Device device = Device.get(Backend.HOST, 0);
      try {
        device.allocate(1L << 30).close();
      } catch (SystemErrorException e) {
        System.out.println("heap " + e.getMessage());
      }
      List<DeviceBuffer> taken = new ArrayList<>();
      try {
        while (true) {
          taken.add(device.allocate(32L << 20));
        }
      } catch (SystemErrorException e) {
        System.out.println("taken " + taken.size());
      }
      try {
        device.allocatePinned(256L << 20).close();
      } catch (SystemErrorException e) {
        System.out.println("pinned " + e.getMessage());
      }
      taken.forEach(DeviceBuffer::close);
      device.allocate(64L << 20).close();
      System.out.println("again");
      System.out.println("alive");
    }
  }
}
