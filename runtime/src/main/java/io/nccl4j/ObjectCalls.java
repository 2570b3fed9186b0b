package io.nccl4j;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Collectives that move objects as the bytes that an {@link ObjectCodec} makes of them; each rank's
 * may have another size. They are for settings, names and statistics, not for large data. Only the
 * codec serialises.
 *
 * <p>Got from {@link Communicator#objects}. All ranks call the same; a call waits for the others,
 * and what {@link ArrayCalls} says of threads and errors holds here. Each call is two operations on
 * arrays: one of sizes, one of bytes.
 *
 * <p><b>A codec that fails.</b> If an object cannot be encoded, the call fails on all ranks: with
 * {@link InvalidArgumentException} where it happened, caused by the codec's exception, and with
 * {@link PeerFailedException}, which has the rank and its reason, on the others. If bytes cannot be
 * decoded, it fails with {@link InvalidArgumentException} on that rank alone. Either way, the
 * communicator stays usable.
 *
 * <p><b>A rank that cannot go on</b> in the middle of a call, because its thread is interrupted or
 * it has no memory for what the others send, aborts the communicator, so that they do not wait for
 * it.
 *
 * @param <T> the type of the objects
 */
public final class ObjectCalls<T> {
  /** The most that an array holds in every JVM. */
  private static final long MOST_BYTES = Integer.MAX_VALUE - 8;

  /** Characters that other ranks hear of a failure. */
  private static final int MOST_TEXT = 1000;

  /** What is sent of one object: its bytes, or if there are none, the text of the failure. */
  private record Encoded(byte[] bytes, @Nullable Throwable failure) {
    /** Its length; the complement of it if it is a failure. */
    long header() {
      return failure == null ? bytes.length : ~(long) bytes.length;
    }

    static long length(long header) {
      return header < 0 ? ~header : header;
    }
  }

  /** What a rank has that sends nothing. */
  private static final Encoded NOTHING = new Encoded(new byte[0], null);

  private final ArrayCalls<long[]> sizes;
  private final ArrayCalls<byte[]> bytes;
  private final int rank;
  private final int nranks;
  private final ObjectCodec<T> codec;
  private final Consumer<Throwable> abort;

  ObjectCalls(
      ArrayCalls<long[]> sizes,
      ArrayCalls<byte[]> bytes,
      int rank,
      int nranks,
      ObjectCodec<T> codec,
      Consumer<Throwable> abort) {
    this.sizes = sizes;
    this.bytes = bytes;
    this.rank = rank;
    this.nranks = nranks;
    this.codec = Require.present(codec, "codec");
    this.abort = abort;
  }

  /**
   * Gathers an object of each rank; every rank gets them all.
   *
   * @return the objects in rank order, decoded anew on each rank
   * @throws InvalidArgumentException if an object of this rank could not be encoded or decoded, or
   *     all of them together have more than 2<sup>31</sup>−9 bytes
   * @throws PeerFailedException if another rank's object could not be encoded
   */
  public List<T> allGather(T object) {
    Encoded own = encode(object);
    long[] headers = headers(own);
    long[] counts = counts(headers);
    int sum = sum("allGather", counts);
    byte[] all = exchange(() -> allBytes(own, sum, counts));
    requireEncoded("allGather", headers, all, own.failure);
    return decodeAll("allGather", all, counts);
  }

  /**
   * Gathers an object of each rank; the root gets them all.
   *
   * @param root 0 … nranks−1, the same on all ranks
   * @return the objects in rank order; on other ranks than the root an empty list
   * @throws InvalidArgumentException if an object of this rank could not be encoded or decoded, or
   *     all of them together have more than 2<sup>31</sup>−9 bytes
   * @throws PeerFailedException if another rank's object could not be encoded
   */
  public List<T> gather(T object, int root) {
    requireRank("gather", root);
    Encoded own = encode(object);
    long[] headers = headers(own);
    long[] counts = counts(headers);
    int sum = sum("gather", counts);
    if (Arrays.stream(headers).anyMatch(header -> header < 0)) {
      // All ranks hear why, not only the root.
      byte[] all = exchange(() -> allBytes(own, sum, counts));
      requireEncoded("gather", headers, all, own.failure);
    }
    byte[] all =
        exchange(
            () -> {
              byte[] received = new byte[rank == root ? sum : 0];
              bytes.gatherV(own.bytes, received, counts, root);
              return received;
            });
    return rank == root ? decodeAll("gather", all, counts) : List.of();
  }

  /**
   * Copies the root's object to all ranks.
   *
   * @param object on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   * @return the object, which every rank but the root has decoded; on the root {@code object}
   *     itself
   * @throws InvalidArgumentException if an object of this rank could not be encoded or decoded
   * @throws PeerFailedException if the root's object could not be encoded
   */
  public T broadcast(@Nullable T object, int root) {
    requireRank("broadcast", root);
    Encoded own = rank == root ? encode(object) : NOTHING;
    long[] header = {own.header()};
    exchangeSizes(() -> sizes.broadcast(header, root));
    byte[] data = exchange(() -> bytesOf(own, header[0], root));
    if (header[0] < 0) {
      throw failed("broadcast", root, data, own.failure);
    }
    return rank == root && object != null ? object : decode("broadcast", data, root);
  }

  /**
   * Scatters the root's objects: rank <i>j</i> gets object <i>j</i>.
   *
   * @param objects nranks objects, on the root; unused on other ranks
   * @param root 0 … nranks−1, the same on all ranks
   * @return this rank's object, decoded, on the root, too
   * @throws InvalidArgumentException if an object of this rank could not be encoded or decoded,
   *     there are not nranks of them, or they have more than 2<sup>31</sup>−9 bytes together
   * @throws PeerFailedException if the root's objects could not be scattered for one of these
   *     reasons
   */
  public T scatter(@Nullable List<? extends T> objects, int root) {
    requireRank("scatter", root);
    List<Encoded> own = rank == root ? encodeEach(objects) : List.of();
    long[] headers = new long[nranks];
    for (int k = 0; k < own.size(); k++) {
      headers[k] = own.get(k).header();
    }
    exchangeSizes(() -> sizes.broadcast(headers, root));
    if (headers[0] < 0) {
      Encoded failure = rank == root ? own.getFirst() : NOTHING;
      byte[] text = exchange(() -> bytesOf(failure, headers[0], root));
      throw failed("scatter", root, text, failure.failure);
    }
    byte[] mine =
        exchange(
            () -> {
              byte[] received = new byte[(int) headers[rank]];
              bytes.scatterV(rank == root ? join(own) : null, headers, received, root);
              return received;
            });
    return decode("scatter", mine, root);
  }

  // ---- what the ranks exchange

  private long[] headers(Encoded own) {
    long[] headers = new long[nranks];
    exchangeSizes(() -> sizes.allGather(new long[] {own.header()}, headers));
    return headers;
  }

  private byte[] allBytes(Encoded own, int sum, long[] counts) {
    byte[] all = new byte[sum];
    bytes.allGatherV(own.bytes, all, counts);
    return all;
  }

  private byte[] bytesOf(Encoded own, long header, int root) {
    byte[] data = rank == root ? own.bytes : new byte[(int) Encoded.length(header)];
    bytes.broadcast(data, root);
    return data;
  }

  /** The first operation: what is refused here was not started. */
  private void exchangeSizes(Runnable operation) {
    try {
      operation.run();
    } catch (InterruptedWaitException e) {
      abort.accept(e);
      throw e;
    }
  }

  /** The second one, for which the others wait by now. */
  private byte[] exchange(Supplier<byte[]> operation) {
    try {
      return operation.get();
    } catch (RuntimeException | Error e) {
      abort.accept(e);
      throw e;
    }
  }

  // ---- objects and bytes

  @SuppressWarnings("NullAway") // what the codec makes of null is its business
  private Encoded encode(@Nullable T object) {
    try {
      byte[] encoded = codec.encode(object);
      return encoded != null ? new Encoded(encoded, null) : failure("the codec returned null");
    } catch (Throwable e) {
      // Whatever it is, the other ranks must hear of it before it is thrown.
      return failure(e);
    }
  }

  /** One for each rank, or a failure alone. */
  private List<Encoded> encodeEach(@Nullable List<? extends T> objects) {
    if (objects == null || objects.size() != nranks) {
      String found = objects == null ? "null" : objects.size() + " in number";
      return List.of(failure("the objects are " + found + ", for " + nranks + " ranks"));
    }
    List<Encoded> all = new ArrayList<>(nranks);
    long sum = 0;
    for (T object : objects) {
      Encoded one = encode(object);
      if (one.failure != null) {
        return List.of(one);
      }
      all.add(one);
      sum += one.bytes.length;
    }
    return sum <= MOST_BYTES ? all : List.of(failure("they have " + sum + " bytes together"));
  }

  private static Encoded failure(String what) {
    return failure(new InvalidArgumentException(what, "pass what can be encoded"));
  }

  private static Encoded failure(Throwable e) {
    String text = e.toString();
    String start = text.substring(0, Math.min(text.length(), MOST_TEXT));
    return new Encoded(start.getBytes(StandardCharsets.UTF_8), e);
  }

  private static byte[] join(List<Encoded> all) {
    byte[] joined = new byte[all.stream().mapToInt(one -> one.bytes.length).sum()];
    int at = 0;
    for (Encoded one : all) {
      System.arraycopy(one.bytes, 0, joined, at, one.bytes.length);
      at += one.bytes.length;
    }
    return joined;
  }

  private List<T> decodeAll(String call, byte[] all, long[] counts) {
    List<T> objects = new ArrayList<>(nranks);
    int at = 0;
    for (int k = 0; k < nranks; k++) {
      int end = at + (int) counts[k];
      objects.add(decode(call, Arrays.copyOfRange(all, at, end), k));
      at = end;
    }
    return objects;
  }

  private T decode(String call, byte[] data, int from) {
    try {
      return codec.decode(data);
    } catch (Exception e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  call
                      + ": rank "
                      + from
                      + "'s object cannot be decoded on rank "
                      + rank
                      + ": "
                      + e,
                  "use codecs that understand each other on all ranks")
              .causedBy(e);
    }
  }

  // ---- what can be wrong

  private static long[] counts(long[] headers) {
    return Arrays.stream(headers).map(Encoded::length).toArray();
  }

  private static int sum(String call, long[] counts) {
    long sum = Arrays.stream(counts).sum();
    if (sum > MOST_BYTES) {
      throw new InvalidArgumentException(
          call + ": the objects of all ranks have " + sum + " bytes, more than an array holds",
          "move large data in buffers");
    }
    return (int) sum;
  }

  private void requireRank(String call, int root) {
    if (root < 0 || root >= nranks) {
      throw new InvalidArgumentException(
          call + ": root is " + root, "the ranks are 0 to " + (nranks - 1));
    }
  }

  /** Throws if a rank has sent a failure in place of its object. */
  private void requireEncoded(String call, long[] headers, byte[] all, @Nullable Throwable own) {
    if (own != null) {
      throw failed(call, rank, new byte[0], own);
    }
    int at = 0;
    for (int k = 0; k < nranks; k++) {
      int end = at + (int) Encoded.length(headers[k]);
      if (headers[k] < 0) {
        throw failed(call, k, Arrays.copyOfRange(all, at, end), null);
      }
      at = end;
    }
  }

  private NcclException failed(String call, int failed, byte[] text, @Nullable Throwable own) {
    String what = call + ": an object of rank " + failed + " cannot be encoded";
    String remedy = "see that rank; the communicator stays usable";
    if (own == null) {
      return new PeerFailedException(
          failed, what + ": " + new String(text, StandardCharsets.UTF_8), remedy);
    }
    return new InvalidArgumentException(what + ": " + own, "see the cause").causedBy(own);
  }
}
