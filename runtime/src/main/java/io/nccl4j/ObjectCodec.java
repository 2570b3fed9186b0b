package io.nccl4j;

import java.nio.charset.StandardCharsets;

/**
 * How objects become bytes and bytes objects again, for {@link Communicator#objects}. A codec is
 * used by the thread that makes the call; all ranks of a call use codecs that understand each
 * other.
 *
 * @param <T> the type of the objects
 */
public interface ObjectCodec<T> {
  /** Strings, in UTF-8. */
  ObjectCodec<String> UTF_8 =
      of(
          text -> text.getBytes(StandardCharsets.UTF_8),
          bytes -> new String(bytes, StandardCharsets.UTF_8));

  /**
   * One of the two ways of a codec.
   *
   * @param <F> what it takes
   * @param <R> what it returns
   */
  @FunctionalInterface
  interface Way<F, R> {
    /**
     * Converts one object or its bytes.
     *
     * @throws Exception any exception: the call on objects fails, on all ranks if this was encoding
     */
    R convert(F from) throws Exception;
  }

  /** A codec of two functions. */
  static <T> ObjectCodec<T> of(Way<T, byte[]> encode, Way<byte[], T> decode) {
    Way<T, byte[]> encoding = Require.present(encode, "way to encode");
    Way<byte[], T> decoding = Require.present(decode, "way to decode");
    return new ObjectCodec<>() {
      @Override
      public byte[] encode(T object) throws Exception {
        return encoding.convert(object);
      }

      @Override
      public T decode(byte[] bytes) throws Exception {
        return decoding.convert(bytes);
      }
    };
  }

  /**
   * The bytes of an object.
   *
   * @throws Exception any exception: the call on objects fails on all ranks
   */
  byte[] encode(T object) throws Exception;

  /**
   * The object of such bytes, which the codec may keep.
   *
   * @throws Exception any exception: the call on objects fails on this rank
   */
  T decode(byte[] bytes) throws Exception;
}
