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

/**
 * Why a rendezvous came to nothing, in a form that can be told to all its ranks.
 *
 * @param kind class of cause
 * @param rank the rank that is the cause, or -1
 * @param message what was wrong
 * @param remedy what to do, or an empty string
 */
record Failure(Kind kind, int rank, String message, String remedy) {
  private static final int MAX_TEXT_BYTES = 2048;

  /** Most bytes of an encoded failure. */
  static final int MAX_BYTES = 2 + Integer.BYTES + 2 * (Short.BYTES + MAX_TEXT_BYTES);

  /** Class of cause; the ordinal goes over the wire. */
  enum Kind {
    DEADLINE,
    USAGE,
    SYSTEM,
    BACKEND,
    PEER
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
  static NcclException interrupted(int rank, Exception cause) {
    Thread.currentThread().interrupt();
    return new InterruptedWaitException(
            "rank " + rank + " was interrupted while it joined", "create a new unique id")
        .causedBy(cause);
  }

  /** The system refused a call. */
  static NcclException ofSystem(String what, LibcException cause) {
    return new SystemErrorException(what + ": " + cause.getMessage(), "").causedBy(cause);
  }

  /** A new exception that says this. */
  NcclException toException() {
    return switch (kind) {
      case DEADLINE -> new DeadlineException(message, remedy);
      case USAGE -> new InvalidUsageException(message, remedy);
      case SYSTEM -> new SystemErrorException(message, remedy);
      case BACKEND -> new BackendUnavailableException(message, remedy);
      case PEER -> new PeerFailedException(rank, message, remedy);
    };
  }

  byte[] encode() {
    byte[] messageBytes = text(message);
    byte[] remedyBytes = text(remedy);
    return ByteBuffer.allocate(
            2 + Integer.BYTES + 2 * Short.BYTES + messageBytes.length + remedyBytes.length)
        .put(Answer.FAILED)
        .put((byte) kind.ordinal())
        .putInt(rank)
        .putShort((short) messageBytes.length)
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
    int rank = in.getInt();
    return new Failure(kind, rank, text(in), text(in));
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
