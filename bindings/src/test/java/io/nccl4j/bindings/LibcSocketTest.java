package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** UNIX sockets: names, descriptors that travel, credentials, waiting. */
class LibcSocketTest {
  private static final int STREAM = UnixSockets.SOCK_STREAM | UnixSockets.SOCK_CLOEXEC;
  private static final int PACKETS = UnixSockets.SOCK_SEQPACKET | UnixSockets.SOCK_CLOEXEC;
  private static final int NO_FD = 1_000_000_000;
  private static final int[] NONE = {};

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private static byte[] uniqueName() {
    return ("nccl4j-test-" + UUID.randomUUID()).getBytes(UTF_8);
  }

  private static int listener(byte[] name) {
    int socket = UnixSockets.socket(STREAM);
    UnixSockets.bindAbstract(socket, name);
    UnixSockets.listen(socket, 8);
    return socket;
  }

  /** Two that are connected to each other. */
  private static int[] pair(int type) {
    byte[] name = uniqueName();
    int listener = UnixSockets.socket(type);
    UnixSockets.bindAbstract(listener, name);
    UnixSockets.listen(listener, 1);
    int client = UnixSockets.socket(type);
    UnixSockets.connectAbstract(client, name);
    int accepted = UnixSockets.accept4(listener, UnixSockets.SOCK_CLOEXEC);
    Descriptors.close(listener);
    return new int[] {client, accepted};
  }

  private static void sendAll(int socket, byte[] bytes, int... fds) {
    int sent = UnixSockets.sendmsg(socket, bytes, 0, bytes.length, fds, 0);
    while (sent < bytes.length) {
      sent += UnixSockets.sendmsg(socket, bytes, sent, bytes.length - sent, NONE, 0);
    }
  }

  private static void closeAll(int... fds) {
    for (int fd : fds) {
      Descriptors.close(fd);
    }
  }

  private static String target(int fd) throws IOException {
    return Files.readSymbolicLink(Path.of("/proc/self/fd/" + fd)).toString();
  }

  @Test
  void descriptorsTravelBetweenThreads() throws Exception {
    byte[] name = uniqueName();
    int listener = listener(name);
    FutureTask<String> server =
        new FutureTask<>(
            () -> {
              int connection = UnixSockets.accept4(listener, UnixSockets.SOCK_CLOEXEC);
              ReceivedMessage message = UnixSockets.recvmsg(connection, 64, 4, 0);
              assertEquals(2, message.fds().length);
              MemorySegment memory =
                  Memory.mmap(
                      4096,
                      Memory.PROT_READ | Memory.PROT_WRITE,
                      Memory.MAP_SHARED,
                      message.fds()[0],
                      0);
              memory.set(JAVA_LONG, 0, 77);
              Memory.munmap(memory);
              Descriptors.eventfdWrite(message.fds()[1], 1);
              closeAll(message.fds());
              sendAll(connection, new byte[] {1});
              Descriptors.close(connection);
              return new String(message.bytes(), UTF_8);
            });
    Thread.ofPlatform().name("server").start(server);
    int client = UnixSockets.socket(STREAM);
    UnixSockets.connectAbstract(client, name);
    int file = Memory.memfdCreate("travels", Memory.MFD_CLOEXEC);
    Memory.ftruncate(file, 4096);
    int counter = Descriptors.eventfd(0, Descriptors.EFD_CLOEXEC);
    sendAll(client, "two descriptors".getBytes(UTF_8), file, counter);
    assertEquals("two descriptors", server.get());
    assertArrayEquals(new byte[] {1}, UnixSockets.recvmsg(client, 8, 0, 0).bytes());
    ReceivedMessage end = UnixSockets.recvmsg(client, 8, 0, 0);
    assertEquals(0, end.bytes().length);
    assertEquals(1, Descriptors.eventfdRead(counter));
    MemorySegment memory = Memory.mmap(4096, Memory.PROT_READ, Memory.MAP_SHARED, file, 0);
    assertEquals(77, memory.get(JAVA_LONG, 0));
    Memory.munmap(memory);
    closeAll(listener, client, file, counter);
  }

