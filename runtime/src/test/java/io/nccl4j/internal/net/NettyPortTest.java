package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.Tier;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import java.util.ServiceLoader;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The contract over TCP, and what only a connection that strangers reach has to stand. */
@Tag("parallel")
class NettyPortTest extends PortContract {
  static final long SMALL = 1L << Port.KIND_SHIFT;
  private static final long DATA = (long) Port.DATA << Port.KIND_SHIFT;
  static final UUID JOB = UUID.randomUUID();
  static final byte[] SECRET = secret(1);

  /** What the JDK's selector leaves for each message; this project adds nothing. */
  private static final long SELECTOR_BYTES = 80;

  /** What is left by connecting, divided by the messages. */
  private static final long EPOLL_BYTES = 16;

  static final long PATIENCE_NANOS = 20_000_000_000L;

  private static byte[] secret(int seed) {
    byte[] secret = new byte[32];
    new Random(seed).nextBytes(secret);
    return secret;
  }

  /** What protects the connections under test. */
  Security security() {
    return Security.AUTH;
  }

  /** The network under test, as users read it. */
  String networkName() {
    return System.getProperty("nccl4j.test.tcp", "netty (TCP)");
  }

  /** Most bytes of garbage that a message of so many bytes may leave. */
  long mostGarbage(int bytes) {
    return networkName().contains("epoll") ? EPOLL_BYTES : SELECTOR_BYTES;
  }

  /** How many messages go back and forth before garbage is counted, and while it is. */
  int exchanges() {
    return Tier.choose(5_000, 20_000);
  }

  final Network open(UUID job, byte[] secret, PortRange range, int timeoutMillis) {
    return open(security(), job, secret, range, timeoutMillis);
  }

  static Network open(
      Security security, UUID job, byte[] secret, PortRange range, int timeoutMillis) {
    NetworkProvider netty =
        ServiceLoader.load(NetworkProvider.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(provider -> provider.name().equals("netty"))
            .findFirst()
            .orElseThrow();
    return netty.open(
        new NetworkConfig(
            job,
            secret,
            InetAddress.getLoopbackAddress(),
            range,
            Duration.ofMillis(timeoutMillis),
            security));
  }

  @Override
  Network open() {
    return open(JOB, SECRET, PortRange.ANY, 10_000);
  }

  /** So that the tests of one transport are not those of the other. */
  @Test
  void theNetworkSaysWhatItUses() {
    try (Network network = open()) {
      assertEquals(networkName(), network.name());
    }
  }

  static void pollUntil(BooleanSupplier done, Port... ports) {
    long start = System.nanoTime();
    while (!done.getAsBoolean()) {
      for (Port port : ports) {
        port.poll((peer, tag, memory, offset, bytes) -> {});
      }
      assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "it takes too long");
    }
  }

  static int tcpPort(Port port) {
    return Short.toUnsignedInt(ByteBuffer.wrap(port.address()).getShort(16));
  }

  @Test
  void whoHasAnotherSecretIsRefused() {
    try (Network ours = open();
        Network theirs = open(JOB, secret(2), PortRange.ANY, 10_000);
        Port here = ours.newPort();
        Port there = theirs.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      there.addPeer(0, here.address());
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      pollUntil(() -> here.failures() == 1, here, there);
      assertEquals("what listens there does not know the secret of this job", here.error(0));
      // Nothing that a stranger says counts.
      assertEquals(0, there.failures());
    }
  }

  /**
   * A port that closes with data unread resets its connections. Whoever was writing to it hears
   * what it said before, all the same.
   */
  @Test
  void whatWasSaidBeforeAConnectionBrokeIsHeard() {
    int bytes = 8 << 20;
    for (int round = 0; round < 10; round++) {
      try (Network network = open();
          Port here = network.newPort();
          Port there = network.newPort();
          Arena arena = Arena.ofConfined()) {
        here.addPeer(0, there.address());
        there.addPeer(0, here.address());
        MemorySegment memory = arena.allocate(bytes);
        here.post(0, SMALL, memory, 0, 8);
        boolean[] isThere = new boolean[1];
        pollUntil(
            () -> {
              there.poll((peer, tag, m, offset, length) -> isThere[0] = true);
              return isThere[0];
            },
            here);
        here.send(0, DATA, memory, 0, bytes);
        int ignored = here.poll((peer, tag, m, offset, length) -> {});
        there.post(0, SMALL, memory, 0, 8);
        ignored = there.poll((peer, tag, m, offset, length) -> {});
        there.abort();
        // More than the system takes: this is a write to what is gone.
        boolean[] isHeard = new boolean[1];
        here.post(0, SMALL, memory, 0, 8);
        pollUntil(
            () -> {
              int moved = here.poll((peer, tag, m, offset, length) -> isHeard[0] = true);
              return moved >= 0 && here.failures() == 1;
            });
        assertTrue(isHeard[0], "round " + round + ": " + here.error(0));
      }
    }
  }

