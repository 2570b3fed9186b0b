package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Memory;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.LibraryVersion;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;

/**
 * A rank at the rendezvous, as the creator knows it.
 *
 * @param joiner what it brings; the descriptor is not part of it (always -1)
 * @param shareable whether its process's heap can be shared
 * @param pids its PID namespace
 * @param pid its process id there
 * @param pageSize its page size in bytes, 0 if unknown
 * @param build version of its library
 * @param host name of its machine or container
 */
record Seat(
    Joiner joiner, boolean shareable, int pids, int pid, long pageSize, String build, String host) {
  /** Version of this library. */
  static final String BUILD = libraryVersion();

  private static final int MAX_BUILD_BYTES = 64;
  private static final int MAX_HOST_BYTES = 64;
  private static final int MAX_RESTRICTION_BYTES = 512;
  private static final int MAX_SECURITY_BYTES = 16;

  /** Bytes of the longest encoded seat. */
  static final int MAX_BYTES =
      128 + MAX_BUILD_BYTES + MAX_RESTRICTION_BYTES + MAX_HOST_BYTES + MAX_SECURITY_BYTES;

  /** The seat of a rank of this process. */
  static Seat here(Joiner joiner) {
    return here(joiner, joiner.heapFd() >= 0);
  }

  /** The same where ranks share no heaps. */
  static Seat withoutHeap(Joiner joiner) {
    return here(joiner, true);
  }

  private static Seat here(Joiner joiner, boolean shareable) {
    return new Seat(
        new Joiner(
            joiner.rank(),
            joiner.nranks(),
            joiner.process(),
            joiner.layoutHash(),
            -1,
            joiner.heapBytes(),
            joiner.restriction(),
            joiner.controlOffset(),
            joiner.security()),
        shareable,
        Place.HERE.pids(),
        Place.HERE.pid(),
        Libc.isAvailable() ? Memory.pageSize() : 0,
        BUILD,
        Place.HERE.host());
  }

  int rank() {
    return joiner.rank();
  }

  UUID process() {
    return joiner.process();
  }

  /** Names the rank and its process, and the host if it is another one. */
  @Override
  public String toString() {
    String elsewhere = host.equals(Place.HERE.host()) ? "" : " on " + host;
    return "rank " + rank() + " (process " + pid + elsewhere + ")";
  }

  void encode(ByteBuffer out) {
    byte[] buildBytes = build.getBytes(StandardCharsets.UTF_8);
    out.putInt(joiner.rank())
        .putInt(joiner.nranks())
        .putLong(joiner.process().getMostSignificantBits())
        .putLong(joiner.process().getLeastSignificantBits())
        .putLong(joiner.layoutHash())
        .putLong(joiner.heapBytes())
        .putLong(joiner.controlOffset())
        .put((byte) (shareable ? 1 : 0))
        .putInt(pids)
        .putInt(pid)
        .putLong(pageSize)
        .put((byte) buildBytes.length)
        .put(buildBytes);
    byte[] why = joiner.restriction().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(why.length, MAX_RESTRICTION_BYTES);
    out.putShort((short) length).put(why, 0, length);
    putShort(out, host, MAX_HOST_BYTES);
    putShort(out, joiner.security(), MAX_SECURITY_BYTES);
  }

  private static void putShort(ByteBuffer out, String text, int most) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int length = Math.min(bytes.length, most);
    out.put((byte) length).put(bytes, 0, length);
  }

  /** Reads a seat; throws RuntimeException if it is malformed. */
  static Seat decode(ByteBuffer in) {
    int rank = in.getInt();
    int nranks = in.getInt();
    UUID process = new UUID(in.getLong(), in.getLong());
    long layout = in.getLong();
    long heapBytes = in.getLong();
    long controlOffset = in.getLong();
    boolean shareable = in.get() != 0;
    int pids = in.getInt();
    int pid = in.getInt();
    long pageSize = in.getLong();
    byte[] build = new byte[in.get()];
    in.get(build);
    byte[] why = new byte[Short.toUnsignedInt(in.getShort())];
    in.get(why);
    byte[] host = new byte[in.get()];
    in.get(host);
    byte[] security = new byte[in.get()];
    in.get(security);
    Joiner joiner =
        new Joiner(
            rank,
            nranks,
            process,
            layout,
            -1,
            heapBytes,
            Failures.printable(why),
            controlOffset,
            Failures.printable(security));
    joiner.check();
    return new Seat(
        joiner,
        shareable,
        pids,
        pid,
        pageSize,
        new String(build, StandardCharsets.UTF_8),
        Failures.printable(host));
  }

  private static String libraryVersion() {
    byte[] bytes = LibraryVersion.text().getBytes(StandardCharsets.UTF_8);
    return new String(
        Arrays.copyOf(bytes, Math.min(bytes.length, MAX_BUILD_BYTES)), StandardCharsets.US_ASCII);
  }
}
