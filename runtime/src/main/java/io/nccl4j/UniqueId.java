package io.nccl4j;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The token by which the ranks of a communicator find each other: 128 bytes, created once and
 * passed to every rank.
 *
 * <p>It contains a secret: whoever has it may join. Pass it on in a file that only the user can
 * read ({@link #writeTo}), in an environment variable of child processes ({@link #toString()},
 * {@link #parse}), or as bytes.
 *
 * <p>An id is a value and has nothing to close. On the host backend the process that created it
 * serves the rendezvous, with a thread and two descriptors, and must live until all ranks have
 * joined. The rendezvous ends by itself: when all have joined, when one of them fails, or when no
 * rank has come within the {@code init-timeout} of that process ({@code NCCL4J_INIT_TIMEOUT}). The
 * id is of no more use then. NCCL serves its own ids, as long as the process lives.
 */
public final class UniqueId {
  /** Size in bytes, NCCL's {@code NCCL_UNIQUE_ID_BYTES}. */
  public static final int BYTES = 128;

  private final byte[] bytes;

  /** Mark of the process that serves it; empty if unknown. */
  private final String maker;

  private final @Nullable Path file;

  private UniqueId(byte[] bytes, String maker, @Nullable Path file) {
    this.bytes = bytes;
    this.maker = maker;
    this.file = file;
  }

  /** How far the ranks may be apart that meet by an id. */
  public enum Reach {
    /** On one machine: nothing outside it can reach the rendezvous. */
    MACHINE,

    /**
     * On any machines that reach this one by TCP. The creating process listens at a free port of
     * the interface that {@code NCCL4J_NETWORK_INTERFACE} names, or else of the default route.
     */
    NETWORK
  }

  /** Creates an id for the backend that {@link Backend#AUTO} chooses. */
  public static UniqueId create() {
    return create(Backend.AUTO);
  }

  /**
   * Creates an id for ranks on this machine. With an id of NCCL they may be on any.
   *
   * @throws BackendUnavailableException if the backend cannot run here; the message says why
   */
  public static UniqueId create(Backend backend) {
    return create(backend, Reach.MACHINE);
  }

  /**
   * Creates an id.
   *
   * @param reach where the ranks may be; NCCL's ids always reach them all
   * @throws BackendUnavailableException if the backend cannot run here; the message says why
   * @throws SystemErrorException if this process cannot listen
   */
  public static UniqueId create(Backend backend, Reach reach) {
    Provider provider = Provider.get();
    byte[] bytes = provider.createUniqueId(backend, Require.present(reach, "reach"));
    return new UniqueId(bytes, provider.processMark(), null);
  }

  /**
   * The id with these bytes.
   *
   * @throws InvalidArgumentException if there are not {@value #BYTES} of them
   */
  public static UniqueId ofBytes(byte[] bytes) {
    if (Require.present(bytes, "bytes").length != BYTES) {
      throw new InvalidArgumentException(
          "a unique id has " + BYTES + " bytes, not " + bytes.length,
          "pass on all bytes of UniqueId.toBytes()");
    }
    return new UniqueId(bytes.clone(), "", null);
  }

  /**
   * The id whose {@link #toString()} form is {@code text}, or its first line.
   *
   * @throws InvalidArgumentException if it is not one
   */
  public static UniqueId parse(String text) {
    Require.present(text, "text");
    try {
      return ofBytes(HexFormat.of().parseHex(firstLine(text)));
    } catch (IllegalArgumentException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  "not a unique id: it is "
                      + firstLine(text).length()
                      + " characters, not 256 hexadecimal digits",
                  "pass on the whole text of UniqueId.toString()")
              .causedBy(e);
    }
  }

  private static String firstLine(String text) {
    return text.strip().lines().findFirst().orElse("").strip();
  }

  /**
   * Writes the id to a file that only the user can read. The file appears complete or not at all.
   *
   * @throws SystemErrorException if it cannot be written
   */
  public void writeTo(Path file) {
    UniqueIdFile.write(this, Require.present(file, "file"));
  }

  /**
   * Reads the id from a file that {@link #writeTo} wrote, waiting for the file to appear. A file
   * whose creator is certainly gone, for example because its job was killed, is ignored: the method
   * waits until another one replaces it.
   *
   * @param timeout longest wait, of any length
   * @throws DeadlineException if it does not appear in time
   * @throws InterruptedWaitException if the calling thread was interrupted
   * @throws SystemErrorException if it cannot be read, is not a regular file, belongs to somebody
   *     else, or can be read by others
   * @throws InvalidArgumentException if the timeout is negative, or the file holds something else
   */
  public static UniqueId readFrom(Path file, Duration timeout) {
    return UniqueIdFile.read(Require.present(file, "file"), Require.present(timeout, "timeout"));
  }

  /** This id with its known origin. */
  UniqueId from(Path file, String maker) {
    return new UniqueId(bytes, maker, file);
  }

  /** Mark of the process that serves it; empty if unknown. */
  String maker() {
    return maker;
  }

  /** The file from which {@link #readFrom} read it; empty if it comes from elsewhere. */
  public Optional<Path> file() {
    return Optional.ofNullable(file);
  }

  /** A copy of the bytes. */
  public byte[] toBytes() {
    return bytes.clone();
  }

  /** The bytes as 256 hexadecimal digits. They contain the secret: do not log them. */
  @Override
  public String toString() {
    return HexFormat.of().formatHex(bytes);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof UniqueId id && Arrays.equals(bytes, id.bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }
}