  @Test
  void portsOfAnotherJobAreStrangers() {
    try (Network ours = open();
        Network theirs = open(UUID.randomUUID(), SECRET, PortRange.ANY, 10_000);
        Port here = ours.newPort();
        Port there = theirs.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      there.addPeer(0, here.address());
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      pollUntil(() -> here.failures() == 1, here, there);
      assertEquals(0, there.failures());
    }
  }

  @Test
  void whoDoesNotListenHasFailed() {
    try (Network network = open();
        Port here = network.newPort();
        Port gone = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, gone.address());
      gone.abort();
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      long request = here.send(0, DATA, arena.allocate(100), 0, 100);
      pollUntil(() -> here.failures() == 1, here);
      assertTrue(here.error(0).startsWith("it can't be connected to: "), here.error(0));
      assertEquals(Port.FAILED, here.state(request));
    }
  }

  @Test
  void whoListensAndSaysNothingHasFailedAfterAWhile() throws Exception {
    try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Network network = open(JOB, SECRET, PortRange.ANY, 200);
        Port here = network.newPort();
        Arena arena = Arena.ofConfined()) {
      byte[] address = here.address();
      ByteBuffer.wrap(address).putLong(0, 1).putShort(16, (short) silent.getLocalPort());
      here.addPeer(0, address);
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      pollUntil(() -> here.failures() == 1, here);
      assertEquals("it did not answer within 200 ms", here.error(0));
    }
  }

  /** Whatever strangers send, they get nothing but an end, and the ports go on. */
  @Test
  void strangersDisturbNothing() throws Exception {
    Random random = new Random(7);
    try (Network network = open(JOB, SECRET, PortRange.ANY, 300);
        Port one = network.newPort();
        Port two = network.newPort();
        Arena arena = Arena.ofConfined()) {
      one.addPeer(1, two.address());
      two.addPeer(0, one.address());
      for (int attempt = 0; attempt < 200; attempt++) {
        try (Socket stranger = new Socket(InetAddress.getLoopbackAddress(), tcpPort(one))) {
          byte[] noise = new byte[random.nextInt(400)];
          random.nextBytes(noise);
          if (attempt % 3 == 0 && noise.length >= 88) {
            // A hello that is right but for its nonce, then noise instead of the proof.
            hello(one, two, noise);
          }
          OutputStream out = stranger.getOutputStream();
          out.write(noise);
          if (attempt % 2 == 0) {
            stranger.shutdownOutput();
          }
          one.poll((peer, tag, memory, offset, bytes) -> {});
        } catch (IOException e) {
          // It was cut off while it wrote: that is what it gets.
          assertTrue(e.getMessage() != null);
        }
      }
      int[] landed = new int[1];
      two.post(0, SMALL | 3, arena.allocate(8), 0, 8);
      long start = System.nanoTime();
      while (landed[0] == 0) {
        two.poll((peer, tag, memory, offset, bytes) -> {});
        one.poll((peer, tag, memory, offset, bytes) -> landed[0]++);
        assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "it takes too long");
      }
      assertNull(one.error(1));
      assertEquals(0, one.failures() + two.failures());
    }
  }

  static void hello(Port to, Port from, byte[] start) {
    ByteBuffer.wrap(start)
        .putLong(0x6e34706f72740001L)
        .putLong(JOB.getMostSignificantBits())
        .putLong(JOB.getLeastSignificantBits())
        .put(from.address(), 0, 16)
        .put(to.address(), 0, 16);
  }

  /** A stranger that says nothing is cut off when it has had its time. */
  @Test
  void aSilentStrangerIsCutOff() throws Exception {
    try (Network network = open(JOB, SECRET, PortRange.ANY, 100);
        Port port = network.newPort();
        Socket stranger = new Socket(InetAddress.getLoopbackAddress(), tcpPort(port))) {
      InputStream in = stranger.getInputStream();
      stranger.setSoTimeout(1);
      long start = System.nanoTime();
      int read = 0;
      while (read >= 0) {
        port.poll((peer, tag, memory, offset, bytes) -> {});
        try {
          read = in.read();
        } catch (SocketTimeoutException e) {
          assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "it takes too long");
        }
      }
    }
  }

  /** Netty is optional: without it, whoever wants a network hears what to add. */
  @Test
  void nettyMayBeMissing() throws Exception {
    BackendUnavailableException missing =
        assertThrows(BackendUnavailableException.class, () -> openWithout("io.netty.", security()));
    assertTrue(missing.getMessage().contains("io.netty:netty-"), missing.getMessage());
  }

  /** Opens a network where some classes are missing. */
  static Network openWithout(String missing, Security security) throws Exception {
    ClassLoader without =
        new ClassLoader(NettyPortTest.class.getClassLoader()) {
          @Override
          protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (name.startsWith(missing)) {
              throw new ClassNotFoundException(name);
            }
            if (!name.startsWith("io.nccl4j.internal.net.netty.")) {
              return super.loadClass(name, resolve);
            }
            Class<?> loaded = findLoadedClass(name);
            return loaded == null ? define(name) : loaded;
          }

          private Class<?> define(String name) throws ClassNotFoundException {
            String file = name.replace('.', '/') + ".class";
            try (InputStream in = getParent().getResourceAsStream(file)) {
              byte[] bytes = in.readAllBytes();
              return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException e) {
              throw new ClassNotFoundException(name, e);
            }
          }
        };
    NetworkProvider provider =
        (NetworkProvider)
            without
                .loadClass("io.nccl4j.internal.net.netty.NettyProvider")
                .getConstructor()
                .newInstance();
    assertEquals("netty", provider.name());
    NetworkConfig config =
        new NetworkConfig(
            JOB,
            SECRET,
            InetAddress.getLoopbackAddress(),
            PortRange.ANY,
            Duration.ofSeconds(1),
            security);
    return provider.open(config);
  }

  @Test
  void listensOnlyWhereItMay() {
    try (Network network = open();
        Port taken = network.newPort()) {
      int port = tcpPort(taken);
      try (Network range = open(JOB, SECRET, new PortRange(port, port), 1000)) {
        SystemErrorException failure = assertThrows(SystemErrorException.class, range::newPort);
        assertTrue(failure.getMessage().contains(port + "-" + port), failure.getMessage());
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {64, Port.SMALL_BYTES})
  void smallMessagesLeaveLittleGarbage(int bytes) {
    try (Network network = open();
        Port one = network.newPort();
        Port two = network.newPort();
        Arena arena = Arena.ofConfined()) {
      one.addPeer(1, two.address());
      two.addPeer(0, one.address());
      MemorySegment memory = arena.allocate(bytes);
      int[] landed = new int[1];
      Port.Landing landing = (peer, tag, from, offset, length) -> landed[0]++;
      ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
      long[] allocated = new long[5];
      int rounds = bytes == 64 ? exchanges() : exchanges() / 10;
      for (int attempt = 0; attempt < allocated.length; attempt++) {
        long before = threads.getCurrentThreadAllocatedBytes();
        pingPong(one, two, memory, landing, landed, rounds);
        allocated[attempt] = threads.getCurrentThreadAllocatedBytes() - before;
      }
      long each = Arrays.stream(allocated).min().orElseThrow() / (2L * rounds);
      System.out.println("a message of " + bytes + " B leaves " + each + " B of garbage");
      long most = mostGarbage(bytes);
      assertTrue(each <= most, each + " B a message, and " + most + " are in order");
    }
  }

  private static void pingPong(
      Port one, Port two, MemorySegment memory, Port.Landing landing, int[] landed, int rounds) {
    for (int round = 0; round < rounds; round++) {
      one.post(1, SMALL, memory, 0, (int) memory.byteSize());
      one.flush();
      int before = landed[0];
      while (landed[0] == before) {
        // It may have to make the connection first.
        one.poll(landing);
        two.poll(landing);
      }
      two.post(0, SMALL, memory, 0, (int) memory.byteSize());
      two.flush();
      while (landed[0] == before + 1) {
        two.poll(landing);
        one.poll(landing);
      }
    }
  }
}
