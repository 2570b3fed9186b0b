package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.MemoryAccess;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * What each message of UCX begins with: the id of the port that sends it (8 bytes), its tag (8
 * bytes) and its number (8 bytes): the <i>n</i>-th from this port to that one. Native byte order:
 * all machines of a job have the same.
 */
final class UcxHeader {
  static final int BYTES = 24;

  /** Tag of {@link UcxFrame}s. Tags of data are negative. */
  static final long FRAME = 0;

  /** Tag of a port's last message when it is closed. */
  static final long FAREWELL = 1;

  /** Tag of a port's last message when it is aborted. */
  static final long ABORT = 2;

  private static final MemorySegment MEMORY = MemoryAccess.everything();
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
  private static final long TAG = 8;
  private static final long NUMBER = 16;

  private UcxHeader() {}

  static void write(long at, long sender, long tag, long number) {
    MEMORY.set(LONG, at, sender);
    MEMORY.set(LONG, at + TAG, tag);
    MEMORY.set(LONG, at + NUMBER, number);
  }

  /** Whether a tag is one of a port's last message. */
  static boolean isLast(long tag) {
    return tag == FAREWELL || tag == ABORT;
  }

  static long sender(long at) {
    return MEMORY.get(LONG, at);
  }

  static long tag(long at) {
    return MEMORY.get(LONG, at + TAG);
  }

  static long number(long at) {
    return MEMORY.get(LONG, at + NUMBER);
  }
}
