package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.Group;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ObjectCalls;
import io.nccl4j.ObjectCodec;
import io.nccl4j.PeerFailedException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Objects by a codec, and codecs that fail. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ObjectCallsTest {
  /** Encodes a dash as a failure, an ampersand as an error, a dot as null; does not decode "!". */
  private static final ObjectCodec<String> MOODY =
      ObjectCodec.of(
          text -> {
            switch (text) {
              case "-" -> throw new IllegalStateException("no dashes");
              case "&" -> throw new AssertionError("no ampersands");
              case "." -> {
                return null;
              }
              default -> {
                return ObjectCodec.UTF_8.encode(text);
              }
            }
          },
          bytes -> {
            String text = ObjectCodec.UTF_8.decode(bytes);
            if (text.equals("!")) {
              throw new java.io.IOException("no exclamations");
            }
            return text;
          });

  /** Different sizes, an empty one and one that is larger than what stays staged. */
  private static String text(int rank) {
    return rank == 1 ? "" : "größer ".repeat(rank * 50_000 + 1) + rank;
  }

  private static List<String> texts(int nranks) {
    List<String> all = new ArrayList<>();
    for (int k = 0; k < nranks; k++) {
      all.add(text(k));
    }
    return all;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void objectsOfAnySize(int nranks) throws Exception {
    try (Ranks ranks = new Ranks(nranks)) {
      List<String> all = texts(nranks);
      Throwable[] thrown =
          ranks.outcomes(
              comm -> {
                int rank = comm.rank();
                ObjectCalls<String> objects = comm.objects(ObjectCodec.UTF_8);
                assertEquals(all, objects.allGather(text(rank)));
                for (int root = 0; root < nranks; root++) {
                  boolean isRoot = rank == root;
                  assertEquals(isRoot ? all : List.of(), objects.gather(text(rank), root));
                  String mine = isRoot ? text(root) : null;
                  String got = objects.broadcast(mine, root);
                  assertEquals(text(root), got);
                  if (isRoot) {
                    assertSame(mine, got);
                  }
                  assertEquals(text(rank), objects.scatter(isRoot ? all : null, root));
                }
              });
      for (Throwable e : thrown) {
        assertEquals(null, e, () -> String.valueOf(e));
      }
    }
  }

  /** What one rank cannot encode fails on all, with the reason, and nothing else does. */
  @ParameterizedTest
  @ValueSource(strings = {"-", "&", "."})
  void whatCannotBeEncodedFailsOnAllRanks(String wrong) throws Exception {
    try (Ranks ranks = new Ranks(3)) {
      List<Call> calls =
          List.of(
              (objects, rank) -> objects.allGather(rank == 1 ? wrong : "right"),
              (objects, rank) -> objects.gather(rank == 1 ? wrong : "right", 2),
              (objects, rank) -> objects.broadcast(rank == 1 ? wrong : null, 1),
              (objects, rank) ->
                  objects.scatter(rank == 1 ? List.of("right", wrong, "right") : null, 1));
      for (Call call : calls) {
        Throwable[] thrown = ranks.outcomes(comm -> call.on(comm.objects(MOODY), comm.rank()));
        InvalidArgumentException own = assertInstanceOf(InvalidArgumentException.class, thrown[1]);
        assertTrue(own.getCause() != null, own::toString);
        String reason = wrong.equals(".") ? "returned null" : wrong.equals("-") ? "dash" : "amp";
        assertTrue(own.getMessage().contains(reason), own::getMessage);
        for (int other : new int[] {0, 2}) {
          PeerFailedException e = assertInstanceOf(PeerFailedException.class, thrown[other]);
          assertEquals(1, e.rank());
          assertTrue(e.getMessage().contains(reason), e::getMessage);
        }
        for (Communicator comm : ranks.communicators) {
          assertEquals(Communicator.State.READY, comm.state());
        }
        ranks.assertUsable();
      }
    }
  }

  private interface Call {
    Object on(ObjectCalls<String> objects, int rank);
  }

  @Test
  void whatCannotBeDecodedFailsWhereItIs() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Throwable[] thrown =
          ranks.outcomes(
              comm -> {
                ObjectCodec<String> codec = comm.rank() == 0 ? ObjectCodec.UTF_8 : MOODY;
                assertEquals(
                    List.of("!", "x"), comm.objects(codec).allGather(comm.rank() == 0 ? "!" : "x"));
              });
      assertEquals(null, thrown[0]);
      InvalidArgumentException e = assertInstanceOf(InvalidArgumentException.class, thrown[1]);
      assertTrue(e.getMessage().contains("rank 0's object cannot be decoded"), e::getMessage);
      assertInstanceOf(java.io.IOException.class, e.getCause());
      ranks.assertUsable();
    }
  }

  @Test
  void aListThatDoesNotFitFailsOnAllRanks() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      for (List<String> wrong : List.of(List.of("one"), List.of("1", "2", "3"))) {
        Throwable[] thrown =
            ranks.outcomes(comm -> comm.objects(MOODY).scatter(comm.rank() == 0 ? wrong : null, 0));
        assertInstanceOf(InvalidArgumentException.class, thrown[0]);
        assertTrue(thrown[0].getMessage().contains("for 2 ranks"), thrown[0]::getMessage);
        assertInstanceOf(PeerFailedException.class, thrown[1]);
      }
      Throwable[] thrown = ranks.outcomes(comm -> comm.objects(MOODY).scatter(null, 1));
      assertInstanceOf(InvalidArgumentException.class, thrown[1]);
      ranks.assertUsable();
    }
  }

  /** The others would wait for the second operation of the call. */
  @Test
  void anInterruptAbortsTheCommunicator() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Communicator comm = ranks.get(0);
      Throwable[] thrown = new Throwable[1];
      Thread waiting =
          Thread.ofPlatform()
              .start(
                  () ->
                      thrown[0] =
                          assertThrows(
                              InterruptedWaitException.class,
                              () -> comm.objects(ObjectCodec.UTF_8).allGather("x")));
      assertTrue(TestBackend.eventually(() -> comm.counters().unfinishedWorks() > 0));
      waiting.interrupt();
      waiting.join();
      assertInstanceOf(InterruptedWaitException.class, thrown[0]);
      assertEquals(Communicator.State.ABORTED, comm.state());
      NcclException e =
          assertThrows(
              NcclException.class, () -> ranks.get(1).objects(ObjectCodec.UTF_8).allGather("y"));
      assertTrue(e.getMessage().contains("interrupted"), e::getMessage);
    }
  }

  @Test
  void badCallsAreRefusedAtOnce() {
    try (Ranks ranks = new Ranks(2)) {
      ObjectCalls<String> objects = ranks.get(0).objects(ObjectCodec.UTF_8);
      List<Runnable> calls =
          List.of(
              () -> objects.gather("x", 2),
              () -> objects.broadcast("x", -1),
              () -> objects.scatter(List.of("x", "y"), 7),
              () -> ranks.get(0).objects(null),
              () -> ObjectCodec.of(null, bytes -> ""));
      for (Runnable call : calls) {
        NcclException e = assertThrows(InvalidArgumentException.class, call::run);
        assertTrue(!e.remedy().isEmpty(), e::getMessage);
      }
      try (Group group = Group.start()) {
        assertTrue(group != null);
        assertThrows(InvalidUsageException.class, () -> objects.allGather("x"));
      }
      ranks.assertUsable();
    }
  }
}
