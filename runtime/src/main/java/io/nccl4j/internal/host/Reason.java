package io.nccl4j.internal.host;

import io.nccl4j.NcclException;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Why a rank failed, as it tells the others: written once, before the state that says that it
 * failed, and readable even after the writer's death.
 *
 * <pre>
 * ranks to blame, one bit each      32 B
 * length of the text in bytes        8 B
 * text in UTF-8                    984 B
 * </pre>
 *
 * @param failedRanks see {@link NcclException#failedRanks()}
 * @param text what was wrong, perhaps cut off; empty if the rank did not say
 */
record Reason(List<Integer> failedRanks, String text) {
  /** Bytes of one rank, a multiple of a line. */
  static final int BYTES = 8 * ControlBlock.LINE;

  private static final int LENGTH = ControlBlock.MAX_RANKS / Byte.SIZE;
  private static final int TEXT = LENGTH + Long.BYTES;
  private static final int TEXT_BYTES = BYTES - TEXT;
  private static final int CONTINUATION = 0x80;
  private static final int CONTINUATION_MASK = 0xc0;

  /** Writes a rank's reason; the state that follows makes it visible. */
  static void write(ControlBlock control, int rank, NcclException cause) {
    long at = control.reason(rank);
    long[] blamed = new long[LENGTH / Long.BYTES];
    for (int k : cause.failedRanks()) {
      blamed[k / Long.SIZE] |= 1L << k;
    }
    control.setPlain(at, blamed, 0, blamed.length);
    byte[] text = cause.problem().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, TEXT_BYTES);
    while (length < text.length && (text[length] & CONTINUATION_MASK) == CONTINUATION) {
      length--;
    }
    MemorySegment.copy(text, 0, control.memory(), ValueLayout.JAVA_BYTE, at + TEXT, length);
    control.setPlain(at + LENGTH, length);
  }

  /** Reads the reason of a rank whose state says that it failed. */
  static Reason read(ControlBlock control, int rank, int nranks) {
    long at = control.reason(rank);
    List<Integer> blamed = new ArrayList<>();
    for (int k = 0; k < nranks; k++) {
      if ((control.getPlain(at + (long) (k / Long.SIZE) * Long.BYTES) >>> k & 1) != 0) {
        blamed.add(k);
      }
    }
    int length = Math.clamp(control.getPlain(at + LENGTH), 0, TEXT_BYTES);
    byte[] text = new byte[length];
    MemorySegment.copy(control.memory(), ValueLayout.JAVA_BYTE, at + TEXT, text, 0, length);
    return new Reason(List.copyOf(blamed), Failures.printable(text));
  }
}
