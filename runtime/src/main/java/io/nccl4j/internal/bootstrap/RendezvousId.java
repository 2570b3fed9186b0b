package io.nccl4j.internal.bootstrap;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.UniqueId;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.UUID;

/**
 * What the bytes of a unique id of this library say.
 *
 * <pre>
 *   0   6  "NCCL4J"
 *   6   2  version
 *   8  16  random name
 *  24  32  random secret
 *  56  16  boot id of the creator's machine
 *  72   4  its network namespace
 *  76   4  its PID namespace
 *  80   4  its process id
 *  84   8  its start time
 *  92   8  random number of the creating process
 * 100   1  1 if a socket is served, else 0
 * 101  23  name of the machine, cut off there
 * 124   4  CRC-32 of the 124 bytes before
 * </pre>
 *
 * Numbers are big-endian. Not changed once it is handed on; has no text form, because it contains
 * the secret.
 */
final class RendezvousId {
  static final int VERSION = 1;

  private static final int HOST_BYTES = 23;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final long THIS_PROCESS = RANDOM.nextLong();

  private final UUID name;
  private final byte[] secret;
  private final Place place;
  private final long process;
  private final boolean served;

  /** What to do if it is an earlier job's, for remedies; empty if nothing is known of that. */
  private String ifOld = "";

  private RendezvousId(UUID name, byte[] secret, Place place, long process, boolean served) {
    this.name = name;
    this.secret = secret;
    this.place = place;
    this.process = process;
    this.served = served;
  }

  /** A new id of this process. */
  static RendezvousId create(boolean served) {
    return new RendezvousId(
        new UUID(RANDOM.nextLong(), RANDOM.nextLong()),
        random(IdBytes.SECRET_BYTES),
        Place.HERE,
        THIS_PROCESS,
        served);
  }

  /** That many random bytes, fit for secrets. */
  static byte[] random(int bytes) {
    byte[] random = new byte[bytes];
    RANDOM.nextBytes(random);
    return random;
  }

  /**
   * Reads an id.
   *
   * @throws InvalidArgumentException if the bytes are no id of this library, or a damaged one
   * @throws InvalidUsageException if it is one of another version
   */
  static RendezvousId parse(byte[] bytes) {
    if (!IdBytes.areOurs(bytes)) {
      throw new InvalidArgumentException(
          "not a unique id of the host backend",
          "use the id that UniqueId.create made for this backend");
    }
    ByteBuffer in = IdBytes.read(bytes, VERSION);
    UUID name = new UUID(in.getLong(), in.getLong());
    byte[] secret = new byte[IdBytes.SECRET_BYTES];
    in.get(secret);
    UUID boot = new UUID(in.getLong(), in.getLong());
    int network = in.getInt();
    int pids = in.getInt();
    int pid = in.getInt();
    long started = in.getLong();
    long process = in.getLong();
    boolean served = in.get() != 0;
    byte[] host = new byte[HOST_BYTES];
    in.get(host);
    String hostName = new String(host, StandardCharsets.ISO_8859_1).replace("\0", "");
    return new RendezvousId(
        name, secret, new Place(boot, network, pids, pid, started, hostName), process, served);
  }

  /** Reads an id as {@link #parse} does, and keeps in mind which file it was in. */
  static RendezvousId of(UniqueId uniqueId) {
    RendezvousId id = parse(uniqueId.toBytes());
    id.ifOld =
        uniqueId
            .file()
            .map(file -> "if " + file + " is an earlier job's, remove it: rm '" + file + "'")
            .orElse("");
    return id;
  }

  /** A remedy, and what to do in case that the id is an earlier job's. */
  String orOld(String remedy) {
    return ifOld.isEmpty() ? remedy : remedy + "; " + ifOld;
  }

  /** The bytes of the id. They contain the secret. */
  byte[] toBytes() {
    byte[] host = place.host().getBytes(StandardCharsets.ISO_8859_1);
    return IdBytes.end(
        IdBytes.begin(VERSION, name, secret)
            .putLong(place.boot().getMostSignificantBits())
            .putLong(place.boot().getLeastSignificantBits())
            .putInt(place.network())
            .putInt(place.pids())
            .putInt(place.pid())
            .putLong(place.started())
            .putLong(process)
            .put((byte) (served ? 1 : 0))
            .put(Arrays.copyOf(host, HOST_BYTES)));
  }

  /** The random name. */
  UUID name() {
    return name;
  }

  /** The shared secret; not a copy. */
  byte[] secret() {
    return secret;
  }

  /** Where the creator runs. */
  Place place() {
    return place;
  }

  /** Whether this process created it. */
  boolean ownedHere() {
    return process == THIS_PROCESS;
  }

  /** Whether the creator serves a socket. */
  boolean served() {
    return served;
  }

  /** The abstract name of the creator's socket. */
  byte[] socketName() {
    return ("nccl4j-" + name).getBytes(StandardCharsets.US_ASCII);
  }
}