  @Test
  void receivedDescriptorsAreNewOnesForTheSameFile() throws Exception {
    for (int type : new int[] {STREAM, PACKETS}) {
      int[] pair = pair(type);
      int file = Memory.memfdCreate("same", Memory.MFD_CLOEXEC);
      int[] sent = new int[UnixSockets.MAX_FDS_PER_MESSAGE];
      Arrays.fill(sent, file);
      sendAll(pair[0], new byte[] {5, 6}, sent);
      ReceivedMessage message = UnixSockets.recvmsg(pair[1], 2, sent.length, 0);
      assertArrayEquals(new byte[] {5, 6}, message.bytes());
      assertEquals(sent.length, message.fds().length);
      for (int fd : message.fds()) {
        assertNotEquals(file, fd);
        assertEquals(target(file), target(fd));
        // Close on exec is bit 02000000 of the flags shown there.
        String info = Files.readString(Path.of("/proc/self/fdinfo/" + fd));
        assertTrue(info.matches("(?s).*flags:\\s+0?2[0-7]{6}\\b.*"), info);
      }
      closeAll(message.fds());
      closeAll(pair);
      Descriptors.close(file);
    }
  }

  @Test
  void descriptorsThatDoNotFitAreClosedAndReported() {
    int[] pair = pair(PACKETS);
    int file = Memory.memfdCreate("lost", Memory.MFD_CLOEXEC);
    for (int room : new int[] {0, 1, 2}) {
      LibcException failure =
          LibcConditions.failsWithoutLeak(
              () -> {
                sendAll(pair[0], new byte[] {1}, file, file, file);
                UnixSockets.recvmsg(pair[1], 8, room, 0);
              });
      assertEquals("recvmsg", failure.function());
      assertEquals(Errno.EMSGSIZE, failure.errno());
      assertTrue(failure.attempt().contains("more than " + room), failure.attempt());
    }
    LibcException cut =
        LibcConditions.failsWithoutLeak(
            () -> {
              sendAll(pair[0], new byte[9], file);
              UnixSockets.recvmsg(pair[1], 8, 1, 0);
            });
    assertEquals(Errno.EMSGSIZE, cut.errno());
    closeAll(pair);
    Descriptors.close(file);
  }

  @Test
  void peerIsThisProcess() {
    int[] pair = pair(STREAM);
    PeerCredentials peer = UnixSockets.peerCredentials(pair[0]);
    assertEquals(ProcessHandle.current().pid(), peer.pid());
    assertEquals(Processes.getuid(), peer.uid());
    closeAll(pair);
    assertEquals(
        Errno.EBADF,
        LibcConditions.failsWithoutLeak(() -> UnixSockets.peerCredentials(NO_FD)).errno());
  }

  @Test
  void abstractNamesAreBytes() {
    byte[] longest = Arrays.copyOf(uniqueName(), UnixSockets.MAX_ABSTRACT_NAME_BYTES);
    int listener = listener(longest);
    int client = UnixSockets.socket(STREAM);
    UnixSockets.connectAbstract(client, longest);
    int other = UnixSockets.socket(STREAM);
    assertEquals(
        Errno.EADDRINUSE,
        LibcConditions.failsWithoutLeak(() -> UnixSockets.bindAbstract(other, longest)).errno());
    byte[] shorter = Arrays.copyOf(longest, longest.length - 1);
    LibcException refused =
        LibcConditions.failsWithoutLeak(() -> UnixSockets.connectAbstract(other, shorter));
    assertEquals(Errno.ECONNREFUSED, refused.errno());
    assertTrue(refused.attempt().contains("nccl4j-test-"), refused.attempt());
    closeAll(listener, client, other);
    assertThrows(IllegalArgumentException.class, () -> UnixSockets.bindAbstract(0, new byte[0]));
    assertThrows(IllegalArgumentException.class, () -> UnixSockets.bindAbstract(0, new byte[108]));
  }

  @Test
  void pollReturnsAfterItsTime() {
    int[] pair = pair(STREAM);
    long start = System.nanoTime();
    assertEquals(0, Descriptors.poll(pair[0], Descriptors.POLLIN, 50));
    long millis = (System.nanoTime() - start) / 1_000_000;
    assertTrue(millis >= 50 && millis < 5_000, millis + " ms");
    assertEquals(0, Descriptors.poll(pair[0], Descriptors.POLLIN, 0));
    assertEquals(
        Descriptors.POLLOUT,
        Descriptors.poll(pair[0], Descriptors.POLLIN | Descriptors.POLLOUT, -1));
    int[] results = {9, 9, 9};
    int ready =
        Descriptors.poll(
            new int[] {pair[0], -1, NO_FD},
            new int[] {Descriptors.POLLIN, Descriptors.POLLIN, Descriptors.POLLIN},
            results,
            Long.MAX_VALUE);
    assertEquals(1, ready);
    assertArrayEquals(new int[] {0, 0, Descriptors.POLLNVAL}, results);
    Descriptors.close(pair[1]);
    assertEquals(
        Descriptors.POLLHUP,
        Descriptors.poll(pair[0], Descriptors.POLLIN, -1) & Descriptors.POLLHUP);
    Descriptors.close(pair[0]);
    assertEquals(0, Descriptors.poll(NONE, NONE, NONE, 1));
    assertThrows(IllegalArgumentException.class, () -> Descriptors.poll(new int[1], NONE, NONE, 1));
  }

