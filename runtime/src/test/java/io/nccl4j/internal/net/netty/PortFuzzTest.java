package io.nccl4j.internal.net.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.Port;
import io.nccl4j.property.Seed;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.Objects;
import java.util.Random;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import javax.net.ssl.SSLEngine;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * What arrives at a port, altered and cut off at every stage: noise, bytes of the handshake, and
 * frames of a peer that knows the secret. Polls throw nothing and end, whoever broke the rules has
 * failed, a friend notices nothing, and nothing is left.
 */
final class PortFuzzTest {
  private static final long SMALL = 1L << Port.KIND_SHIFT;
  private static final long DATA = (long) Port.DATA << Port.KIND_SHIFT;
  private static final long PATIENCE_NANOS = 20_000_000_000L;
  private static final int CASES_PER_PORT = 500;
  private static final int FRIEND = 0;
  private static final int MOST_BYTES = 40_000;
  private static final InetAddress HERE = InetAddress.getLoopbackAddress();
  private static final byte[] WELCOME = verdict(Handshake.WELCOME);
  private static final byte[] TAKE_MINE = verdict(Handshake.TAKE_MINE);
  private static final TlsIdentity STRANGER = TlsIdentity.create();

  @Test
  void someCases() throws Exception {
    run(Security.AUTH, 3_000);
    run(Security.TLS, 300);
  }

  @Test
  @Tag("long")
  void manyCases() throws Exception {
    run(Security.AUTH, 1_000_000);
    run(Security.TLS, 50_000);
  }

  private void run(Security security, int cases) throws Exception {
    runOn(security, 0, 1);
    int files = openFiles();
    long pooled = pooled();
    for (int first = 0; first < cases; first += CASES_PER_PORT) {
      runOn(security, first, Math.min(cases - first, CASES_PER_PORT));
      // What tests before this one have left may end meanwhile, or begin to.
      int now = openFiles();
      assertTrue(now < files + CASES_PER_PORT / 10, files + " descriptors, then " + now);
    }
    assertTrue(pooled() - pooled <= 16 << 20, "pool: " + pooled + " B, then " + pooled());
  }

  private static byte[] verdict(long verdict) {
    return ByteBuffer.allocate(Handshake.VERDICT_BYTES).putLong(verdict).array();
  }

  private static int openFiles() {
    return Objects.requireNonNull(new File("/proc/self/fd").list()).length;
  }

  private static long pooled() {
    return PooledByteBufAllocator.DEFAULT.metric().usedDirectMemory()
        + PooledByteBufAllocator.DEFAULT.metric().usedHeapMemory();
  }

  private void runOn(Security security, int first, int cases) throws Exception {
    NetworkConfig config =
        new NetworkConfig(
            new UUID(1, 2), new byte[32], HERE, PortRange.ANY, Duration.ofSeconds(10), security);
    try (Network network = new NettyProvider().open(config);
        Port port = network.newPort();
        Port friend = network.newPort();
        ServerSocket listener = new ServerSocket(0, 8, HERE);
        Arena arena = Arena.ofConfined()) {
      port.addPeer(FRIEND, friend.address());
      friend.addPeer(0, port.address());
      Target target = new Target(config, port, friend, listener, arena.allocate(MOST_BYTES));
      target.talkToFriend();
      for (int number = first; number < first + cases; number++) {
        try {
          target.run(new Random(Seed.VALUE + number));
        } catch (Exception | Error e) {
          throw new AssertionError(
              security + ", case " + number + ", nccl4j.test.seed=" + Seed.VALUE + ": " + e, e);
        }
      }
      target.talkToFriend();
      assertNull(port.error(FRIEND));
    }
  }

  /** A port, and what is done to it. */
  private static final class Target {
    private final NetworkConfig config;
    private final Port port;
    private final Port friend;
    private final PortAddress address;
    private final ServerSocket listener;
    private final MemorySegment memory;
    private int peers = 1;
    private int friendly;
    private @Nullable String broken;

    Target(
        NetworkConfig config, Port port, Port friend, ServerSocket listener, MemorySegment memory) {
      this.config = config;
      this.port = port;
      this.friend = friend;
      this.listener = listener;
      this.memory = memory;
      address = PortAddress.of(port.address());
    }

    private void poll() {
      port.poll(this::landed);
      assertNull(broken);
    }

    private void landed(int peer, long tag, MemorySegment from, long offset, long bytes) {
      if (bytes < 0 || bytes > Port.SMALL_BYTES || offset + bytes > from.byteSize()) {
        broken = "a message of " + bytes + " B at " + offset + " of peer " + peer;
      }
      friendly += peer == FRIEND ? 1 : 0;
    }

