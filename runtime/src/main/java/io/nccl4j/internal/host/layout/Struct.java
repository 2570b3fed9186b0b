package io.nccl4j.internal.host.layout;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32C;

/** A piece of shared memory, divided from its start on. It keeps a record of what lies where. */
final class Struct {
  private final StringBuilder record = new StringBuilder();
  private long end;

  Struct(String name) {
    record.append(name);
  }

  /** Puts a part at the next multiple of {@code alignment}; returns its offset. */
  long add(String part, long bytes, long alignment) {
    long at = end + alignment - 1 & -alignment;
    end = at + bytes;
    record.append(' ').append(part).append('@').append(at).append(':').append(bytes);
    return at;
  }

  /** Adds a word of 8 bytes. */
  long word(String part) {
    return add(part, Long.BYTES, Long.BYTES);
  }

  /** Notes a number that is not stored, but that all processes must know alike. */
  int value(String name, int value) {
    record.append(' ').append(name).append('=').append(value);
    return value;
  }

  /** Bytes of the whole, up to the next multiple of {@code alignment}. */
  long bytes(long alignment) {
    return add("end", 0, alignment);
  }

  /** A checksum of what lies where in all of these. */
  static int version(Struct... all) {
    CRC32C checksum = new CRC32C();
    for (Struct struct : all) {
      checksum.update(struct.record.append('\n').toString().getBytes(StandardCharsets.UTF_8));
    }
    return (int) checksum.getValue();
  }
}
