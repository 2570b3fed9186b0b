package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What every network's ports must do. One subclass for each network. */
abstract class PortContract {
  private static final long SMALL = 1L << Port.KIND_SHIFT;
  private static final long DATA = (long) Port.DATA << Port.KIND_SHIFT;
  private static final long PATIENCE_NANOS = 20_000_000_000L;

  private final List<Network> networks = new ArrayList<>();
  private final List<Port> ports = new ArrayList<>();
  private final Arena arena = Arena.ofShared();

  /** A small message that has come. */
  private record Small(int peer, long tag, byte[] bytes) {}

  /** A network of its own, of the same job. */
  abstract Network open();

  /** Polls what moves all ports beside the polls of their owners. */
  void tick() {}

  @AfterEach
  void closeAll() {
    ports.forEach(Port::close);
    networks.forEach(Network::close);
    arena.close();
  }

  /** Ports that know each other by their indices. */
  private Port[] ports(int count) {
    Network network = open();
    networks.add(network);
    Port[] made = new Port[count];
    for (int i = 0; i < count; i++) {
      made[i] = network.newPort();
      ports.add(made[i]);
      assertTrue(made[i].address().length <= Port.ADDRESS_BYTES);
    }
    for (int i = 0; i < count; i++) {
      for (int k = 0; k < count; k++) {
        if (i != k) {
          made[i].addPeer(k, made[k].address());
        }
      }
    }
    return made;
  }

  private MemorySegment random(long bytes, long seed) {
    byte[] content = new byte[(int) bytes];
    new Random(seed).nextBytes(content);
    MemorySegment memory = arena.allocate(Math.max(1, bytes));
    MemorySegment.copy(content, 0, memory, ValueLayout.JAVA_BYTE, 0, content.length);
    return memory;
  }

  private static byte[] bytes(MemorySegment memory, long offset, long length) {
    return memory.asSlice(offset, length).toArray(ValueLayout.JAVA_BYTE);
  }

  private static Port.Landing into(List<Small> list) {
    return (peer, tag, memory, offset, length) ->
        list.add(new Small(peer, tag, bytes(memory, offset, length)));
  }

  private static Port.Landing nothing() {
    return (peer, tag, memory, offset, length) -> {
      throw new AssertionError("a small message of peer " + peer);
    };
  }

  /** Polls all ports until something is so. */
  private void pollUntil(String what, Port.Landing landing, BooleanSupplier done, Port... polled) {
    long start = System.nanoTime();
    while (!done.getAsBoolean()) {
      tick();
      for (Port port : polled) {
        port.poll(landing);
      }
      assertTrue(
          System.nanoTime() - start < PATIENCE_NANOS,
          () -> what + " did not come true; errors " + errors(polled));
    }
  }

