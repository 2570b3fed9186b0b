package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Ranks that contradict each other learn it, all of them, with both sides named; nobody waits for a
 * deadline.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class MismatchTest {
  /** Later operations by which a rank that needed nothing of the others must have learnt it. */
  private static final int LATER = 16;

  private static final long MAX_SECONDS = 5;

  /** One operation of a rank. */
  private interface Call {
    void on(Communicator communicator, DeviceBuffer in, DeviceBuffer out, Stream stream);
  }

  /**
   * A contradiction.
   *
   * @param nranks number of ranks, of which the last one deviates
   * @param words what a message must contain, each a regular expression
   */
  private record Row(String name, int nranks, List<String> words, Call usual, Call deviating) {
    @Override
    public String toString() {
      return name + ", " + nranks + " ranks";
    }
  }

  private static final class Table {
    final List<Row> rows = new ArrayList<>();

    void add(String name, Call usual, Call deviating, String... words) {
      add(2, name, usual, deviating, words);
      add(3, name, usual, deviating, words);
    }

    void add(int nranks, String name, Call usual, Call deviating, String... words) {
      rows.add(new Row(name, nranks, List.of(words), usual, deviating));
    }
  }

  private static Call allReduce(long count, DataType type, ReduceOp op) {
    return (c, in, out, stream) -> c.allReduce(in, out, count, type, op, stream);
  }

  private static Call broadcast(long count, DataType type, int root) {
    return (c, in, out, stream) -> c.broadcast(in, out, count, type, root, stream);
  }

  private static Call allGather(long count, DataType type) {
    return (c, in, out, stream) -> c.allGather(in, out, count, type, stream);
  }

  private static Call send(long count, DataType type, int peer) {
    return (c, in, out, stream) -> c.send(in, count, type, peer, stream);
  }

  private static Call recv(long count, DataType type, int peer) {
    return (c, in, out, stream) -> c.recv(out, count, type, peer, stream);
  }

  private static Call exchange(long sendCount, long recvCount) {
    return (c, in, out, stream) -> {
      int peer = 1 - c.rank();
      Group.run(
          () -> {
            c.send(in, sendCount, DataType.INT32, peer, stream);
            c.recv(out, recvCount, DataType.INT32, peer, stream);
          });
    };
  }

  static List<Row> rows() {
    Table table = new Table();
    DataType i32 = DataType.INT32;
    DataType f32 = DataType.FLOAT32;
    ReduceOp sum = ReduceOp.SUM;
    String allReduce = "all_?reduce";
    String broadcast = "broadcast";
    // Short, middle and long ones, for they take different ways.
    for (long count : new long[] {16, 4000, 200_000}) {
      Call usual = allReduce(count, i32, sum);
      String is = " of " + count;
      table.add(
          "count" + is,
          usual,
          allReduce(count + 1, i32, sum),
          allReduce,
          count + "",
          (count + 1) + "");
      table.add("type" + is, usual, allReduce(count, f32, sum), allReduce, "int32", "float");
      table.add(
          "op" + is,
          usual,
          allReduce(count, i32, ReduceOp.MAX),
          allReduce,
          "\\bsum\\b",
          "\\bmax\\b");
      table.add("operation" + is, usual, allGather(count, DataType.INT8), allReduce, "all_?gather");
      table.add(
          "barrier" + is, usual, (c, in, out, stream) -> c.barrier(stream), allReduce, "barrier");
      table.add("root" + is, broadcast(count, i32, 0), broadcast(count, i32, 1), broadcast, "root");
      table.add(
          "broadcast's count" + is,
          broadcast(count, i32, 0),
          broadcast(count - 1, i32, 0),
          broadcast,
          count + "",
          (count - 1) + "");
      table.add("broadcast and sum" + is, broadcast(count, i32, 0), usual, broadcast, allReduce);
      table.add("gather's root" + is, gather(count, 0), gather(count, 1), "gather", "root");
      table.add(
          "reduce's op" + is,
          reduce(count, sum),
          reduce(count, ReduceOp.PROD),
          "reduce",
          "\\bsum\\b",
          "\\bprod\\b");
      table.add(
          "scatter's count" + is,
          scatter(count),
          scatter(count + 2),
          "scatter",
          count + "",
          (count + 2) + "");
      table.add(
          2,
          "received count" + is,
          send(count, i32, 1),
          recv(count + 1, i32, 0),
          "send",
          "recv",
          count + "",
          (count + 1) + "");
      table.add(
          2,
          "received type" + is,
          send(count, i32, 1),
          recv(count, f32, 0),
          "send",
          "recv",
          "int32",
          "float");
      table.add(
          2,
          "exchanged counts" + is,
          exchange(count, count),
          exchange(count, count - 3),
          "send",
          "recv",
          count + "",
          (count - 3) + "");
    }
    table.add(
        "short and long",
        allReduce(10, i32, sum),
        allReduce(200_000, i32, sum),
        allReduce,
        "\\b10\\b",
        "200000");
    table.add(
        "middle and long",
        allReduce(1000, i32, sum),
        allReduce(200_000, i32, sum),
        allReduce,
        "\\b1000\\b",
        "200000");
    table.add(
        "none and some",
        allReduce(0, i32, sum),
        allReduce(1, i32, sum),
        allReduce,
        "\\b0\\b",
        "\\b1\\b");
    table.add(2, "allToAllV", allToAllV(8, 8), allToAllV(8, 9), "all_?to_?all_?v");
    table.add(2, "allGatherV", allGatherV(8, 8), allGatherV(8, 9), "all_?gather_?v");
    table.add(2, "gatherV", gatherV(8, 8), gatherV(9, 8), "gather_?v");
    table.add(2, "scatterV", scatterV(8, 8), scatterV(9, 8), "scatter_?v");
    return table.rows;
  }

  private static Call gather(long count, int root) {
    return (c, in, out, stream) -> c.gather(in, out, count, DataType.INT8, root, stream);
  }

  private static Call reduce(long count, ReduceOp op) {
    return (c, in, out, stream) -> c.reduce(in, out, count, DataType.INT8, op, 0, stream);
  }

  private static Call scatter(long count) {
    return (c, in, out, stream) -> c.scatter(in, out, count, DataType.INT8, 0, stream);
  }

  private static Call allToAllV(long sent, long received) {
    return (c, in, out, stream) -> {
      long[] sendCounts = {sent, sent};
      long[] recvCounts = {received, received};
      sendCounts[c.rank()] = 3;
      recvCounts[c.rank()] = 3;
      long[] places = {0, 100};
      c.allToAllV(in, sendCounts, places, out, recvCounts, places, DataType.INT32, stream);
    };
  }

  private static Call allGatherV(long first, long second) {
    return (c, in, out, stream) ->
        c.allGatherV(
            in, out, new long[] {first, second}, new long[] {0, 100}, DataType.INT32, stream);
  }

  private static Call gatherV(long count, long expected) {
    return (c, in, out, stream) ->
        c.gatherV(
            in,
            count,
            out,
            new long[] {expected, expected},
            new long[] {0, 100},
            DataType.INT32,
            0,
            stream);
  }

  private static Call scatterV(long count, long sent) {
    return (c, in, out, stream) ->
        c.scatterV(
            in,
            new long[] {sent, sent},
            new long[] {0, 100},
            out,
            count,
            DataType.INT32,
            0,
            stream);
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("rows")
  void everyRankLearnsIt(Row row) throws Exception {
    int last = row.nranks() - 1;
    try (Ranks ranks = new Ranks(row.nranks())) {
      ranks.assertUsable();
      long start = System.nanoTime();
      Throwable[] thrown =
          ranks.outcomes(
              communicator -> {
                int rank = communicator.rank();
                Call call = rank == last ? row.deviating() : row.usual();
                runUntilItFails(ranks, communicator, call);
              });
      long millis = (System.nanoTime() - start) / 1_000_000;
      for (int rank = 0; rank <= last; rank++) {
        String who = "rank " + rank + " got " + thrown[rank];
        assertInstanceOf(MismatchException.class, thrown[rank], who);
        assertNames(thrown[rank].getMessage(), row.words());
        assertEquals(Communicator.State.FAILED, ranks.get(rank).state(), who);
        assertInstanceOf(MismatchException.class, ranks.get(rank).failure().orElseThrow(), who);
      }
      assertTrue(millis < MAX_SECONDS * 1000, millis + " ms");
    }
    try (Ranks fresh = new Ranks(row.nranks())) {
      fresh.assertUsable();
    }
  }

  private static void runUntilItFails(Ranks ranks, Communicator communicator, Call call) {
    int rank = communicator.rank();
    Stream stream = ranks.streams.get(rank);
    call.on(communicator, ranks.in.get(rank), ranks.out.get(rank), stream);
    stream.synchronize();
    // A root or a sender may be done before anybody contradicts it.
    for (int i = 0; i < LATER; i++) {
      communicator.barrier(stream);
      stream.synchronize();
    }
  }

  private static void assertNames(String message, List<String> words) {
    long ranks =
        Pattern.compile("rank \\d+")
            .matcher(message)
            .results()
            .map(m -> m.group())
            .distinct()
            .count();
    assertTrue(ranks >= 2, () -> "two ranks are not named in: " + message);
    for (String word : words) {
      assertTrue(
          Pattern.compile(word, Pattern.CASE_INSENSITIVE).matcher(message).find(),
          () -> "'" + word + "' is not in: " + message);
    }
  }

  /** One array of counts, as rank 2 sees it, or the others do. */
  private static long[] counts(Communicator c, long others, long last) {
    return new long[] {4, c.rank() == 2 ? last : others, 6};
  }

  /**
   * Three ranks, of which rank 2 contradicts others: 17 elements on one side and 19 on the other.
   */
  static List<Row> countsOfPairs() {
    DataType type = DataType.INT32;
    long[] places = {0, 100, 200};
    Table table = new Table();
    Call gathered =
        (c, in, out, stream) -> c.allGatherV(in, out, counts(c, 17, 19), places, type, stream);
    table.add(3, "allGatherV", gathered, gathered, "gather_?v", "\\b17\\b", "\\b19\\b");
    Call scattered =
        (c, in, out, stream) ->
            c.reduceScatterV(in, out, counts(c, 17, 19), type, ReduceOp.SUM, stream);
    table.add(3, "reduceScatterV", scattered, scattered, "scatter_?v", "\\b17\\b", "\\b19\\b");
    Call all =
        (c, in, out, stream) -> {
          // Rank 0 sends 17 to rank 2, which expects 19; everything else is 5.
          long[] sent = {5, 5, c.rank() == 0 ? 17 : 5};
          long[] received = {c.rank() == 2 ? 19 : 5, 5, 5};
          c.allToAllV(in, sent, places, out, received, places, type, stream);
        };
    table.add(3, "allToAllV", all, all, "all_?to_?all_?v", "\\b17\\b", "\\b19\\b");
    Call gatherV =
        (c, in, out, stream) ->
            c.gatherV(
                in, c.rank() == 2 ? 19 : 5, out, new long[] {5, 5, 17}, places, type, 0, stream);
    table.add(3, "gatherV", gatherV, gatherV, "gather_?v", "\\b17\\b", "\\b19\\b");
    Call scatterV =
        (c, in, out, stream) ->
            c.scatterV(
                in, new long[] {5, 5, 17}, places, out, c.rank() == 2 ? 19 : 5, type, 0, stream);
    table.add(3, "scatterV", scatterV, scatterV, "scatter_?v", "\\b17\\b", "\\b19\\b");
    return table.rows;
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("countsOfPairs")
  void bothCountsAreNamedToAll(Row row) throws Exception {
    everyRankLearnsIt(row);
  }

  /** Whether sent with the announcement, or asked for, on one side or on both. */
  @ParameterizedTest
  @CsvSource({"17, 19", "19, 17", "0, 1", "1, 0", "3000, 6000", "6000, 3000", "50000, 50001"})
  void nothingIsWrittenBesideABlockWhoseCountsDiffer(int sent, int expected) throws Exception {
    TestBackend.requireHost("NCCL doesn't say where it writes then");
    int start = 1000;
    int[] before = new int[Ranks.BYTES / Integer.BYTES];
    Arrays.fill(before, 77);
    long[] places = {0, 0, start};
    try (Ranks ranks = new Ranks(3)) {
      for (int rank = 0; rank < 3; rank++) {
        ranks.out.get(rank).copyFrom(before);
      }
      Throwable[] thrown =
          ranks.outcomes(
              c -> {
                // Only what rank 2 sends to rank 0 is not what that expects.
                Stream stream = ranks.streams.get(c.rank());
                long[] out = {c.rank() == 2 ? sent : 0, 0, 0};
                long[] in = {0, 0, c.rank() == 0 ? expected : 0};
                c.allToAllV(
                    ranks.in.get(c.rank()),
                    out,
                    new long[3],
                    ranks.out.get(c.rank()),
                    in,
                    places,
                    DataType.INT32,
                    stream);
                stream.synchronize();
                c.barrier(stream);
                stream.synchronize();
              });
      for (int rank = 0; rank < 3; rank++) {
        assertInstanceOf(MismatchException.class, thrown[rank], "rank " + rank);
        assertNames(
            thrown[rank].getMessage(), List.of("\\b" + sent + "\\b", "\\b" + expected + "\\b"));
        int[] after = ranks.got(rank, before.length);
        for (int i = 0; i < after.length; i++) {
          if (rank != 0 || i < start || i >= start + expected) {
            assertEquals(77, after[i], "element " + i + " of rank " + rank);
          }
        }
      }
    }
  }

  /**
   * Two hosts that differ although a third one, which is the root, has yet to look: what is named
   * is their first different call, not the one in which they meet.
   */
  @Test
  void whatIsNamedIsTheFirstDifference() {
    TestBackend.requireHost("no hosts");
    int[] hostOf = {0, 1, 2};
    try (Ranks ranks = new Ranks(TestBackend.overHosts(hostOf, TestBackend.CONFIG, "memory"))) {
      ranks.assertUsable();
      // Nobody drives rank 0, so what the others send it waits there.
      for (int i = 0; i < 8; i++) {
        for (int rank = 1; rank < 3; rank++) {
          gather(i == 3 ? 20 + rank : 7, 0)
              .on(
                  ranks.get(rank),
                  ranks.in.get(rank),
                  ranks.out.get(rank),
                  ranks.streams.get(rank));
        }
      }
      for (int rank = 1; rank < 3; rank++) {
        ranks.sum(rank, 5);
      }
      List<Throwable> thrown = new ArrayList<>();
      for (int rank = 1; rank < 3; rank++) {
        thrown.add(assertThrows(MismatchException.class, ranks.streams.get(rank)::synchronize));
      }
      assertTrue(
          TestBackend.eventually(
              () -> {
                Throwable told = thrownBy(ranks.streams.get(0));
                return told != null && thrown.add(told);
              }));
      for (Throwable each : thrown) {
        assertNames(each.getMessage(), List.of("#5\\b", "gather", "\\b21\\b", "\\b22\\b"));
      }
    }
  }

  /** Operations that some ranks complete without a look at all others, or at any. */
  static List<Row> lastOnes() {
    Table table = new Table();
    table.add(
        "broadcast", broadcast(2, DataType.INT32, 0), broadcast(2, DataType.INT32, 1), "root");
    table.add("gather", gather(2, 0), gather(2, 1), "root");
    table.add("reduce's op", reduce(2, ReduceOp.SUM), reduce(2, ReduceOp.MAX), "sum", "max");
    table.add("scatter", scatter(2), scatter(3), "\\b2\\b", "\\b3\\b");
    return table.rows;
  }

  private static Throwable[] callOnce(Ranks ranks, Row row) throws Exception {
    return ranks.outcomes(
        communicator -> {
          int rank = communicator.rank();
          Stream stream = ranks.streams.get(rank);
          (rank == row.nranks() - 1 ? row.deviating() : row.usual())
              .on(communicator, ranks.in.get(rank), ranks.out.get(rank), stream);
          stream.synchronize();
        });
  }

  private static void assertMismatch(Row row, int rank, Throwable thrown) {
    assertInstanceOf(MismatchException.class, thrown, () -> "rank " + rank + " got " + thrown);
    assertNames(thrown.getMessage(), row.words());
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("lastOnes")
  void ofTheLastOperationEveryRankLearnsItWhenItLeaves(Row row) throws Exception {
    TestBackend.requireOneHost("what another host has called takes its time to be known");
    try (Ranks ranks = new Ranks(row.nranks())) {
      Throwable[] thrown = callOnce(ranks, row);
      for (int rank = 0; rank < row.nranks(); rank++) {
        Communicator communicator = ranks.get(rank);
        if (thrown[rank] == null) {
          thrown[rank] = assertThrows(MismatchException.class, communicator::close, "" + rank);
        }
        assertMismatch(row, rank, thrown[rank]);
        communicator.close();
        assertEquals(Communicator.State.CLOSED, communicator.state());
      }
    }
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("lastOnes")
  void ofTheLastOperationEveryRankLearnsItWhenItSynchronizesAnything(Row row) throws Exception {
    TestBackend.requireNoGpus("a root whose operation was over first learns it when it leaves");
    TestBackend.requireOneHost("what another host has called takes its time to be known");
    try (Ranks ranks = new Ranks(row.nranks())) {
      Throwable[] thrown = callOnce(ranks, row);
      for (int rank = 0; rank < row.nranks(); rank++) {
        try (Stream other = ranks.get(rank).device().newStream();
            Event event = ranks.get(rank).device().newEvent()) {
          other.record(event);
          if (thrown[rank] == null) {
            thrown[rank] =
                assertThrows(
                    MismatchException.class,
                    rank == 0 ? event::synchronize : other::synchronize,
                    "rank " + rank);
          }
        }
        assertMismatch(row, rank, thrown[rank]);
      }
    }
  }

  /** The same where what one calls takes its time to be known to the others. */
  @ParameterizedTest(name = "{0}")
  @MethodSource("lastOnes")
  void ofTheLastOperationEveryRankLearnsItInTime(Row row) throws Exception {
    TestBackend.requireNoGpus("a root whose operation was over first learns it when it leaves");
    try (Ranks ranks = new Ranks(row.nranks())) {
      Throwable[] thrown = callOnce(ranks, row);
      for (int rank = 0; rank < row.nranks(); rank++) {
        Stream stream = ranks.streams.get(rank);
        int place = rank;
        TestBackend.awaitOtherHosts(
            () -> {
              if (thrown[place] == null) {
                thrown[place] = thrownBy(stream);
              }
              return thrown[place] != null;
            });
        if (thrown[place] == null) {
          thrown[place] = thrownBy(stream);
        }
        assertMismatch(row, rank, thrown[rank]);
      }
    }
  }

  private static Throwable thrownBy(Stream stream) {
    try {
      stream.synchronize();
      return null;
    } catch (MismatchException e) {
      return e;
    }
  }

  /** What the others need nothing of any more may be called by a rank alone, and last. */
  @Test
  void aRankMayLeaveBeforeTheOthersHaveCalled() throws Exception {
    TestBackend.requireHost("NCCL's broadcast waits for all ranks");
    try (Ranks ranks = new Ranks(2)) {
      ranks.assertUsable();
      for (int rank = 0; rank < 2; rank++) {
        Stream stream = ranks.streams.get(rank);
        broadcast(2, DataType.INT32, 0)
            .on(ranks.get(rank), ranks.in.get(rank), ranks.out.get(rank), stream);
        stream.synchronize();
        ranks.get(rank).close();
      }
    }
  }

  @Test
  void aContradictionInTheMiddleOfManyIsFound() throws Exception {
    try (Ranks ranks = new Ranks(3)) {
      Throwable[] thrown =
          ranks.outcomes(
              communicator -> {
                int rank = communicator.rank();
                Stream stream = ranks.streams.get(rank);
                for (int i = 0; i < 1000; i++) {
                  int count = i == 500 && rank == 1 ? 3 : 2;
                  ranks.sum(rank, count, stream);
                }
                stream.synchronize();
              });
      assertTrue(
          Arrays.stream(thrown).allMatch(e -> e instanceof MismatchException),
          () -> Arrays.toString(thrown));
    }
  }

  @Test
  void oneThreadLearnsItToo() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.sum(0, 100);
      ranks.sum(1, 101);
      for (Stream stream : ranks.streams) {
        assertThrows(MismatchException.class, stream::synchronize);
      }
    }
  }

  @Test
  void otherCommunicatorsAreNotConcerned() {
    try (Ranks other = new Ranks(2)) {
      try (Communicators failing = TestBackend.communicators(2)) {
        List<Stream> streams = new ArrayList<>();
        for (int rank = 0; rank < 2; rank++) {
          Stream stream = failing.get(rank).device().newStream();
          streams.add(stream);
          DeviceBuffer in = other.in.get(rank);
          DeviceBuffer out = other.out.get(rank);
          failing.get(rank).allReduce(in, out, 10 + rank, DataType.INT8, ReduceOp.MIN, stream);
        }
        for (Stream stream : streams) {
          assertThrows(MismatchException.class, stream::synchronize);
          stream.close();
        }
        other.assertUsable();
      }
      other.assertUsable();
    }
  }

  /** It is told once, to whoever synchronizes first, and stays the failed communicator's. */
  @Test
  void otherCommunicatorsGoOnBesideAFailedOne() {
    try (Ranks other = new Ranks(2);
        Ranks failing = new Ranks(2)) {
      for (int rank = 0; rank < 2; rank++) {
        Stream stream = failing.streams.get(rank);
        broadcast(2 + rank, DataType.INT32, 0)
            .on(failing.get(rank), failing.in.get(rank), failing.out.get(rank), stream);
      }
      assertThrows(MismatchException.class, failing::synchronize);
      assertThrows(MismatchException.class, failing::synchronize);
      other.assertUsable();
    }
  }
}
