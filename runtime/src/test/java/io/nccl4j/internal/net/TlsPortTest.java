package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Tier;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.PooledByteBufAllocatorMetric;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.BooleanSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** All that ports over TCP do, through TLS, and what only TLS keeps off. */
@Tag("parallel")
@Tag("optimized")
final class TlsPortTest extends NettyPortTest {
  private static final InetAddress HERE = InetAddress.getLoopbackAddress();
  private static final long DATA = (long) Port.DATA << Port.KIND_SHIFT;
  private static final int HELLO_BYTES = 88;
  private static final int CHALLENGE_BYTES = 64;

  /** Java's TLS makes some objects for each record; buffers for records are pooled. */
  private static final long RECORD_GARBAGE_BYTES = 6 << 10;

  /** With more to send, records are seldom smaller. */
  private static final int RECORD_BYTES = 8 << 10;

  @Override
  Security security() {
    return Security.TLS;
  }

  @Override
  long mostGarbage(int bytes) {
    return RECORD_GARBAGE_BYTES * (1 + bytes / RECORD_BYTES);
  }

  @Override
  int exchanges() {
    return Tier.choose(500, 2_000);
  }

  /** With another fingerprint. */
  private static byte[] altered(byte[] address) {
    address[address.length - 1] ^= 1;
    return address;
  }

  /** At another TCP port. */
  private static byte[] at(int tcpPort, byte[] address) {
    ByteBuffer.wrap(address).putShort(16, (short) tcpPort);
    return address;
  }

  @Override
  String networkName() {
    return System.getProperty("nccl4j.test.tls", "netty (TCP, TLS)");
  }