  private static String errors(Port[] polled) {
    List<String> errors = new ArrayList<>();
    for (Port port : polled) {
      errors.add(port + ": " + port.failures());
    }
    return errors.toString();
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 8, 505, 8192, 8193, Port.SMALL_BYTES})
  void smallMessagesArriveInOrder(int size) {
    Port[] two = ports(2);
    List<Small> arrived = new ArrayList<>();
    int count = 50;
    for (int i = 0; i < count; i++) {
      MemorySegment memory = random(size, i);
      // In two parts, which may be used again at once.
      int head = i % 2 == 0 ? size : size / 3;
      two[0].post(1, SMALL | i, memory, 0, head, memory, head, size - head);
      memory.fill((byte) 0);
    }
    pollUntil("the last one", into(arrived), () -> arrived.size() == count, two);
    for (int i = 0; i < count; i++) {
      Small small = arrived.get(i);
      assertEquals(0, small.peer);
      assertEquals(SMALL | i, small.tag);
      assertArrayEquals(bytes(random(size, i), 0, size), small.bytes);
    }
  }

  /** Looks once at each request that is not done; done ones go. */
  private static boolean allDone(Port port, List<Long> requests) {
    requests.removeIf(
        request -> {
          int state = port.state(request);
          assertTrue(state != Port.FAILED, "failed");
          return state == Port.COMPLETE;
        });
    return requests.isEmpty();
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 4096, 8193, 128 << 10, (3 << 20) + 5})
  void dataGoesWhereItIsWanted(int size) {
    Port[] two = ports(2);
    int each = 5;
    int margin = 16;
    MemorySegment[] targets = new MemorySegment[2 * each];
    List<List<Long>> requests = List.of(new ArrayList<>(), new ArrayList<>());
    for (int from = 0; from < 2; from++) {
      for (int i = 0; i < each; i++) {
        MemorySegment target = arena.allocate(size + 2L * margin);
        targets[from * each + i] = target;
        // Two tags, each in order.
        requests.get(1 - from).add(two[1 - from].receive(from, DATA | i % 2, target, margin, size));
      }
    }
    for (int from = 0; from < 2; from++) {
      for (int i = 0; i < each; i++) {
        MemorySegment source = random(size + 3L, from * each + i);
        requests.get(from).add(two[from].send(1 - from, DATA | i % 2, source, 3, size));
      }
    }
    pollUntil(
        "all",
        nothing(),
        () -> allDone(two[0], requests.get(0)) & allDone(two[1], requests.get(1)),
        two);
    for (int i = 0; i < 2 * each; i++) {
      byte[] expected = bytes(random(size + 3L, i), 3, size);
      assertArrayEquals(expected, bytes(targets[i], margin, size), "message " + i);
      assertArrayEquals(new byte[margin], bytes(targets[i], 0, margin), "before it");
      assertArrayEquals(new byte[margin], bytes(targets[i], margin + size, margin), "behind it");
    }
  }

  @Test
  void allMayTalkToAllAtOnce() {
    int count = 7;
    Port[] all = ports(count);
    List<Small> arrived = new ArrayList<>();
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
          if (i != k) {
            long tag = SMALL | (long) round << 8 | (long) i << 4 | k;
            all[i].post(k, tag, random(8, tag), 0, 8);
          }
        }
      }
    }
    int expected = 3 * count * (count - 1);
    pollUntil("all", into(arrived), () -> arrived.size() == expected, all);
    for (Small small : arrived) {
      assertEquals((int) (small.tag >>> 4 & 15), small.peer);
      assertArrayEquals(bytes(random(8, small.tag), 0, 8), small.bytes);
    }
    assertEquals(expected, arrived.stream().map(Small::tag).distinct().count());
  }

  @Test
  void smallMessagesPassDataThatIsNotTaken() {
    Port[] three = ports(3);
    int size = 64 << 20;
    MemorySegment large = arena.allocate(size);
    MemorySegment target = arena.allocate(size);
    long received = three[1].receive(0, DATA, target, 0, size);
    long sent = three[0].send(1, DATA, large, 0, size);
    List<Small> arrived = new ArrayList<>();
    three[0].post(2, SMALL, large, 0, 8);
    // Port 1 does not poll: what goes to port 2 arrives all the same.
    pollUntil("the small one", into(arrived), () -> arrived.size() == 1, three[0], three[2]);
    assertEquals(0, three[1].failures());
    boolean[] done = new boolean[2];
    pollUntil(
        "the large one",
        nothing(),
        () ->
            (done[0] |= !done[0] && three[0].state(sent) == Port.COMPLETE)
                & (done[1] |= !done[1] && three[1].state(received) == Port.COMPLETE),
        three);
  }

  @Test
  void bothEndsKnowThatTheyAreConnected() {
    Port[] three = ports(3);
    assertFalse(three[0].isConnected(1));
    List<Small> arrived = new ArrayList<>();
    three[0].post(1, SMALL, random(8, 1), 0, 8);
    pollUntil("a connection", into(arrived), () -> arrived.size() == 1, three);
    assertTrue(three[0].isConnected(1));
    assertTrue(three[1].isConnected(0));
    assertFalse(three[2].isConnected(0));
    three[1].close();
    pollUntil("the farewell", nothing(), () -> three[0].error(1) != null, three[0]);
    assertFalse(three[0].isConnected(1));
  }

  @Test
  void whoClosesHasNotFailed() {
    Port[] two = ports(2);
    List<Small> arrived = new ArrayList<>();
    two[0].post(1, SMALL, random(8, 1), 0, 8);
    pollUntil("a connection", into(arrived), () -> arrived.size() == 1, two);
    long never = two[1].receive(0, DATA, arena.allocate(100), 0, 100);
    two[0].close();
    pollUntil("the farewell", nothing(), () -> two[1].error(0) != null, two[1]);
    assertEquals("it has closed its port", two[1].error(0));
    assertEquals(0, two[1].failures());
    assertEquals(Port.FAILED, two[1].state(never));
    two[1].post(0, SMALL, random(8, 2), 0, 8);
    assertEquals(Port.FAILED, two[1].state(two[1].send(0, DATA, random(8, 2), 0, 8)));
    assertThrows(InvalidUsageException.class, () -> two[0].poll(nothing()));
    two[0].close();
  }

  @Test
  void whoDiesHasFailed() {
    Port[] three = ports(3);
    List<Small> arrived = new ArrayList<>();
    three[1].post(0, SMALL, random(8, 1), 0, 8);
    three[1].post(2, SMALL, random(8, 1), 0, 8);
    pollUntil("connections", into(arrived), () -> arrived.size() == 2, three);
    long never = three[1].receive(0, DATA, arena.allocate(100), 0, 100);
    three[0].abort();
    pollUntil("the failure", nothing(), () -> three[1].failures() == 1, three[1], three[2]);
    assertTrue(three[1].error(0).contains("connection"), three[1].error(0));
    assertEquals(Port.FAILED, three[1].state(never));
    assertNull(three[1].error(2));
    assertEquals(0, three[2].failures());
    // The others go on.
    three[2].post(1, SMALL, random(8, 3), 0, 8);
    pollUntil("life", into(arrived), () -> arrived.size() == 3, three[1], three[2]);
  }

  @Test
  void dataThatNobodyWantsFailsItsSender() {
    Port[] two = ports(2);
    two[0].send(1, DATA | 5, random(100, 1), 0, 100);
    pollUntil("the failure", nothing(), () -> two[1].failures() == 1, two);
    assertTrue(two[1].error(0).contains("which nothing waits for"), two[1].error(0));
  }

  @Test
  void dataOfAnotherLengthFailsItsSender() {
    Port[] two = ports(2);
    long wanted = two[1].receive(0, DATA | 5, arena.allocate(100), 0, 100);
    two[0].send(1, DATA | 5, random(101, 1), 0, 101);
    pollUntil("the failure", nothing(), () -> two[1].failures() == 1, two);
    assertTrue(two[1].error(0).contains("101"), two[1].error(0));
    assertEquals(Port.FAILED, two[1].state(wanted));
  }

  @Test
  void misuseIsRefused() {
    Port[] two = ports(2);
    MemorySegment memory = arena.allocate(Port.SMALL_BYTES + 1);
    assertThrows(InvalidArgumentException.class, () -> two[0].post(2, SMALL, memory, 0, 8));
    assertThrows(InvalidArgumentException.class, () -> two[0].error(-1));
    assertThrows(
        IllegalArgumentException.class,
        () -> two[0].post(1, SMALL, memory, 0, Port.SMALL_BYTES + 1));
    assertThrows(IllegalArgumentException.class, () -> two[0].receive(1, SMALL, memory, 0, 8));
    assertThrows(IllegalArgumentException.class, () -> two[0].send(1, SMALL, memory, 0, 8));
    assertThrows(IllegalArgumentException.class, () -> two[0].post(1, DATA, memory, 0, 8));
    assertThrows(
        IllegalArgumentException.class, () -> two[0].addPeer(1, two[1].address()), "twice");
    assertThrows(InvalidArgumentException.class, () -> two[0].addPeer(9, new byte[3]));
    long request = two[0].receive(1, DATA, memory, 0, 8);
    assertEquals(Port.PENDING, two[0].state(request));
    two[1].send(0, DATA, memory, 0, 8);
    boolean[] done = new boolean[1];
    pollUntil("done", nothing(), () -> done[0] = two[0].state(request) == Port.COMPLETE, two);
    assertThrows(IllegalArgumentException.class, () -> two[0].state(request), "given back");
  }

  @Test
  void othersAreHeardWhileOneIsAwaited() {
    Port[] three = ports(3);
    List<Small> arrived = new ArrayList<>();
    MemorySegment memory = random(8, 1);
    for (int i = 0; i < 20; i++) {
      int sender = 1 + i % 2;
      three[sender].post(0, SMALL | i, memory, 0, 8);
      int number = i + 1;
      awaitFrom(1, () -> arrived.size() == number, into(arrived), three);
      assertEquals(sender, arrived.getLast().peer);
    }
  }

  /** Port 0 awaits one peer until something is so. */
  private void awaitFrom(int peer, BooleanSupplier done, Port.Landing landing, Port... polled) {
    pollUntil(
        "what port 0 hears",
        nothing(),
        () -> {
          polled[0].poll(landing, peer);
          return done.getAsBoolean();
        },
        polled[1],
        polled[2]);
  }

  /** Two threads pass each of two ports on, all the time, and count what comes. */
  @Test
  void ownersChange() throws Exception {
    Port[] two = ports(2);
    int rounds = 3000;
    int[] landed = new int[2];
    MemorySegment memory = arena.allocate(Long.BYTES);
    PortCell[] cells = new PortCell[2];
    for (int i = 0; i < 2; i++) {
      int me = i;
      cells[i] =
          new PortCell(
              two[i],
              (peer, tag, from, offset, bytes) -> {
                assertEquals(landed[me], (int) tag & 0xffffff, "in order");
                assertEquals(tag, from.get(ValueLayout.JAVA_LONG_UNALIGNED, offset));
                landed[me]++;
                // Ping-pong: port 0 sends the next one when the last one has come back.
                int next = landed[me];
                if (me == 1 || next < rounds) {
                  int number = me == 1 ? next - 1 : next;
                  memory.set(ValueLayout.JAVA_LONG, 0, SMALL | number);
                  two[me].post(1 - me, SMALL | number, memory, 0, Long.BYTES);
                }
              });
    }
    memory.set(ValueLayout.JAVA_LONG, 0, SMALL);
    two[0].post(1, SMALL, memory, 0, Long.BYTES);
    int[] owned = new int[2];
    CyclicBarrier together = new CyclicBarrier(2);
    Callable<Void> poller =
        () -> {
          int mine = Thread.currentThread().getName().endsWith("1") ? 0 : 1;
          int ignored = together.await();
          long start = System.nanoTime();
          while (volatileRead(landed) < rounds) {
            for (PortCell cell : cells) {
              if (cell.tryOwn()) {
                try {
                  tick();
                  cell.poll();
                  owned[mine]++;
                } finally {
                  cell.disown();
                }
              }
              Thread.onSpinWait();
            }
            if (owned[mine] % 64 == 0) {
              // Where processors are busy, one thread could do it all in its share of time.
              Thread.yield();
            }
            assertTrue(System.nanoTime() - start < PATIENCE_NANOS, Arrays.toString(landed));
          }
          return null;
        };
    try (ExecutorService threads = Executors.newFixedThreadPool(2)) {
      for (Future<Void> future : List.of(threads.submit(poller), threads.submit(poller))) {
        future.get();
      }
    }
    assertEquals(rounds, landed[0]);
    assertEquals(rounds, landed[1]);
    assertTrue(owned[0] > 0 && owned[1] > 0, Arrays.toString(owned));
  }

  private static int volatileRead(int[] landed) {
    VarHandle.fullFence();
    return landed[0];
  }
}
