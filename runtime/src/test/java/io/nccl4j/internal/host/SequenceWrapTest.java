package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What happens after 2^31 and 2^32 operations: the counters are set as if they had been done. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class SequenceWrapTest {
  /** Operations before the wrap; a multiple of what the engine counts in. */
  static final long BEFORE = 1024;

  static HostRanks ranksAt(long seq, int nranks, long bytes) throws Exception {
    HostRanks ranks = new HostRanks(nranks, bytes);
    for (int rank = 0; rank < nranks; rank++) {
      setCounters(ranks.get(rank), seq);
    }
    return ranks;
  }

  /** All counters of a rank that has not done anything yet. */
  private static void setCounters(HostCommunicator c, long seq) throws Exception {
    set(c.own().numbers(), "issued", seq);
    fill(c.own().numbers(), "sendSeq", seq);
    fill(c.own().numbers(), "recvSeq", seq);
    set(c.own().collectives(), "completed", seq);
    set(c.own().collectives(), "safeUntil", seq + Layout.OUTBOX_SLOTS);
    fill(c.own().lanes(), "sent", seq);
    fill(c.own().lanes(), "received", seq);
    ControlBlock control = c.own().part().control();
    control.setRelease(control.done(c.rank()), seq & 0xffffffffL);
    for (int peer = 0; peer < c.nranks(); peer++) {
      control.setRelease(control.ack(peer, c.rank()), seq);
    }
  }

  private static void set(Object object, String name, long value) throws Exception {
    Field field = object.getClass().getDeclaredField(name);
    field.setAccessible(true);
    field.setLong(object, value);
  }

  private static void fill(Object object, String name, long value) throws Exception {
    Field field = object.getClass().getDeclaredField(name);
    field.setAccessible(true);
    Arrays.fill((long[]) field.get(object), value);
  }

  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32, 3L << 31, 1L << 33})
  void everyOperationAcrossTheWrap(long wrap) throws Exception {
    int nranks = 3;
    try (HostRanks ranks = ranksAt(wrap - BEFORE, nranks, 40_000)) {
      ranks.run(
          rank -> {
            int salt = 0;
            for (int i = 0; i < 2 * BEFORE; i++) {
              Trial.Op op = Trial.Op.values()[i % Trial.Op.values().length];
              Trial trial = ranks.start(op, rank, i % 5 == 0 ? 700 : i % 30, ++salt);
              ranks.streams.get(rank).synchronize();
              trial.check(ranks.out.get(rank));
            }
          });
      assertTrue(issued(ranks.get(0)) > wrap);
    }
  }

  private static long issued(HostCommunicator c) throws Exception {
    Field field = Numbers.class.getDeclaredField("issued");
    field.setAccessible(true);
    return field.getLong(c.own().numbers());
  }

  /** Broadcasts, with which the root runs ahead until the outbox is full. */
  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32})
  void oneWayOperationsAcrossTheWrap(long wrap) throws Exception {
    try (HostRanks ranks = ranksAt(wrap - BEFORE, 2, 400)) {
      ranks.run(
          rank -> {
            for (int i = 0; i < 2 * BEFORE; i++) {
              Trial trial = ranks.start(Trial.Op.BROADCAST, rank, 20, i / 100 * 100);
              if (i % 100 == 99) {
                ranks.streams.get(rank).synchronize();
                trial.check(ranks.out.get(rank));
              }
            }
          });
    }
  }

  /** Both directions of a lane, eager and pulled, with rank 0 among the peers. */
  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32, 3L << 31})
  void lanesAcrossTheWrap(long wrap) throws Exception {
    try (HostRanks ranks = ranksAt(wrap - BEFORE, 2, 4000)) {
      ranks.run(
          rank -> {
            for (int i = 0; i < 2 * BEFORE; i++) {
              Trial trial = ranks.start(Trial.Op.SEND_RECV, rank, i % 2 == 0 ? 9 : 900, i);
              ranks.streams.get(rank).synchronize();
              trial.check(ranks.out.get(rank));
            }
          });
    }
  }

  /** Asynchronous operations: the counts wrap while works are queued. */
  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32})
  void queuedOperationsAcrossTheWrap(long wrap) throws Exception {
    try (HostRanks ranks = ranksAt(wrap - BEFORE, 2, 400)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1, 2, 3}));
      for (int i = 0; i < 2 * BEFORE; i++) {
        ranks.sum(0, 3);
        ranks.sum(1, 3);
      }
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(2, ranks.out.get(1).toInts()[0]);
    }
  }

  /** A contradiction is found, and named with both sides' calls, before, at and after the wrap. */
  @ParameterizedTest
  @ValueSource(longs = {-3, -1, 0, 1, 40})
  void mismatchesAreNamedAcrossTheWrap(long at) throws Exception {
    for (long wrap : new long[] {1L << 31, 1L << 32}) {
      try (HostRanks ranks = ranksAt(wrap - BEFORE, 3, 4000)) {
        for (long i = 1; i < BEFORE + at; i++) {
          for (int rank = 0; rank < 3; rank++) {
            ranks.sum(rank, 3);
          }
        }
        ranks.streams.forEach(Stream::synchronize);
        ranks.sum(0, 4);
        ranks.sum(1, 5);
        List<String> messages = new ArrayList<>();
        for (Stream stream : ranks.streams.subList(0, 2)) {
          NcclException e = assertThrows(MismatchException.class, stream::synchronize);
          messages.add(e.getMessage());
        }
        // The third rank has not got there; it learns what the others found.
        assertEquals(Communicator.State.FAILED, ranks.get(2).state());
        messages.add(ranks.get(2).failure().orElseThrow().getMessage());
        for (String message : messages) {
          assertTrue(message.contains("#" + (wrap + at)), message);
          assertTrue(message.contains("allReduce(4 int32, sum)"), message);
          assertTrue(message.contains("allReduce(5 int32, sum)"), message);
        }
      }
    }
  }

  /** The same for the last signature a lagging rank published. */
  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32})
  void oneWayMismatchesAreFoundAcrossTheWrap(long wrap) throws Exception {
    try (HostRanks ranks = ranksAt(wrap - BEFORE, 2, 4000)) {
      for (int i = 0; i < BEFORE - 10; i++) {
        ranks.sum(0, 3);
        ranks.sum(1, 3);
      }
      ranks.streams.forEach(Stream::synchronize);
      // Each rank thinks itself the root: nobody waits for anybody until the outbox is full.
      Throwable thrown = null;
      try {
        for (int i = 0; i < 100; i++) {
          for (int rank = 0; rank < 2; rank++) {
            ranks
                .get(rank)
                .broadcast(
                    ranks.in.get(rank),
                    ranks.out.get(rank),
                    3,
                    DataType.INT32,
                    rank,
                    ranks.streams.get(rank));
          }
        }
        ranks.streams.forEach(Stream::synchronize);
      } catch (NcclException e) {
        thrown = e;
      }
      assertTrue(thrown != null && thrown.getMessage().contains("root"), String.valueOf(thrown));
    }
  }
}
