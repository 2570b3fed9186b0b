package io.nccl4j.bootstrap;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
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
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
