package io.nccl4j.internal.net;

/** What a port asks of messages, whatever carries them. */
public final class MessageCheck {
  private MessageCheck() {}

  /** Throws unless this is a small message. */
  public static void posted(long tag, long bytes) {
    if (isData(tag)) {
      throw new IllegalArgumentException("data is not posted but sent");
    }
    length(bytes, Port.SMALL_BYTES);
  }

  /** Throws unless this is data. */
  public static void sent(long tag, long bytes) {
    if (!isData(tag)) {
      throw new IllegalArgumentException("small messages are not sent but posted");
    }
    length(bytes, Integer.MAX_VALUE);
  }

  /** Throws unless data can be like this. */
  public static void received(long tag, long bytes) {
    if (!isData(tag)) {
      throw new IllegalArgumentException("small messages are not received but landed");
    }
    length(bytes, Integer.MAX_VALUE);
  }

  /** Whether a tag is one of data. */
  public static boolean isData(long tag) {
    return tag >>> Port.KIND_SHIFT >= Port.DATA;
  }

  private static void length(long bytes, long most) {
    if (bytes < 0 || bytes > most) {
      throw new IllegalArgumentException(bytes + " bytes; a message of this kind has 0 to " + most);
    }
  }
}
