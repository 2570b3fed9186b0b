package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclException;
import io.nccl4j.property.Seed;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * What arrives at a rendezvous over TCP, altered and cut off: strangers change nothing, and a
 * member that breaks the rules ends it for all, in time and with a reason.
 */
@Tag("parallel")
final class MeetingFuzzTest {
  private static final InetAddress HERE = InetAddress.getLoopbackAddress();
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(300);
  private static final int BATCH = 50;
  private static final UUID PROCESS = UUID.randomUUID();

  @Test
  void someCases() throws Exception {
    strangers(2_000);
    members(BATCH);
  }

  @Test
  @Tag("long")
  void manyCases() throws Exception {
    strangers(1_000_000);
    members(20_000);
  }

  private static NetworkId served(int port, String job) {
    NetworkId id = NetworkId.derive(new byte[20], job, new InetSocketAddress(HERE, port));
    NetworkCreator.serve(id, null, Deadline.after(LONG));
    return id;
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, HERE)) {
      return socket.getLocalPort();
    }
  }

  private static byte[] seat(int rank) {
    Joiner joiner = new Joiner(rank, 2, PROCESS, 77, -1, 0, rank == 0 ? 0 : -1);
    ByteBuffer out = ByteBuffer.allocate(Seat.MAX_BYTES);
    Seat.withoutHeap(joiner).encode(out);
    return Arrays.copyOf(out.array(), out.position());
  }

  private static FutureTask<List<byte[]>> joins(NetworkId id, int rank, Duration timeout) {
    Joiner joiner = new Joiner(rank, 2, PROCESS, 77, -1, 0, rank == 0 ? 0 : -1);
    FutureTask<List<byte[]>> joining =
        new FutureTask<>(
            () -> {
              try (NetworkMeeting meeting =
                  NetworkMeeting.connect(id, rank, Deadline.after(timeout))) {
                List<byte[]> all = meeting.join(joiner, new byte[rank]);
                meeting.agree();
                return all;
              }
            });
    Thread.ofVirtual().start(joining);
    return joining;
  }

  private static byte[] alter(Random random, byte[] bytes) {
    byte[] altered = Arrays.copyOf(bytes, random.nextInt(bytes.length * 5 / 4 + 1));
    for (int i = 1 + random.nextInt(3); i > 0 && altered.length > 0; i--) {
      altered[random.nextInt(altered.length)] ^= (byte) (1 << random.nextInt(8));
    }
    return altered;
  }

  /** The first packet of a rank, and the nonce in it. */
  private static byte[] hello(NetworkId id, byte[] nonce) {
    return Session.plain(
        Session.HELLO,
        ByteBuffer.allocate(Integer.BYTES + 2 * Long.BYTES + nonce.length)
            .putInt(NetworkId.VERSION)
            .putLong(id.name().getMostSignificantBits())
            .putLong(id.name().getLeastSignificantBits())
            .put(nonce)
            .array());
  }

  private static Session greet(NetworkId id, PacketStream packets) throws IOException {
    byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
    packets.send(hello(id, nonce));
    Session.Packet answer = packets.receive(1 << 10, Deadline.after(LONG));
    Session session = new Session(id.name(), id.secret(), false);
    session.nonces(nonce, answer.body());
    assertTrue(session.verify(answer));
    return session;
  }

  private static void strangers(int cases) throws Exception {
    NetworkId id = served(freePort(), "strangers");
    FutureTask<List<byte[]>> first = joins(id, 1, LONG.plusMillis(cases));
    for (int number = 0; number < cases; number++) {
      Random random = new Random(Seed.VALUE + number);
      try (Socket socket = new Socket(HERE, id.address().getPort());
          PacketStream packets = new PacketStream(socket)) {
        switch (random.nextInt(3)) {
          case 0 -> {
            byte[] noise = new byte[random.nextInt(300)];
            random.nextBytes(noise);
            packets.send(noise);
          }
          case 1 -> packets.send(alter(random, hello(id, new byte[Session.NONCE_BYTES])));
          default -> {
            byte[] proof = greet(id, packets).seal(Session.PROOF, new byte[0]);
            proof[random.nextInt(proof.length)] ^= (byte) (1 << random.nextInt(8));
            packets.send(Arrays.copyOf(proof, random.nextInt(proof.length + 1)));
          }
        }
      } catch (IOException e) {
        // The rendezvous has ended it.
        assertFalse(first.isDone(), "case " + number);
      }
    }
    assertFalse(first.isDone());
    assertEquals(2, joins(id, 0, LONG).get(60, TimeUnit.SECONDS).size());
    assertEquals(2, first.get(60, TimeUnit.SECONDS).size());
  }

  /** They know the secret. */
  private static void members(int cases) throws Exception {
    int port = freePort();
    byte[] types = {
      Session.HELLO,
      Session.PROOF,
      Session.JOIN,
      Session.DECLINE,
      Session.READY,
      Session.SHARE,
      Session.LATE,
      Session.FETCH,
      0,
      99
    };
    List<FutureTask<List<byte[]>>> others = new ArrayList<>();
    for (int number = 0; number < cases; number++) {
      Random random = new Random(Seed.VALUE + number);
      NetworkId id = served(port, "members " + number);
      FutureTask<List<byte[]>> other = joins(id, 0, SHORT);
      try (PacketStream packets = new PacketStream(new Socket(HERE, port))) {
        Session session = greet(id, packets);
        packets.send(session.seal(Session.PROOF, new byte[0]));
        byte[] join = seat(1);
        packets.send(session.seal(Session.JOIN, random.nextBoolean() ? join : alter(random, join)));
        byte[] body = new byte[random.nextInt(BytesTable.MAX_BYTES * 5 / 4)];
        random.nextBytes(body);
        packets.send(session.seal(types[random.nextInt(types.length)], body));
      } catch (IOException e) {
        // The rendezvous has ended it.
        assertTrue(e.getMessage() != null);
      }
      others.add(other);
      if (others.size() == BATCH) {
        int first = number + 1 - BATCH;
        for (int i = 0; i < BATCH; i++) {
          expectFailure(others.get(i), "case " + (first + i));
        }
        others.clear();
      }
    }
  }

  private static void expectFailure(FutureTask<?> rank, String which) {
    ExecutionException ended =
        assertThrows(ExecutionException.class, () -> rank.get(30, TimeUnit.SECONDS), which);
    String what = which + ": " + ended.getCause();
    assertTrue(ended.getCause() instanceof NcclException, what);
    assertFalse(what.contains("null"), what);
  }
}