  @Test
  void whoListensWithAnotherCertificateIsNotToldAnything() {
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, altered(there.address()));
      there.addPeer(0, here.address());
      long request = here.send(0, DATA, arena.allocate(100), 0, 100);
      pollUntil(() -> here.failures() == 1, here, there);
      assertEquals(
          "what listens there has another certificate than its address says", here.error(0));
      assertEquals(Port.FAILED, here.state(request));
      assertEquals(0, there.failures());
    }
  }

  /** It knows the secret, and says that it is a peer that it is not. */
  @Test
  void whoDialsWithAnotherCertificateIsAStranger() {
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      there.addPeer(0, altered(here.address()));
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      pollUntil(() -> here.failures() == 1, here, there);
      assertTrue(here.error(0).startsWith("its connection has ended"), here.error(0));
      assertNull(there.error(0));
      assertEquals(0, there.failures());
    }
  }

  @Test
  void whoIsKnownLaterIsComparedThen() {
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      // It proves itself while nobody knows it.
      for (int i = 0; i < 200; i++) {
        pollUntil(() -> true, here, there);
        here.poll((peer, tag, memory, offset, bytes) -> {});
        there.poll((peer, tag, memory, offset, bytes) -> {});
      }
      there.addPeer(0, altered(here.address()));
      pollUntil(() -> here.failures() == 1, here, there);
      assertEquals(0, there.failures());
    }
  }

  @Test
  void addressesWithAndWithoutTlsDoNotMix() {
    try (Network plain = open(Security.AUTH, JOB, SECRET, PortRange.ANY, 1_000);
        Network network = open();
        Port here = network.newPort();
        Port there = plain.newPort()) {
      InvalidArgumentException without =
          assertThrows(InvalidArgumentException.class, () -> here.addPeer(0, there.address()));
      assertTrue(without.getMessage().contains("is one without TLS"), without.getMessage());
      InvalidArgumentException with =
          assertThrows(InvalidArgumentException.class, () -> there.addPeer(0, here.address()));
      assertTrue(with.getMessage().contains("is one with TLS"), with.getMessage());
      assertTrue(with.getMessage().contains("NCCL4J_NETWORK_SECURITY"), with.getMessage());
    }
  }

  @Test
  void eachNetworkHasAKeyOfItsOwn() {
    try (Network network = open();
        Network other = open();
        Port one = network.newPort();
        Port two = network.newPort();
        Port three = other.newPort()) {
      assertEquals(fingerprint(one), fingerprint(two));
      assertNotEquals(fingerprint(one), fingerprint(three));
    }
  }

  private static ByteBuffer fingerprint(Port port) {
    byte[] address = port.address();
    return ByteBuffer.wrap(address, address.length - 32, 32);
  }

  @Test
  void whoListensWithoutTlsIsNotToldAnything() throws Exception {
    try (ServerSocket server = new ServerSocket(0, 1, HERE);
        Network network = open();
        Port here = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, at(server.getLocalPort(), here.address()));
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      try (Socket plain = server.accept()) {
        plain.getOutputStream().write(new byte[CHALLENGE_BYTES]);
        pollUntil(() -> here.failures() == 1, here);
        assertEquals(
            "its connection is broken: what listens there does not speak TLS", here.error(0));
      }
    }
  }

  @Test
  void whoDialsWithoutTlsIsAStranger() throws Exception {
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Socket plain = new Socket(HERE, tcpPort(there))) {
      there.addPeer(0, here.address());
      byte[] hello = new byte[HELLO_BYTES];
      hello(there, here, hello);
      plain.getOutputStream().write(hello);
      byte[] answer = readAll(plain, there);
      assertTrue(answer.length < CHALLENGE_BYTES, answer.length + " bytes");
      assertEquals(0, there.failures());
    }
  }

  /** What the port says until it ends the connection; polls it meanwhile. */
  private static byte[] readAll(Socket socket, Port port) {
    CompletableFuture<byte[]> all =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return socket.getInputStream().readAllBytes();
              } catch (IOException e) {
                // It was reset.
                return new byte[0];
              }
            });
    pollUntil(all::isDone, port);
    return all.join();
  }

  /** A context that accepts everything and has nothing to show. */
  private static SSLContext anonymous(String protocol) throws GeneralSecurityException {
    SSLContext context = SSLContext.getInstance(protocol);
    X509TrustManager anybody =
        new X509TrustManager() {
          @Override
          public void checkClientTrusted(X509Certificate[] chain, String how) {}

          @Override
          public void checkServerTrusted(X509Certificate[] chain, String how) {}

          @Override
          public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
          }
        };
    context.init(null, new TrustManager[] {anybody}, null);
    return context;
  }

  private static SSLSocket dial(Port port, String protocol) throws Exception {
    SSLSocket socket =
        (SSLSocket) anonymous(protocol).getSocketFactory().createSocket(HERE, tcpPort(port));
    socket.setEnabledProtocols(new String[] {protocol});
    return socket;
  }

  @Test
  void whoDialsWithAnOlderTlsIsAStranger() throws Exception {
    try (Network network = open();
        Port port = network.newPort();
        SSLSocket old = dial(port, "TLSv1.2")) {
      SSLException refused = assertThrows(SSLException.class, () -> shakeHands(old, port));
      assertTrue(refused.getMessage().contains("protocol_version"), refused.getMessage());
    }
  }

  private static void shakeHands(SSLSocket socket, Port port) throws Throwable {
    CompletableFuture<Void> hands =
        CompletableFuture.runAsync(
            () -> {
              try {
                socket.startHandshake();
              } catch (IOException e) {
                throw new CompletionException(e);
              }
            });
    pollUntil(hands::isDone, port);
    try {
      hands.join();
    } catch (CompletionException e) {
      throw e.getCause();
    }
  }

  @Test
  void whoDialsWithoutACertificateIsAStranger() throws Throwable {
    try (Network network = open();
        Port port = network.newPort();
        SSLSocket nobody = dial(port, "TLSv1.3")) {
      shakeHands(nobody, port);
      try {
        nobody.getOutputStream().write(new byte[HELLO_BYTES]);
      } catch (SocketException e) {
        // The port has already closed the connection.
        return;
      }
      assertEquals(0, readAll(nobody, port).length);
    }
  }

  @Test
  void whoListensWithAnOlderTlsIsNotToldAnything() throws Exception {
    try (ServerSocket server = new ServerSocket(0, 1, HERE);
        Network network = open();
        Port here = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, at(server.getLocalPort(), here.address()));
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      Socket accepted = server.accept();
      try (SSLSocket old =
          (SSLSocket) anonymous("TLSv1.2").getSocketFactory().createSocket(accepted, null, true)) {
        old.setUseClientMode(false);
        old.setEnabledProtocols(new String[] {"TLSv1.2"});
        assertThrows(SSLException.class, () -> shakeHands(old, here));
        pollUntil(() -> here.failures() == 1, here);
        assertTrue(
            here.error(0).startsWith("its connection is broken: TLS 1.3 was not agreed on, "),
            here.error(0));
      }
    }
  }

  /** Between two ports: records what goes by, and may change a byte of it. */
  private static final class Tap implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 1, HERE);
    private final ByteArrayOutputStream recorded = new ByteArrayOutputStream();
    private volatile boolean alters;

    Tap(Port target) throws IOException {
      int far = tcpPort(target);
      Thread.ofPlatform()
          .daemon()
          .start(
              () -> {
                try (Socket near = listener.accept();
                    Socket on = new Socket(HERE, far)) {
                  Thread back = Thread.ofPlatform().daemon().start(() -> pump(on, near));
                  pump(near, on);
                  back.join();
                } catch (IOException | InterruptedException e) {
                  // The test is over.
                }
              });
    }

    int port() {
      return listener.getLocalPort();
    }

    private void pump(Socket from, Socket to) {
      byte[] some = new byte[4096];
      try {
        InputStream in = from.getInputStream();
        OutputStream out = to.getOutputStream();
        for (int n = in.read(some); n >= 0; n = in.read(some)) {
          synchronized (recorded) {
            recorded.write(some, 0, n);
          }
          if (alters) {
            some[n - 1] ^= 1;
          }
          out.write(some, 0, n);
        }
        to.shutdownOutput();
      } catch (IOException e) {
        // Ended by either side.
      }
    }

    String recorded() {
      synchronized (recorded) {
        return recorded.toString(StandardCharsets.ISO_8859_1);
      }
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }

  @ParameterizedTest
  @EnumSource(Security.class)
  void onlyWithTlsNobodyReadsAlong(Security security) throws Exception {
    String text = "what nobody else is to know";
    try (Network network = open(security, JOB, SECRET, PortRange.ANY, 10_000);
        Port here = network.newPort();
        Port there = network.newPort();
        Tap tap = new Tap(there);
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, at(tap.port(), there.address()));
      there.addPeer(0, here.address());
      MemorySegment message = arena.allocateFrom(text);
      here.post(0, SMALL, message, 0, message.byteSize());
      pollUntilLanded(1, here, there);
      assertEquals(security != Security.TLS, tap.recorded().contains(text));
    }
  }

  private static void pollUntilLanded(int messages, Port here, Port there) {
    int[] landed = new int[1];
    BooleanSupplier done = () -> landed[0] == messages;
    long start = System.nanoTime();
    while (!done.getAsBoolean()) {
      here.poll((peer, tag, memory, offset, bytes) -> {});
      there.poll((peer, tag, memory, offset, bytes) -> landed[0]++);
      assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "it takes too long");
    }
  }

  @Test
  void whatIsChangedOnItsWayEndsTheConnection() throws Exception {
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Tap tap = new Tap(there);
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, at(tap.port(), there.address()));
      there.addPeer(0, here.address());
      MemorySegment memory = arena.allocate(1 << 20);
      here.post(0, SMALL, memory, 0, 8);
      pollUntilLanded(1, here, there);
      tap.alters = true;
      MemorySegment target = arena.allocate(1 << 20);
      target.fill((byte) 7);
      long wanted = there.receive(0, DATA, target, 0, 1 << 20);
      here.send(0, DATA, memory, 0, 1 << 20);
      pollUntil(() -> there.failures() == 1, here, there);
      assertTrue(there.error(0).startsWith("its connection is broken: "), there.error(0));
      assertEquals(Port.FAILED, there.state(wanted));
      assertEquals(7, target.get(ValueLayout.JAVA_BYTE, (1 << 20) - 1), "what came after it");
    }
  }

  /** Encrypted is only what the network takes. */
  @Test
  void largeDataIsNotInMemoryTwice() {
    int size = 64 << 20;
    try (Network network = open();
        Port here = network.newPort();
        Port there = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      there.addPeer(0, here.address());
      MemorySegment source = arena.allocate(size);
      for (long i = 0; i < size; i += Long.BYTES) {
        source.set(ValueLayout.JAVA_LONG, i, i * 0x9e3779b97f4a7c15L);
      }
      MemorySegment target = arena.allocate(size);
      here.post(0, SMALL, source, 0, 8);
      pollUntilLanded(1, here, there);
      long before = pooled();
      long received = there.receive(0, DATA, target, 0, size);
      long sent = here.send(0, DATA, source, 0, size);
      for (int i = 0; i < 1000; i++) {
        here.poll((peer, tag, memory, offset, bytes) -> {});
      }
      long more = pooled() - before;
      assertTrue(more <= size / 8, more + " bytes more in the pool");
      assertFalse(here.isFlushed());
      boolean[] done = new boolean[2];
      pollUntil(
          () ->
              (done[0] |= !done[0] && here.state(sent) == Port.COMPLETE)
                  & (done[1] |= !done[1] && there.state(received) == Port.COMPLETE),
          here,
          there);
      assertTrue(here.isFlushed());
      assertEquals(-1, source.mismatch(target));
    }
  }

  private static long pooled() {
    PooledByteBufAllocatorMetric metric = PooledByteBufAllocator.DEFAULT.metric();
    return metric.usedDirectMemory() + metric.usedHeapMemory();
  }

  /** Without netty-handler everything but TLS works. */
  @Test
  void tlsMayBeMissing() throws Exception {
    String missing = "io.netty.handler.";
    BackendUnavailableException failure =
        assertThrows(BackendUnavailableException.class, () -> openWithout(missing, Security.TLS));
    assertTrue(failure.getMessage().contains("io.netty:netty-handler"), failure.getMessage());
    try (Network network = openWithout(missing, Security.AUTH);
        Port here = network.newPort();
        Port there = network.newPort();
        Arena arena = Arena.ofConfined()) {
      here.addPeer(0, there.address());
      there.addPeer(0, here.address());
      here.post(0, SMALL, arena.allocate(8), 0, 8);
      pollUntilLanded(1, here, there);
    }
  }

  @Test
  void addressesHaveTheirForm() {
    try (Network network = open();
        Port port = network.newPort()) {
      byte[] address = port.address();
      assertEquals(16 + 2 + 4 + 32, address.length);
      for (int length : new int[] {0, 21, 23, 53, 55, 65, 67}) {
        byte[] other = Arrays.copyOf(address, length);
        assertThrows(InvalidArgumentException.class, () -> port.addPeer(0, other), length + " B");
      }
      assertArrayEquals(address, port.address());
    }
  }
}
