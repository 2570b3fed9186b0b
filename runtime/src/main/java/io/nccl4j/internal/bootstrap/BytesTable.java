package io.nccl4j.internal.bootstrap;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** What each rank brings, until all have: then everybody gets all of it. Threads: any. */
final class BytesTable {
  /** Most bytes of one rank. */
  static final int MAX_BYTES = 1024;

  private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
  private byte[] @Nullable [] rows = {};
  private int come;

  /**
   * A rank brings something, once.
   *
   * @throws IllegalArgumentException if it is more than {@link #MAX_BYTES}
   */
  void put(int rank, int nranks, byte[] bytes) {
    check(bytes);
    byte[] encoded = null;
    synchronized (this) {
      if (rows.length < nranks) {
        rows = Arrays.copyOf(rows, nranks);
      }
      if (rows[rank] == null) {
        come++;
      }
      rows[rank] = bytes;
      if (come == nranks && rows.length == nranks) {
        encoded = encode();
      }
    }
    if (encoded != null) {
      whole.complete(encoded);
    }
  }

  /** Refuses more than {@link #MAX_BYTES}. */
  static void check(byte[] bytes) {
    if (bytes.length > MAX_BYTES) {
      throw new IllegalArgumentException(
          "a rank tells the others at most " + MAX_BYTES + " bytes, not " + bytes.length);
    }
  }

  /** Completes when all have. */
  CompletableFuture<byte[]> whole() {
    return whole;
  }

  private byte[] encode() {
    int bytes = 1 + Integer.BYTES;
    for (byte[] row : rows) {
      bytes += Short.BYTES + (row == null ? 0 : row.length);
    }
    ByteBuffer out = ByteBuffer.allocate(bytes).put(Answer.COMPLETE).putInt(rows.length);
    for (byte[] row : rows) {
      if (row != null) {
        out.putShort((short) row.length).put(row);
      }
    }
    return out.array();
  }

  /** Most bytes of a table of so many ranks. */
  static int mostBytes(int nranks) {
    return 1 + Integer.BYTES + nranks * (Short.BYTES + MAX_BYTES);
  }

  /** Reads what follows {@link Answer#COMPLETE}; throws RuntimeException if it is malformed. */
  static List<byte[]> decode(ByteBuffer in, int nranks) {
    if (in.getInt() != nranks) {
      throw new IllegalArgumentException("another number of ranks");
    }
    List<byte[]> rows = new ArrayList<>();
    for (int rank = 0; rank < nranks; rank++) {
      byte[] row = new byte[Short.toUnsignedInt(in.getShort())];
      in.get(row);
      rows.add(row);
    }
    return rows;
  }
}
