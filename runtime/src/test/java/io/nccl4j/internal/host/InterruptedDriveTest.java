package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.progress.Progress;
import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** What a drive on an interrupted thread does, and how long a step may keep it from looking. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class InterruptedDriveTest {
  /** A sleep on an interrupted thread returns at once: without care such a wait would spin. */
  @Test
  void whatGoesOnDoesNotSpin() {
    try (HostRanks ranks = new HostRanks(2, 16)) {
      HostStream stream = HostStream.of(ranks.streams.get(0));
      ranks.get(0).barrier(ranks.streams.get(0));
      Thread.currentThread().interrupt();
      long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
      boolean done = Progress.driveUninterruptibly(stream, stream.position(), 500_000_000);
      cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu;
      assertTrue(Thread.interrupted(), "the flag was cleared");
      assertFalse(done);
      long millis = cpu / 1_000_000;
      assertTrue(millis < 250, () -> "500 ms took " + millis + " ms of a processor");
      ranks.get(1).barrier(ranks.streams.get(1));
      ranks.streams.forEach(Stream::synchronize);
    }
  }

  /** Work that moves all the time is no reason not to look at the flag. */
  @Test
  void aLongCopyIsInterrupted() throws Exception {
    Device device = Device.get(Backend.HOST, 0);
    try (Stream stream = device.newStream();
        DeviceBuffer from = device.allocate(16 << 20);
        DeviceBuffer to = device.allocate(16 << 20)) {
      Throwable[] thrown = new Throwable[1];
      Thread thread =
          Thread.ofPlatform()
              .start(
                  () -> {
                    for (int i = 0; i < 30; i++) {
                      stream.copy(to, from);
                    }
                    Thread.currentThread().interrupt();
                    try {
                      stream.synchronize();
                    } catch (RuntimeException e) {
                      thrown[0] = e;
                    }
                  });
      assertTrue(thread.join(Duration.ofSeconds(30)));
      assertInstanceOf(InterruptedWaitException.class, thrown[0], () -> "not " + thrown[0]);
      stream.synchronize();
    }
  }

  @Test
  void aStepMovesAFewMebibytes() {
    try (Arena arena = Arena.ofShared()) {
      long bytes = 2 * StreamTask.STEP_BYTES + 100;
      StreamTask task = new StreamTask();
      task.kind = StreamTask.FILL;
      task.target = arena.allocate(bytes + 1);
      task.bytes = bytes;
      task.value = 3;
      for (int repeat = 0; repeat < 2; repeat++) {
        task.target.fill((byte) 0);
        int steps = 1;
        while (!task.movePart()) {
          long done = Math.min(bytes, steps++ * StreamTask.STEP_BYTES);
          assertEquals(3, task.target.get(java.lang.foreign.ValueLayout.JAVA_BYTE, done - 1));
          assertEquals(0, task.target.get(java.lang.foreign.ValueLayout.JAVA_BYTE, done));
        }
        assertEquals(3, steps);
        assertEquals(3, task.target.get(java.lang.foreign.ValueLayout.JAVA_BYTE, bytes - 1));
        assertEquals(0, task.target.get(java.lang.foreign.ValueLayout.JAVA_BYTE, bytes));
      }
    }
  }
}
