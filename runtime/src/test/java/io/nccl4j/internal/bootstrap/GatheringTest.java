package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidUsageException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.UUID;
import org.junit.jupiter.api.Test;

class GatheringTest {
  private static Seat seat(int rank, int nranks, int pid, long pageSize, String build) {
    Joiner joiner = new Joiner(rank, nranks, new UUID(1, pid), 5, -1, 4096, rank == 0 ? 128 : -1);
    return new Seat(joiner, true, 7, pid, pageSize, build, Place.HERE.host());
  }

  private static String refusal(Seat first, Seat second) {
    Gathering gathering = new Gathering();
    assertNull(gathering.admit(first, -1));
    assertFalse(gathering.outcome().isDone());
    assertNull(gathering.admit(second, -1));
    Failure failure = gathering.outcome().join().failure();
    assertNotNull(failure);
    assertEquals(InvalidUsageException.class, failure.toException().getClass());
    assertEquals(second.rank(), failure.rank());
    // Whoever comes later is told the same.
    assertEquals(failure, gathering.admit(seat(1, 2, 12, 4096, "1.0"), -1));
    return failure.message();
  }

  @Test
  void contradictionsNameBothSides() {
    Seat first = seat(0, 2, 10, 4096, "1.0");
    assertEquals(
        "rank 1 (process 11) has pages of 65536 B, rank 0 (process 10) of 4096",
        refusal(first, seat(1, 2, 11, 65536, "1.0")));
    assertEquals(
        "rank 1 (process 11) runs nccl4j 1.1, rank 0 (process 10) runs 1.0",
        refusal(first, seat(1, 2, 11, 4096, "1.1")));
    assertEquals(
        "rank 2 (process 11) joins 3 ranks, rank 0 (process 10) joins 2",
        refusal(first, seat(2, 3, 11, 4096, "1.0")));
    assertEquals(
        "rank 0 was taken twice: by processes 10 and 11",
        refusal(first, seat(0, 2, 11, 4096, "1.0")));
  }

  @Test
  void completeTableSurvivesTheWire() {
    Gathering gathering = new Gathering();
    assertFalse(gathering.everybodyCame());
    gathering.admit(seat(1, 2, 11, 4096, "1.0"), -1);
    gathering.admit(seat(0, 2, 10, 4096, "1.0"), -1);
    assertTrue(gathering.everybodyCame());
    Answer answer = gathering.outcome().join().answer();
    assertNotNull(answer);
    ByteBuffer encoded = ByteBuffer.wrap(answer.encode());
    assertEquals(Answer.COMPLETE, encoded.get());
    assertEquals(answer, Answer.decode(encoded));
    assertEquals(128, answer.controlOffset());
    // The second use of the same id.
    assertEquals(Failure.used(), gathering.admit(seat(0, 2, 12, 4096, "1.0"), -1));
  }

  @Test
  void processIdsOfOtherNamespacesAreHidden() {
    int others = Place.HERE.pids() + 1;
    Answer answer =
        new Answer(
            List.of(
                new Answer.Entry(new UUID(1, 1), others, 10, 4096),
                new Answer.Entry(new UUID(1, 2), Place.HERE.pids(), 11, 4096)),
            0);
    assertEquals(Place.HERE.pids() == 0 ? 10 : 0, answer.members().get(0).pid());
    assertEquals(11, answer.members().get(1).pid());
  }

  @Test
  void failuresSurviveTheWire() {
    Failure failure = new Failure(Failure.Kind.PEER, 3, "rank 3 is gone", "restart it");
    ByteBuffer encoded = ByteBuffer.wrap(failure.encode());
    assertEquals(Answer.FAILED, encoded.get());
    assertEquals(failure, Failure.decode(encoded));
    Failure late = new Failure(Failure.Kind.DEADLINE, List.of(1, 4, 6), "they are late", "");
    assertEquals(late, Failure.decodeWhole(late.encode()));
    assertEquals(List.of(1, 4, 6), late.toException().failedRanks());
    Failure longOne = new Failure(Failure.Kind.USAGE, -1, "x".repeat(100_000), "");
    encoded = ByteBuffer.wrap(longOne.encode());
    encoded.get();
    assertEquals(2048, Failure.decode(encoded).message().length());
  }
}