  @Test
  void anEventCounterWakesAPollingThread() throws Exception {
    int counter = Descriptors.eventfd(0, Descriptors.EFD_CLOEXEC);
    FutureTask<Integer> waiter =
        new FutureTask<>(() -> Descriptors.poll(counter, Descriptors.POLLIN, 60_000));
    Thread.ofPlatform().name("waiter").start(waiter);
    Thread.sleep(20);
    // A blocked poll must not keep the collector from its safepoint.
    long start = System.nanoTime();
    System.gc();
    assertTrue(System.nanoTime() - start < 30_000_000_000L);
    Descriptors.eventfdWrite(counter, 1);
    assertEquals(Descriptors.POLLIN, waiter.get());
    Descriptors.close(counter);
  }

  @Test
  void nothingToReceiveIsEagain() {
    int[] pair = pair(STREAM);
    assertEquals(
        Errno.EAGAIN,
        LibcConditions.failsWithoutLeak(
                () -> UnixSockets.recvmsg(pair[0], 8, 8, UnixSockets.MSG_DONTWAIT))
            .errno());
    UnixSockets.shutdown(pair[1], UnixSockets.SHUT_WR);
    assertEquals(0, UnixSockets.recvmsg(pair[0], 8, 8, 0).bytes().length);
    Descriptors.close(pair[1]);
    LibcException gone = LibcConditions.failsWithoutLeak(() -> sendAll(pair[0], new byte[] {1}));
    assertEquals(Errno.EPIPE, gone.errno());
    Descriptors.close(pair[0]);
  }

  @Test
  void aLongMessageArrivesWhole() throws Exception {
    int[] pair = pair(STREAM);
    byte[] bytes = new byte[3_000_000];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) (i * 31 >> 3);
    }
    FutureTask<Void> sender =
        new FutureTask<>(
            () -> {
              sendAll(pair[0], bytes, pair[0]);
              return null;
            });
    Thread.ofPlatform().name("sender").start(sender);
    byte[] received = new byte[bytes.length];
    int at = 0;
    int fds = 0;
    while (at < received.length) {
      ReceivedMessage part = UnixSockets.recvmsg(pair[1], 100_000, 1, 0);
      System.arraycopy(part.bytes(), 0, received, at, part.bytes().length);
      at += part.bytes().length;
      fds += part.fds().length;
      closeAll(part.fds());
    }
    sender.get();
    assertArrayEquals(bytes, received);
    assertEquals(1, fds);
    closeAll(pair);
  }

  @Test
  void impossibleMessagesAreRefused() {
    assertThrows(
        IllegalArgumentException.class,
        () -> UnixSockets.sendmsg(0, new byte[0], 0, 0, new int[] {0}, 0));
    assertThrows(
        IllegalArgumentException.class,
        () ->
            UnixSockets.sendmsg(
                0, new byte[1], 0, 1, new int[UnixSockets.MAX_FDS_PER_MESSAGE + 1], 0));
    assertThrows(
        IndexOutOfBoundsException.class, () -> UnixSockets.sendmsg(0, new byte[1], 1, 1, NONE, 0));
    assertThrows(IllegalArgumentException.class, () -> UnixSockets.recvmsg(0, 0, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> UnixSockets.recvmsg(0, 1, -1, 0));
    for (int errno :
        new int[] {
          LibcConditions.failsWithoutLeak(() -> UnixSockets.listen(NO_FD, 1)).errno(),
          LibcConditions.failsWithoutLeak(() -> UnixSockets.accept4(NO_FD, 0)).errno(),
          LibcConditions.failsWithoutLeak(() -> UnixSockets.shutdown(NO_FD, UnixSockets.SHUT_WR))
              .errno(),
          LibcConditions.failsWithoutLeak(() -> UnixSockets.recvmsg(NO_FD, 1, 1, 0)).errno(),
          LibcConditions.failsWithoutLeak(() -> sendAll(NO_FD, new byte[1])).errno()
        }) {
      assertEquals(Errno.EBADF, errno);
    }
    LibcException type = LibcConditions.failsWithoutLeak(() -> UnixSockets.socket(0x3f));
    assertEquals("socket", type.function());
    assertTrue(type.errno() > 0, type::toString);
  }
}