    private void pollUntil(String what, BooleanSupplier done) {
      long start = System.nanoTime();
      while (!done.getAsBoolean()) {
        poll();
        assertTrue(System.nanoTime() - start < PATIENCE_NANOS, what + " does not come true");
      }
    }

    void talkToFriend() {
      int before = friendly;
      friend.post(0, SMALL, memory, 0, 8);
      pollUntil(
          "a word of the friend",
          () -> {
            friend.poll((peer, tag, from, offset, bytes) -> {});
            return friendly > before;
          });
    }

    void run(Random random) throws IOException {
      boolean plain = config.security() == Security.AUTH;
      int stage = random.nextInt(plain ? 5 : 2);
      switch (stage) {
        case 0 -> noise(random, random.nextInt(plain ? 400 : 40_000));
        case 1 -> {
          byte[] hello = plain ? handshake().hello(UUID.randomUUID(), address.id()) : tlsHello();
          stranger(random, alter(random, hello));
        }
        case 2 -> alteredProof(random);
        case 3 -> member(random);
        default -> listens(random);
      }
      if (random.nextInt(50) == 0) {
        talkToFriend();
      }
    }

    private Handshake handshake() {
      return new Handshake(config);
    }

    private static byte[] tlsHello() throws IOException {
      SSLEngine engine = STRANGER.engine(true);
      ByteBuffer hello = ByteBuffer.allocate(engine.getSession().getPacketBufferSize());
      engine.wrap(ByteBuffer.allocate(0), hello);
      return Arrays.copyOf(hello.array(), hello.position());
    }

    private Socket dial() throws IOException {
      Socket socket = new Socket();
      socket.setTcpNoDelay(true);
      socket.connect(address.socket());
      return socket;
    }

    private void noise(Random random, int length) throws IOException {
      byte[] noise = new byte[length];
      random.nextBytes(noise);
      stranger(random, noise);
    }

    /** Nothing that a stranger says counts. */
    private void stranger(Random random, byte[] bytes) throws IOException {
      int failures = port.failures();
      try (Socket socket = dial()) {
        say(random, socket, bytes);
      }
      poll();
      assertEquals(failures, port.failures());
    }

    /** In one piece or in two. */
    private void say(Random random, Socket socket, byte[] bytes) throws IOException {
      int cut = random.nextInt(bytes.length + 1);
      try {
        socket.getOutputStream().write(bytes, 0, cut);
        if (random.nextBoolean()) {
          poll();
        }
        socket.getOutputStream().write(bytes, cut, bytes.length - cut);
        poll();
        // Some leave with a reset, even though something may still be on its way.
        socket.setSoLinger(random.nextInt(4) == 0, 0);
      } catch (IOException e) {
        // The port has ended it.
        assertTrue(e.getMessage() != null);
      }
    }

    /** Some bytes changed, or cut off, or something added. */
    private static byte[] alter(Random random, byte[] bytes) {
      byte[] altered = Arrays.copyOf(bytes, random.nextInt(bytes.length * 5 / 4 + 1));
      for (int i = random.nextInt(4); i > 0 && altered.length > 0; i--) {
        altered[random.nextInt(altered.length)] ^= (byte) (1 << random.nextInt(8));
      }
      return altered;
    }

    private byte[] hear(Socket socket, int bytes) throws IOException {
      long start = System.nanoTime();
      while (socket.getInputStream().available() < bytes) {
        poll();
        assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "no answer of " + bytes + " B");
      }
      return socket.getInputStream().readNBytes(bytes);
    }

    private void alteredProof(Random random) throws IOException {
      int failures = port.failures();
      try (Socket socket = dial()) {
        Handshake handshake = handshake();
        socket.getOutputStream().write(handshake.hello(UUID.randomUUID(), address.id()));
        byte[] challenge = hear(socket, Handshake.CHALLENGE_BYTES);
        assertTrue(handshake.acceptChallenge(Unpooled.wrappedBuffer(challenge)));
        say(random, socket, alter(random, handshake.proof()));
      }
      poll();
      assertEquals(failures, port.failures());
    }

    private int newPeer(UUID id, InetSocketAddress at) {
      port.addPeer(peers, new PortAddress(id, at, new byte[0]).toBytes());
      return peers++;
    }

