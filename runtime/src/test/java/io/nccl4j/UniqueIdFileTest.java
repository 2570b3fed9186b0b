package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Files that are no id's, and times that no clock can count. */
class UniqueIdFileTest {
  private static final Duration EVER = Duration.ofSeconds(Long.MAX_VALUE);

  @TempDir Path folder;

  private SystemErrorException refused(Path file) {
    return assertTimeoutPreemptively(
        Duration.ofSeconds(10),
        () -> assertThrows(SystemErrorException.class, () -> UniqueId.readFrom(file, EVER)));
  }

  @Test
  void aPipeIsRefused() throws Exception {
    Path pipe = folder.resolve("pipe");
    assertEquals(
        0, new ProcessBuilder("mkfifo", "-m", "600", pipe.toString()).start().waitFor(), "mkfifo");
    assertTrue(refused(pipe).getMessage().contains("is not a regular file"));
    Path link = Files.createSymbolicLink(folder.resolve("link"), pipe);
    assertTrue(refused(link).getMessage().contains("is not a regular file"));
    assertTrue(refused(folder).getMessage().contains("is not a regular file"));
  }

  @Test
  void aLargeFileIsNotReadWhole() throws IOException {
    Path large =
        Files.createFile(
            folder.resolve("large"),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    try (var channel = Files.newByteChannel(large, java.nio.file.StandardOpenOption.WRITE)) {
      channel.position(1L << 40).write(java.nio.ByteBuffer.allocate(1));
    } catch (IOException e) {
      org.junit.jupiter.api.Assumptions.abort("no file with a hole here: " + e);
    }
    assertThrows(InvalidArgumentException.class, () -> UniqueId.readFrom(large, EVER));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void anInterruptEndsTheWait(boolean virtual) throws Exception {
    Path missing = folder.resolve("missing");
    Throwable[] thrown = new Throwable[1];
    boolean[] flag = new boolean[1];
    Runnable wait =
        () -> {
          try {
            UniqueId.readFrom(missing, EVER);
          } catch (Throwable e) {
            thrown[0] = e;
          }
          flag[0] = Thread.currentThread().isInterrupted();
        };
    Thread thread = virtual ? Thread.ofVirtual().start(wait) : Thread.ofPlatform().start(wait);
    Thread.sleep(20);
    thread.interrupt();
    assertTrue(thread.join(Duration.ofSeconds(10)), "it waits on");
    assertEquals(InterruptedWaitException.class, thrown[0].getClass(), () -> "" + thrown[0]);
    assertTrue(flag[0], "the flag was cleared");
  }

  @Test
  void aNegativeTimeIsRefused() {
    assertThrows(
        InvalidArgumentException.class,
        () -> UniqueId.readFrom(folder.resolve("missing"), Duration.ofMillis(-1)));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"NCCL4J_INIT_TIMEOUT", "NCCL4J_OPERATION_TIMEOUT", "NCCL4J_CLOSE_TIMEOUT"})
  void timesBeyondTheClockAreOff(String variable) {
    CommunicatorConfig config =
        CommunicatorConfig.builder(Map.of(variable, "999999999999m")).build();
    assertTrue(
        config.settings().stream()
            .anyMatch(s -> s.source().equals(variable) && s.value().equals("off")),
        () -> config.settings().toString());
    CommunicatorConfig given =
        CommunicatorConfig.builder()
            .initTimeout(EVER)
            .operationTimeout(EVER)
            .closeTimeout(EVER)
            .build();
    assertEquals(Long.MAX_VALUE, given.initTimeout().toNanos());
    assertEquals(Long.MAX_VALUE, given.operationTimeout().toNanos());
    assertEquals(Long.MAX_VALUE, given.closeTimeout().toNanos());
  }

  @ParameterizedTest
  @ValueSource(strings = {"host"})
  void nothingOverflowsWithoutLimits(String backend) throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .initTimeout(EVER)
            .operationTimeout(EVER)
            .closeTimeout(EVER)
            .build();
    Backend on = Backend.ofLabel(backend);
    UniqueId id = UniqueId.create(on);
    var other = Communicator.initRankAsync(Device.get(on, 1), 2, id, 1, config);
    try (Communicator rank0 = Communicator.initRank(Device.get(on, 0), 2, id, 0, config);
        Communicator rank1 = other.get(30, java.util.concurrent.TimeUnit.SECONDS);
        Stream stream = rank0.device().newStream();
        Stream stream1 = rank1.device().newStream()) {
      rank0.barrier(stream);
      rank1.barrier(stream1);
      stream.synchronize(EVER);
      stream1.synchronize(EVER);
    }
  }
}
