package io.nccl4j.internal.bootstrap;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.internal.spi.Failures;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Why a rendezvous came to nothing, in a form that can be told to all its ranks.
 *
 * @param kind class of cause
 * @param ranks the ranks that are the cause; empty if none is
 * @param message what was wrong
 * @param remedy what to do, or an empty string
 */
public record Failure(Kind kind, List<Integer> ranks, String message, String remedy) {
  private static final int MAX_TEXT_BYTES = 2048;

  /** More ranks are not listed; the text counts them. */
  private static final int MAX_LISTED = 512;

  /** Most bytes of an encoded failure. */
  static final int MAX_BYTES =
      2 + Short.BYTES + MAX_LISTED * Integer.BYTES + 2 * (Short.BYTES + MAX_TEXT_BYTES);

  /** Class of cause; the ordinal goes over the wire. */
  enum Kind {
    DEADLINE,
    USAGE,
    SYSTEM,
    BACKEND,
    PEER
  }

  public Failure {
    ranks = ranks.stream().limit(MAX_LISTED).toList();
  }

  /** One rank is the cause, or none if it is -1. */
  Failure(Kind kind, int rank, String message, String remedy) {
    this(kind, rank < 0 ? List.of() : List.of(rank), message, remedy);
  }

  /** The first rank that is the cause, or -1. */
  int rank() {
    return ranks.isEmpty() ? -1 : ranks.getFirst();
  }

  static Failure usage(int rank, String message, String remedy) {
    return new Failure(Kind.USAGE, rank, message, remedy);
  }

  static Failure used() {
    return usage(
        -1,
        "the unique id was used before: each one serves one rendezvous",
        "create a new one for each communicator");
  }

  /** A rank alone found a reason why it cannot join. */
  static Failure refusal(int rank, Throwable reason) {
    String what = reason instanceof NcclException e ? e.problem() : reason.toString();
    return new Failure(
        Kind.PEER,
        rank,
        "rank " + rank + " (process " + Place.HERE.pid() + ") cannot join: " + what,
        "look for the cause where it ran; then join with a new unique id");
  }

  /** The same, told by that rank of itself, which decides nothing but the words. */
  Failure by(int teller) {
    return new Failure(Kind.PEER, teller, message, remedy);
  }

  /** A rank ended, or was interrupted, before it was ready. */
  static Failure gone(Seat seat, String why) {
    return new Failure(
        Kind.PEER,
        seat.rank(),
        seat + " is gone before all ranks joined: " + why,
        "look for the cause where it ran");
  }

  /** A rank was interrupted while it joined. The thread's interrupt flag is set again. */
  public static NcclException interrupted(int rank, Exception cause) {
    Thread.currentThread().interrupt();
    return new InterruptedWaitException(
            "rank " + rank + " was interrupted while it joined", "create a new unique id")
        .causedBy(cause);
  }

  /** The system refused a call. */
  public static NcclException ofSystem(String what, LibcException cause) {
    return new SystemErrorException(what + ": " + cause.getMessage(), "").causedBy(cause);
  }

  /** A new exception that says this. */
  NcclException toException() {
    return switch (kind) {
      case DEADLINE -> new DeadlineException(message, remedy, ranks);
      case USAGE -> new InvalidUsageException(message, remedy);
      case SYSTEM -> new SystemErrorException(message, remedy);
      case BACKEND -> new BackendUnavailableException(message, remedy);
      case PEER -> new PeerFailedException(ranks, message, remedy);
    };
  }

  byte[] encode() {
    byte[] messageBytes = text(message);
    byte[] remedyBytes = text(remedy);
    ByteBuffer out =
        ByteBuffer.allocate(
                2
                    + Short.BYTES
                    + ranks.size() * Integer.BYTES
                    + 2 * Short.BYTES
                    + messageBytes.length
                    + remedyBytes.length)
            .put(Answer.FAILED)
            .put((byte) kind.ordinal())
            .putShort((short) ranks.size());
    ranks.forEach(out::putInt);
    return out.putShort((short) messageBytes.length)
        .put(messageBytes)
        .putShort((short) remedyBytes.length)
        .put(remedyBytes)
        .array();
  }

  /** Reads a whole encoded failure; throws RuntimeException if it is malformed. */
  static Failure decodeWhole(byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (in.get() != Answer.FAILED) {
      throw new IllegalArgumentException("no failure");
    }
    return decode(in);
  }

  /** Reads what follows {@link Answer#FAILED}; throws RuntimeException if it is malformed. */
  static Failure decode(ByteBuffer in) {
    Kind kind = Kind.values()[in.get()];
    int count = in.getShort();
    if (count < 0 || count > MAX_LISTED) {
      throw new IllegalArgumentException(count + " ranks");
    }
    List<Integer> ranks = IntStream.range(0, count).mapToObj(i -> in.getInt()).toList();
    return new Failure(kind, ranks, text(in), text(in));
  }

  private static byte[] text(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return bytes.length <= MAX_TEXT_BYTES ? bytes : Arrays.copyOf(bytes, MAX_TEXT_BYTES);
  }

  private static String text(ByteBuffer in) {
    byte[] bytes = new byte[Short.toUnsignedInt(in.getShort())];
    in.get(bytes);
    return Failures.printable(bytes);
  }
}