    /** It knows the secret and is expected; then it breaks the rules, or just ends. */
    private void member(Random random) throws IOException {
      UUID id = new UUID(random.nextLong(), random.nextLong());
      int peer = newPeer(id, address.socket());
      int wanted = random.nextInt(MOST_BYTES);
      long request = port.receive(peer, DATA | 3, memory, 0, wanted);
      try (Socket socket = dial()) {
        Handshake handshake = handshake();
        socket.getOutputStream().write(handshake.hello(id, address.id()));
        byte[] challenge = hear(socket, Handshake.CHALLENGE_BYTES);
        assertTrue(handshake.acceptChallenge(Unpooled.wrappedBuffer(challenge)));
        socket.getOutputStream().write(handshake.proof());
        hear(socket, Handshake.VERDICT_BYTES);
        say(random, socket, frames(random, wanted));
      }
      pollUntil("the end of peer " + peer, () -> port.error(peer) != null);
      assertTrue(port.state(request) != Port.PENDING, "its data");
    }

    private static byte[] frames(Random random, int wanted) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      for (int i = random.nextInt(4); i > 0; i--) {
        out.writeBytes(frame(SMALL | i, random.nextInt(3_000), FrameBuffer.MESSAGE));
      }
      if (random.nextInt(3) == 0) {
        out.writeBytes(frame(DATA | 3, wanted, FrameBuffer.MESSAGE));
      }
      int length = random.nextInt(2 * MOST_BYTES);
      byte[] last =
          switch (random.nextInt(6)) {
            case 0 -> frame(random.nextLong(), length, FrameBuffer.MESSAGE);
            case 1 -> frame(DATA | 3, random.nextBoolean() ? wanted : length, FrameBuffer.MESSAGE);
            case 2 -> frame(SMALL, length, random.nextInt(4));
            case 3 -> frame(random.nextLong(), length, random.nextInt());
            case 4 -> lengthAlone(random);
            default -> frame(0, 0, FrameBuffer.FAREWELL);
          };
      out.writeBytes(random.nextBoolean() ? last : alter(random, last));
      return out.toByteArray();
    }

    private static byte[] frame(long tag, int length, int flags) {
      return ByteBuffer.allocate(FrameBuffer.HEADER_BYTES + length)
          .order(ByteOrder.LITTLE_ENDIAN)
          .putLong(tag)
          .putInt(length)
          .putInt(flags)
          .array();
    }

    /** A header that promises more than follows, or less than nothing. */
    private static byte[] lengthAlone(Random random) {
      byte[] header = frame(random.nextBoolean() ? SMALL : DATA | 3, 0, FrameBuffer.MESSAGE);
      int length = random.nextBoolean() ? random.nextInt() : -random.nextInt(32);
      ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN).putInt(Long.BYTES, length);
      return header;
    }

    private void awaitEnd(Socket socket) throws IOException {
      long start = System.nanoTime();
      socket.setSoTimeout(1);
      int read = 0;
      while (read >= 0) {
        poll();
        try {
          read = socket.getInputStream().read();
        } catch (SocketTimeoutException e) {
          assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "it does not end");
        } catch (IOException e) {
          // It had not read all that was sent.
          read = -1;
        }
      }
    }

    private static boolean startsWith(byte[] bytes, byte[] start) {
      return bytes.length >= start.length
          && Arrays.equals(bytes, 0, start.length, start, 0, start.length);
    }

    /** The port dials it. */
    private void listens(Random random) throws IOException {
      UUID id = new UUID(random.nextLong(), random.nextLong());
      InetSocketAddress at = new InetSocketAddress(HERE, listener.getLocalPort());
      int peer = newPeer(id, at);
      port.post(peer, SMALL, memory, 0, random.nextInt(9_000));
      boolean takeMine = false;
      try (Socket socket = listener.accept()) {
        Handshake handshake = handshake();
        byte[] hello = hear(socket, Handshake.HELLO_BYTES);
        assertEquals(address.id(), handshake.hear(Unpooled.wrappedBuffer(hello), id));
        if (random.nextInt(3) == 0) {
          say(random, socket, alter(random, handshake.challenge()));
        } else {
          socket.getOutputStream().write(handshake.challenge());
          byte[] proof = hear(socket, Handshake.PROOF_BYTES);
          assertTrue(handshake.acceptProof(Unpooled.wrappedBuffer(proof)));
          ByteArrayOutputStream out = new ByteArrayOutputStream();
          byte[] verdict = random.nextBoolean() ? WELCOME : TAKE_MINE;
          out.writeBytes(random.nextInt(3) == 0 ? alter(random, verdict) : verdict);
          out.writeBytes(frames(random, 100));
          takeMine = startsWith(out.toByteArray(), TAKE_MINE);
          if (takeMine) {
            socket.getOutputStream().write(out.toByteArray());
            awaitEnd(socket);
          } else {
            say(random, socket, out.toByteArray());
          }
        }
      }
      // It would have to dial itself, for which it has its time.
      if (!takeMine) {
        pollUntil("the end of peer " + peer, () -> port.error(peer) != null);
      }
    }
  }
}
