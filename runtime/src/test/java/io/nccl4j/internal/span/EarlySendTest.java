package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.internal.net.FakeNetwork;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.Port;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** What goes to other hosts before its turn, what must not, what goes first, and what polls. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class EarlySendTest {
  private static final int BYTES = 1 << 20;
  private static final int INT = Integer.BYTES;
  private static final int NUMBER = 200;
  private static final Duration PATIENCE = Duration.ofSeconds(20);
  private static final long PATIENCE_NANOS = PATIENCE.toNanos();

  /** After all was sent: more would be noticed. */
  private static final int FURTHER_QUERIES = 20;

  /** A network in memory that knows what its first port has sent, and what came there. */
  private static final class Watched implements Network {
    /** Among the kinds of what was sent: all before it has left. */
    static final int FLUSH = -1;

    private final Network network = new FakeNetwork(1, true);
    private final List<Integer> sent = new ArrayList<>();
    private final Set<Integer> landed = ConcurrentHashMap.newKeySet();
    private final Thread maker = Thread.currentThread();
    private int ports;

    /** By the thread that made this. */
    private int polls;

    /** The kinds of what was sent so far. */
    synchronized List<Integer> sent() {
      return List.copyOf(sent);
    }

    private synchronized void sends(int kind) {
      // A port is polled again and again.
      if (kind != FLUSH || sent.isEmpty() || sent.getLast() != FLUSH) {
        sent.add(kind);
      }
    }

    int announced() {
      return Collections.frequency(sent(), Wire.ANNOUNCEMENT);
    }

    @Override
    public String name() {
      return network.name();
    }

    @Override
    public InetAddress address() {
      return network.address();
    }

    @Override
    public Port newPort() {
      Port port = network.newPort();
      return ports++ > 0
          ? port
          : (Port)
              Proxy.newProxyInstance(
                  Port.class.getClassLoader(),
                  new Class<?>[] {Port.class},
                  (proxy, method, arguments) -> call(port, method, arguments));
    }

    private Object call(Port port, Method method, Object[] arguments) throws Throwable {
      Object[] passed = arguments;
      switch (method.getName()) {
        case "post", "send" -> sends(kind((long) arguments[1]));
        case "flush" -> sends(FLUSH);
        case "poll" -> {
          sends(FLUSH);
          Port.Landing landing = (Port.Landing) arguments[0];
          Port.Landing watched =
              (peer, tag, memory, offset, bytes) -> {
                landed.add(kind(tag));
                landing.landed(peer, tag, memory, offset, bytes);
              };
          polls += Thread.currentThread() == maker ? 1 : 0;
          passed = arguments.clone();
          passed[0] = watched;
        }
        default -> {}
      }
      try {
        return method.invoke(port, passed);
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
    }

    private static int kind(long tag) {
      return (int) (tag >>> Port.KIND_SHIFT);
    }

    @Override
    public void close() {
      network.close();
    }
  }

  /** Ranks on these hosts, each with a stream and two buffers. */
  private static final class Ranks implements AutoCloseable {
    private final Watched network = new Watched();
    private final Communicators communicators;
    private final List<Stream> streams = new ArrayList<>();
    private final List<DeviceBuffer> in = new ArrayList<>();
    private final List<DeviceBuffer> out = new ArrayList<>();

    Ranks(int... hostOf) {
      communicators = SpanRanks.join(hostOf, CommunicatorConfig.builder().build(), network);
      for (Communicator communicator : communicators) {
        streams.add(communicator.device().newStream());
        in.add(communicator.device().allocate(BYTES));
        out.add(communicator.device().allocate(BYTES));
      }
    }

    void sum(int rank, DeviceBuffer from, DeviceBuffer to, int count) {
      communicators
          .get(rank)
          .allReduce(from, to, count, DataType.INT32, ReduceOp.SUM, streams.get(rank));
    }

    /** The {@code i}-th of some sums that have nothing in common but the input. */
    void sum(int rank, int i) {
      sum(rank, in.get(rank), out.get(rank).slice((long) i * INT, INT), 1);
    }

    /** A rank's part of some broadcasts by rank 0, to its end. */
    void broadcast(int rank, int number) {
      DeviceBuffer buffer = in.get(rank);
      for (int i = 0; i < number; i++) {
        communicators.get(rank).broadcast(buffer, buffer, 1, DataType.INT32, 0, streams.get(rank));
      }
      streams.get(rank).synchronize();
    }

    /** A rank's part of some small messages from rank 0 to rank 1, to its end. */
    void pass(int rank, int number) {
      queueMessages(rank, number);
      streams.get(rank).synchronize();
    }

    /** The same in a group. */
    void passInGroup(int rank, int number) {
      try (Group group = Group.start()) {
        queueMessages(rank, number);
        group.launch();
      }
      streams.get(rank).synchronize();
    }

    private void queueMessages(int rank, int number) {
      Communicator own = communicators.get(rank);
      for (int i = 0; i < number; i++) {
        if (rank == 0) {
          own.send(in.get(rank), INT, DataType.INT8, 1, streams.get(rank));
        } else {
          own.recv(out.get(rank), INT, DataType.INT8, 0, streams.get(rank));
        }
      }
    }

    /** Each rank sends to the next one, and every third time what it has just received. */
    void ring(int rank, int number) {
      int nranks = streams.size();
      Communicator own = communicators.get(rank);
      for (int i = 0; i < number; i++) {
        long at = (long) i * INT;
        DeviceBuffer last =
            i % 3 == 2 ? out.get(rank).slice(at - INT, INT) : in.get(rank).slice(at, INT);
        try (Group group = Group.start()) {
          own.send(last, 1, DataType.INT32, (rank + 1) % nranks, streams.get(rank));
          DeviceBuffer to = out.get(rank).slice(at, INT);
          own.recv(to, 1, DataType.INT32, (rank - 1 + nranks) % nranks, streams.get(rank));
          group.launch();
        }
      }
    }

    /** A large message to the other one of two ranks, and one from it. */
    void exchange(int rank) {
      exchange(rank, in.get(rank), out.get(rank), BYTES / INT);
    }

    void exchange(int rank, DeviceBuffer from, DeviceBuffer to, int count) {
      Communicator own = communicators.get(rank);
      try (Group group = Group.start()) {
        own.send(from, count, DataType.INT32, 1 - rank, streams.get(rank));
        own.recv(to, count, DataType.INT32, 1 - rank, streams.get(rank));
        group.launch();
      }
    }

    @Override
    public void close() {
      communicators.forEach(Communicator::abort);
      communicators.forEach(Communicator::close);
      streams.forEach(Stream::close);
      in.forEach(DeviceBuffer::close);
      out.forEach(DeviceBuffer::close);
      network.close();
    }
  }

  /**
   * What rank 0 sends, in announcements, when it has called this and rank 1 does nothing. The
   * daemon of the network and the ticker may have the port or the stream for a while, so it takes
   * time.
   */
  private static void assertSent(int expected, Consumer<Ranks> calls, int... hostOf) {
    try (Ranks ranks = new Ranks(hostOf)) {
      int before = ranks.network.announced();
      calls.accept(ranks);
      long start = System.nanoTime();
      int further = 0;
      while (further < FURTHER_QUERIES && System.nanoTime() - start < PATIENCE_NANOS) {
        ranks.streams.getFirst().query();
        LockSupport.parkNanos(1_000_000);
        further += ranks.network.announced() - before >= expected ? 1 : 0;
      }
      assertEquals(expected, ranks.network.announced() - before);
    }
  }

  private static Consumer<Ranks> sums(int number) {
    return ranks -> {
      for (int i = 0; i < number; i++) {
        ranks.sum(0, i);
      }
    };
  }

  @Test
  void independentOperationsAreSent() {
    assertSent(6, sums(6), 0, 1);
    assertSent(12, sums(6), 0, 1, 2);
  }

  /** Rank 0 has been asked already: what it sends takes long, and rank 1 would have to wait. */
  @Test
  void aGroupAsksBeforeItSends() {
    try (Ranks ranks = new Ranks(0, 1)) {
      ranks.exchange(1);
      long start = System.nanoTime();
      while (!ranks.network.landed.contains(Wire.REQUEST)) {
        assertTrue(System.nanoTime() - start < PATIENCE_NANOS, "nobody asks");
        ranks.streams.get(1).query();
        LockSupport.parkNanos(1_000_000);
      }
      ranks.exchange(0);
      ranks.streams.get(0).synchronize();
      List<Integer> sent = ranks.network.sent();
      assertTrue(sent.contains(Port.DATA), sent::toString);
      assertTrue(sent.indexOf(Wire.REQUEST) >= 0, sent::toString);
      assertTrue(sent.indexOf(Wire.REQUEST) < sent.indexOf(Port.DATA), sent::toString);
    }
  }

  /** A poll costs a system call; the daemon takes what comes meanwhile. */
  @Test
  void callsRarelyPoll() {
    int number = 100;
    try (Ranks ranks = new Ranks(0, 1)) {
      int before = ranks.network.polls;
      for (int i = 0; i < number; i++) {
        ranks.exchange(0);
      }
      int polls = ranks.network.polls - before;
      assertTrue(polls < number, () -> polls + " polls in " + number + " groups");
    }
  }

  @Test
  void broadcastsOfARootLeaveTogether() {
    assertTogether(Ranks::broadcast);
  }

  @Test
  void messagesLeaveTogether() {
    assertTogether(Ranks::pass);
    assertTogether(Ranks::passInGroup);
  }

  /** A rank's part of some operations. */
  private interface Part {
    void run(Ranks ranks, int rank, int number);
  }

  /**
   * What rank 0 sends waits for nobody. The ticker may take a step of its stream in between, but
   * not always.
   */
  private static void assertTogether(Part part) {
    int number = 6;
    try (Ranks ranks = new Ranks(0, 1)) {
      for (int attempt = 0; attempt < 20; attempt++) {
        int before = ranks.network.sent().size();
        part.run(ranks, 0, number);
        List<Integer> sent = ranks.network.sent();
        sent = sent.subList(before, sent.size());
        int first = sent.indexOf(Wire.ANNOUNCEMENT);
        int end = sent.lastIndexOf(Wire.ANNOUNCEMENT) + 1;
        List<Integer> together = sent.subList(first, end);
        part.run(ranks, 1, number);
        if (!together.contains(Watched.FLUSH)) {
          assertEquals(number, together.size(), sent::toString);
          assertTrue(sent.subList(end, sent.size()).contains(Watched.FLUSH), sent::toString);
          return;
        }
      }
      fail("each left alone: " + ranks.network.sent());
    }
  }

  @Test
  void noMoreThanThePeerHasRoomFor() {
    assertSent(Wire.SLOTS, sums(3 * Wire.SLOTS), 0, 1);
  }

  @Test
  void whatReadsAnEarlierResultWaits() {
    assertSent(
        2,
        ranks -> {
          DeviceBuffer in = ranks.in.getFirst();
          DeviceBuffer out = ranks.out.getFirst();
          ranks.sum(0, in, out.slice(0, 8), 2);
          ranks.sum(0, out.slice(8, 8), out.slice(16, 8), 2);
          ranks.sum(0, out.slice(4, 8), out.slice(24, 8), 2);
          ranks.sum(0, in, out.slice(32, 8), 2);
        },
        0,
        1);
  }

  @Test
  void otherKindsAreNotOvertaken() {
    List<Consumer<Ranks>> kinds =
        List.of(
            ranks -> ranks.communicators.get(0).barrier(ranks.streams.getFirst()),
            ranks -> ranks.sum(0, ranks.in.getFirst(), ranks.out.getFirst(), 1025),
            ranks ->
                ranks
                    .communicators
                    .get(0)
                    .allReduce(
                        ranks.in.getFirst(),
                        ranks.out.getFirst(),
                        1,
                        DataType.INT32,
                        ReduceOp.preMulSum(3L),
                        ranks.streams.getFirst()));
    for (Consumer<Ranks> kind : kinds) {
      assertSent(1, kind, 0, 1);
      assertSent(
          1,
          ranks -> {
            kind.accept(ranks);
            ranks.sum(0, 1);
          },
          0,
          1);
    }
  }

  @Test
  void otherOperationsAreSentToo() {
    assertSent(
        6,
        ranks -> {
          Communicator communicator = ranks.communicators.get(0);
          Stream stream = ranks.streams.getFirst();
          DeviceBuffer in = ranks.in.getFirst();
          DeviceBuffer out = ranks.out.getFirst();
          for (int i = 0; i < 2; i++) {
            communicator.allGather(in, out, 5, DataType.INT8, stream);
            communicator.reduceScatter(in, out, 3, DataType.INT64, ReduceOp.MAX, stream);
            communicator.allToAll(in, out, 7, DataType.FLOAT16, stream);
          }
        },
        0,
        1);
  }

  /** What a host sends is what all of its ranks have: they may not have come to it yet. */
  @Test
  void hostsWithSeveralRanksWait() {
    assertSent(0, sums(4), 0, 0, 1);
    assertSent(4, sums(4), 0, 1, 1);
  }

  @Test
  void hostsWithSeveralRanksSendWhatAllHaveShown() {
    Consumer<Ranks> both =
        ranks -> {
          for (int rank = 0; rank < 2; rank++) {
            for (int i = 0; i < 3; i++) {
              ranks.sum(rank, i);
            }
            ranks.streams.get(rank).query();
          }
        };
    assertSent(3, both, 0, 0, 1);
    assertSent(3, both, 0, 0, 1, 1);
    assertSent(6, both, 0, 0, 1, 2);
  }

  /** Two inputs to gather, two inputs together of each of two blocks, and a block for each rank. */
  @Test
  void hostsWithSeveralRanksSendOtherOperationsToo() {
    assertSent(
        2 + 2 + 2,
        ranks -> {
          for (int rank = 0; rank < 2; rank++) {
            Communicator communicator = ranks.communicators.get(rank);
            Stream stream = ranks.streams.get(rank);
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            communicator.allGather(in, out, 5, DataType.INT8, stream);
            communicator.reduceScatter(in, out, 3, DataType.INT64, ReduceOp.MAX, stream);
            communicator.allToAll(in, out, 7, DataType.FLOAT16, stream);
            stream.query();
          }
        },
        0,
        0,
        1,
        1);
  }

  /** Rank 0's part of groups in which each of two ranks sends to the other one. */
  private static Consumer<Ranks> exchanges(int number) {
    return ranks -> {
      for (int i = 0; i < number; i++) {
        ranks.exchange(0, ranks.in.getFirst(), ranks.out.getFirst().slice((long) i * INT, INT), 1);
      }
    };
  }

  @Test
  void messagesAreSentWhileOneIsAwaited() {
    assertSent(6, exchanges(6), 0, 1);
    assertSent(Wire.SLOTS, exchanges(3 * Wire.SLOTS), 0, 1);
    // What is awaited may come from the same host.
    assertSent(2, ranks -> ranks.ring(0, 3), 0, 1, 1, 0);
  }

  @Test
  void messagesThatReadAReceivedOneWait() {
    assertSent(
        2,
        ranks -> {
          exchanges(2).accept(ranks);
          DeviceBuffer out = ranks.out.getFirst();
          ranks.exchange(0, out.slice(INT, INT), out.slice(2 * INT, INT), 1);
          ranks.exchange(0, ranks.in.getFirst(), out.slice(3 * INT, INT), 1);
        },
        0,
        1);
  }

  @Test
  void messagesOvertakeOnlyMessages() {
    assertSent(
        1,
        ranks -> {
          exchanges(1).accept(ranks);
          ranks.sum(0, 1);
          exchanges(1).accept(ranks);
        },
        0,
        1);
  }

  @ParameterizedTest
  @MethodSource("layouts")
  void manyMessagesAreRightWhoeverComesLate(List<Integer> hostOf) {
    int nranks = hostOf.size();
    for (int late = 0; late < nranks; late++) {
      try (Ranks ranks = new Ranks(hostOf.stream().mapToInt(i -> i).toArray())) {
        for (int rank = 0; rank < nranks; rank++) {
          int scale = rank + 1;
          ranks.in.get(rank).copyFrom(IntStream.range(0, NUMBER).map(i -> scale * i).toArray());
        }
        for (int i = 0; i < nranks; i++) {
          int rank = (late + 1 + i) % nranks;
          ranks.ring(rank, NUMBER);
          ranks.streams.get(rank).query();
        }
        ranks.streams.forEach(Stream::synchronize);
        for (int rank = 0; rank < nranks; rank++) {
          int[] got = new int[NUMBER];
          ranks.out.get(rank).copyTo(got);
          int to = rank;
          int[] wanted = IntStream.range(0, NUMBER).map(i -> passed(to, i, nranks)).toArray();
          assertArrayEquals(wanted, got, "rank " + rank + ", late is " + late);
        }
      }
    }
  }

  /** What a rank receives as the {@code i}-th message. */
  private static int passed(int rank, int i, int nranks) {
    int from = (rank - 1 + nranks) % nranks;
    return i % 3 == 2 ? passed(from, i - 1, nranks) : (from + 1) * i;
  }

  /** Operations of several kinds, some of which read the result of the one before. */
  @ParameterizedTest
  @MethodSource("layouts")
  void manyAreRightWhoeverComesLate(List<Integer> hostOf) {
    assertManyAreRight(hostOf, 1, NUMBER);
    assertManyAreRight(hostOf, 1024, 40);
  }

  private static void assertManyAreRight(List<Integer> hostOf, int count, int number) {
    int nranks = hostOf.size();
    int each = nranks * count;
    for (int late = 0; late < nranks; late++) {
      try (Ranks ranks = new Ranks(hostOf.stream().mapToInt(i -> i).toArray())) {
        int[][] in = new int[nranks][number * each];
        for (int rank = 0; rank < nranks; rank++) {
          for (int i = 0; i < number * each; i++) {
            in[rank][i] = (rank + 1) * i;
          }
          ranks.in.get(rank).copyFrom(in[rank]);
        }
        for (int i = 0; i < nranks; i++) {
          int rank = (late + 1 + i) % nranks;
          for (int call = 0; call < number; call++) {
            callOne(ranks, rank, call, count);
          }
          ranks.streams.get(rank).query();
        }
        ranks.streams.forEach(Stream::synchronize);
        for (int rank = 0; rank < nranks; rank++) {
          int[] got = new int[number * each];
          ranks.out.get(rank).copyTo(got);
          int[] wanted = new int[number * each];
          for (int call = 0; call < number; call++) {
            putResult(in, rank, call, count, wanted);
          }
          assertArrayEquals(wanted, got, "rank " + rank + ", late is " + late);
        }
      }
    }
  }

  static List<List<Integer>> layouts() {
    return List.of(
        List.of(0, 1),
        List.of(0, 0, 1, 1),
        List.of(0, 1, 0),
        List.of(0, 0, 1),
        List.of(0, 1, 1, 2),
        List.of(0, 0, 0, 1, 1, 1));
  }

  private static void callOne(Ranks ranks, int rank, int call, int count) {
    Communicator own = ranks.communicators.get(rank);
    Stream stream = ranks.streams.get(rank);
    long bytes = (long) ranks.streams.size() * count * INT;
    DeviceBuffer out = ranks.out.get(rank);
    DeviceBuffer from = ranks.in.get(rank).slice(call * bytes, bytes);
    DeviceBuffer to = out.slice(call * bytes, bytes);
    switch (call % 5) {
      case 0 -> own.allReduce(from, to, count, DataType.INT32, ReduceOp.SUM, stream);
      case 1 -> own.allGather(from, to, count, DataType.INT32, stream);
      case 2 -> {
        DeviceBuffer before = out.slice((call - 1) * bytes, (long) count * INT);
        own.allGather(before, to, count, DataType.INT32, stream);
      }
      case 3 -> own.allToAll(from, to, count, DataType.INT32, stream);
      default -> own.reduceScatter(from, to, count, DataType.INT32, ReduceOp.SUM, stream);
    }
  }

  private static void putResult(int[][] in, int rank, int call, int count, int[] results) {
    int nranks = in.length;
    int start = call * nranks * count;
    for (int k = 0; k < nranks; k++) {
      for (int i = 0; i < count; i++) {
        int at = start + i;
        int to = at + k * count;
        switch (call % 5) {
          case 0 -> results[at] += in[k][at];
          case 1 -> results[to] = in[k][at];
          // All have the same.
          case 2 -> results[to] = results[at - nranks * count];
          case 3 -> results[to] = in[k][at + rank * count];
          default -> results[at] += in[k][at + rank * count];
        }
      }
    }
  }

  /**
   * The peer hears of the difference before it comes to it: what lies before is done all the same.
   */
  @ParameterizedTest
  @CsvSource({"2", "4"})
  void whatLiesBeforeAContradictionIsDone(int nranks) throws InterruptedException {
    int[] hostOf = IntStream.range(0, nranks).map(rank -> rank / (nranks / 2)).toArray();
    int sum = nranks * (nranks + 1) / 2;
    try (Ranks ranks = new Ranks(hostOf)) {
      for (int rank = 0; rank < nranks; rank++) {
        ranks.in.get(rank).copyFrom(new int[] {rank + 1});
        for (int i = 0; i < 5; i++) {
          ranks.sum(rank, i);
        }
        DeviceBuffer to = ranks.out.get(rank).slice(64, 64);
        ranks.sum(rank, ranks.in.get(rank), to, 1 + hostOf[rank]);
      }
      for (int rank = 0; rank < nranks; rank++) {
        Stream stream = ranks.streams.get(rank);
        MismatchException e = assertThrows(MismatchException.class, stream::synchronize);
        assertTrue(e.getMessage().contains("#6"), e::getMessage);
      }
      for (int rank = 0; rank < nranks; rank++) {
        assertTrue(ranks.out.get(rank).awaitQuiet(PATIENCE));
        int[] got = new int[5];
        ranks.out.get(rank).copyTo(got);
        assertArrayEquals(new int[] {sum, sum, sum, sum, sum}, got, "rank " + rank);
      }
    }
  }
}
