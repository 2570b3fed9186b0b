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
import org.junit.jupiter.api.io.TempDir;

/** UNIX sockets: names, descriptors that travel, credentials, waiting. */
class LibcSocketTest {
  private static final int STREAM = Libc.SOCK_STREAM | Libc.SOCK_CLOEXEC;
  private static final int PACKETS = Libc.SOCK_SEQPACKET | Libc.SOCK_CLOEXEC;
  private static final int NO_FD = 1_000_000_000;
  private static final int[] NONE = {};

  @TempDir Path directory;

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private static byte[] uniqueName() {
    return ("nccl4j-test-" + UUID.randomUUID()).getBytes(UTF_8);
  }

  private static int listener(byte[] name) {
    int socket = Libc.socket(STREAM);
    Libc.bindAbstract(socket, name);
    Libc.listen(socket, 8);
    return socket;
  }

  private static void closeAll(int... fds) {
    for (int fd : fds) {
      Libc.close(fd);
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
              int connection = Libc.accept4(listener, Libc.SOCK_CLOEXEC);
              ReceivedMessage message = Libc.recvmsg(connection, 64, 4, 0);
              assertEquals(2, message.fds().length);
              MemorySegment memory =
                  Libc.mmap(
                      4096, Libc.PROT_READ | Libc.PROT_WRITE, Libc.MAP_SHARED, message.fds()[0], 0);
              memory.set(JAVA_LONG, 0, 77);
              Libc.munmap(memory);
              Libc.eventfdWrite(message.fds()[1], 1);
              closeAll(message.fds());
              Libc.sendAll(connection, new byte[] {1});
              Libc.close(connection);
              return new String(message.bytes(), UTF_8);
            });
    Thread.ofPlatform().name("server").start(server);
    int client = Libc.socket(STREAM);
    Libc.connectAbstract(client, name);
    int file = Libc.memfdCreate("travels", Libc.MFD_CLOEXEC);
    Libc.ftruncate(file, 4096);
    int counter = Libc.eventfd(0, Libc.EFD_CLOEXEC);
    Libc.sendAll(client, "two descriptors".getBytes(UTF_8), file, counter);
    assertEquals("two descriptors", server.get());
    assertArrayEquals(new byte[] {1}, Libc.recvmsg(client, 8, 0, 0).bytes());
    ReceivedMessage end = Libc.recvmsg(client, 8, 0, 0);
    assertEquals(0, end.bytes().length);
    assertEquals(1, Libc.eventfdRead(counter));
    MemorySegment memory = Libc.mmap(4096, Libc.PROT_READ, Libc.MAP_SHARED, file, 0);
    assertEquals(77, memory.get(JAVA_LONG, 0));
    Libc.munmap(memory);
    closeAll(listener, client, file, counter);
  }

  @Test
  void receivedDescriptorsAreNewOnesForTheSameFile() throws Exception {
    for (int type : new int[] {STREAM, PACKETS}) {
      int[] pair = Libc.socketpair(type);
      int file = Libc.memfdCreate("same", Libc.MFD_CLOEXEC);
      int[] sent = new int[Libc.MAX_FDS_PER_MESSAGE];
      Arrays.fill(sent, file);
      Libc.sendAll(pair[0], new byte[] {5, 6}, sent);
      ReceivedMessage message = Libc.recvmsg(pair[1], 2, sent.length, 0);
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
      Libc.close(file);
    }
  }

  @Test
  void descriptorsThatDoNotFitAreClosedAndReported() {
    int[] pair = Libc.socketpair(PACKETS);
    int file = Libc.memfdCreate("lost", Libc.MFD_CLOEXEC);
    for (int room : new int[] {0, 1, 2}) {
      LibcException failure =
          LibcConditions.failsWithoutLeak(
              () -> {
                Libc.sendAll(pair[0], new byte[] {1}, file, file, file);
                Libc.recvmsg(pair[1], 8, room, 0);
              });
      assertEquals("recvmsg", failure.function());
      assertEquals(Errno.EMSGSIZE, failure.errno());
      assertTrue(failure.attempt().contains("more than " + room), failure.attempt());
    }
    LibcException cut =
        LibcConditions.failsWithoutLeak(
            () -> {
              Libc.sendAll(pair[0], new byte[9], file);
              Libc.recvmsg(pair[1], 8, 1, 0);
            });
    assertEquals(Errno.EMSGSIZE, cut.errno());
    closeAll(pair);
    Libc.close(file);
  }

  @Test
  void peerIsThisProcess() {
    int[] pair = Libc.socketpair(STREAM);
    PeerCredentials peer = Libc.peerCredentials(pair[0]);
    assertEquals(Libc.getpid(), peer.pid());
    assertEquals(Libc.getuid(), peer.uid());
    closeAll(pair);
    assertEquals(
        Errno.EBADF, LibcConditions.failsWithoutLeak(() -> Libc.peerCredentials(NO_FD)).errno());
  }

  @Test
  void pathsNameSocketsToo() {
    Path path = directory.resolve("socket");
    int listener = Libc.socket(STREAM);
    Libc.bindPath(listener, path);
    Libc.listen(listener, 1);
    int client = Libc.socket(STREAM);
    Libc.connectPath(client, path);
    int connection = Libc.accept4(listener, Libc.SOCK_CLOEXEC);
    Libc.sendAll(client, "hello".getBytes(UTF_8));
    assertEquals("hello", new String(Libc.recvmsg(connection, 64, 0, 0).bytes(), UTF_8));
    int other = Libc.socket(STREAM);
    assertEquals(
        Errno.EADDRINUSE,
        LibcConditions.failsWithoutLeak(() -> Libc.bindPath(other, path)).errno());
    assertEquals(
        Errno.ENOENT,
        LibcConditions.failsWithoutLeak(() -> Libc.connectPath(other, directory.resolve("none")))
            .errno());
    closeAll(listener, client, connection, other);
    Path tooLong = Path.of("/" + "x".repeat(107));
    assertThrows(IllegalArgumentException.class, () -> Libc.connectPath(0, tooLong));
  }

  @Test
  void abstractNamesAreBytes() {
    byte[] longest = Arrays.copyOf(uniqueName(), Libc.MAX_ABSTRACT_NAME_BYTES);
    int listener = listener(longest);
    int client = Libc.socket(STREAM);
    Libc.connectAbstract(client, longest);
    int other = Libc.socket(STREAM);
    assertEquals(
        Errno.EADDRINUSE,
        LibcConditions.failsWithoutLeak(() -> Libc.bindAbstract(other, longest)).errno());
    byte[] shorter = Arrays.copyOf(longest, longest.length - 1);
    LibcException refused =
        LibcConditions.failsWithoutLeak(() -> Libc.connectAbstract(other, shorter));
    assertEquals(Errno.ECONNREFUSED, refused.errno());
    assertTrue(refused.attempt().contains("nccl4j-test-"), refused.attempt());
    closeAll(listener, client, other);
    assertThrows(IllegalArgumentException.class, () -> Libc.bindAbstract(0, new byte[0]));
    assertThrows(IllegalArgumentException.class, () -> Libc.bindAbstract(0, new byte[108]));
  }

  @Test
  void pollReturnsAfterItsTime() {
    int[] pair = Libc.socketpair(STREAM);
    long start = System.nanoTime();
    assertEquals(0, Libc.poll(pair[0], Libc.POLLIN, 50));
    long millis = (System.nanoTime() - start) / 1_000_000;
    assertTrue(millis >= 50 && millis < 5_000, millis + " ms");
    assertEquals(0, Libc.poll(pair[0], Libc.POLLIN, 0));
    assertEquals(Libc.POLLOUT, Libc.poll(pair[0], Libc.POLLIN | Libc.POLLOUT, -1));
    int[] results = {9, 9, 9};
    int ready =
        Libc.poll(
            new int[] {pair[0], -1, NO_FD},
            new int[] {Libc.POLLIN, Libc.POLLIN, Libc.POLLIN},
            results,
            Long.MAX_VALUE);
    assertEquals(1, ready);
    assertArrayEquals(new int[] {0, 0, Libc.POLLNVAL}, results);
    Libc.close(pair[1]);
    assertEquals(Libc.POLLHUP, Libc.poll(pair[0], Libc.POLLIN, -1) & Libc.POLLHUP);
    Libc.close(pair[0]);
    assertEquals(0, Libc.poll(NONE, NONE, NONE, 1));
    assertThrows(IllegalArgumentException.class, () -> Libc.poll(new int[1], NONE, NONE, 1));
  }

  @Test
  void anEventCounterWakesAPollingThread() throws Exception {
    int counter = Libc.eventfd(0, Libc.EFD_CLOEXEC);
    FutureTask<Integer> waiter = new FutureTask<>(() -> Libc.poll(counter, Libc.POLLIN, 60_000));
    Thread.ofPlatform().name("waiter").start(waiter);
    Thread.sleep(20);
    // A blocked poll must not keep the collector from its safepoint.
    long start = System.nanoTime();
    System.gc();
    assertTrue(System.nanoTime() - start < 30_000_000_000L);
    Libc.eventfdWrite(counter, 1);
    assertEquals(Libc.POLLIN, waiter.get());
    Libc.close(counter);
  }

  @Test
  void nothingToReceiveIsEagain() {
    int[] pair = Libc.socketpair(STREAM);
    assertEquals(
        Errno.EAGAIN,
        LibcConditions.failsWithoutLeak(() -> Libc.recvmsg(pair[0], 8, 8, Libc.MSG_DONTWAIT))
            .errno());
    Libc.shutdown(pair[1], Libc.SHUT_WR);
    assertEquals(0, Libc.recvmsg(pair[0], 8, 8, 0).bytes().length);
    Libc.close(pair[1]);
    LibcException gone =
        LibcConditions.failsWithoutLeak(() -> Libc.sendAll(pair[0], new byte[] {1}));
    assertEquals(Errno.EPIPE, gone.errno());
    Libc.close(pair[0]);
  }

  @Test
  void aLongMessageArrivesWhole() throws Exception {
    int[] pair = Libc.socketpair(STREAM);
    byte[] bytes = new byte[3_000_000];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) (i * 31 >> 3);
    }
    FutureTask<Void> sender =
        new FutureTask<>(
            () -> {
              Libc.sendAll(pair[0], bytes, pair[0]);
              return null;
            });
    Thread.ofPlatform().name("sender").start(sender);
    byte[] received = new byte[bytes.length];
    int at = 0;
    int fds = 0;
    while (at < received.length) {
      ReceivedMessage part = Libc.recvmsg(pair[1], 100_000, 1, 0);
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
        IllegalArgumentException.class, () -> Libc.sendmsg(0, new byte[0], 0, 0, new int[] {0}, 0));
    assertThrows(
        IllegalArgumentException.class,
        () -> Libc.sendmsg(0, new byte[1], 0, 1, new int[Libc.MAX_FDS_PER_MESSAGE + 1], 0));
    assertThrows(
        IndexOutOfBoundsException.class, () -> Libc.sendmsg(0, new byte[1], 1, 1, NONE, 0));
    assertThrows(IllegalArgumentException.class, () -> Libc.recvmsg(0, 0, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> Libc.recvmsg(0, 1, -1, 0));
    for (int errno :
        new int[] {
          LibcConditions.failsWithoutLeak(() -> Libc.listen(NO_FD, 1)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.accept4(NO_FD, 0)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.shutdown(NO_FD, Libc.SHUT_RDWR)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.recvmsg(NO_FD, 1, 1, 0)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.sendAll(NO_FD, new byte[1])).errno()
        }) {
      assertEquals(Errno.EBADF, errno);
    }
    LibcException type = LibcConditions.failsWithoutLeak(() -> Libc.socket(0x3f));
    assertEquals("socket", type.function());
    assertEquals(
        type.errno(), assertThrows(LibcException.class, () -> Libc.socketpair(0x3f)).errno());
  }
}
