package io.nccl4j.internal.host.layout;

import io.nccl4j.NcclException;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Why a rank failed, as it tells the others: written once, before the state that says that it
 * failed, and readable even after the writer's death. It names the ranks to blame by one bit each.
 *
 * @param failedRanks see {@link NcclException#failedRanks()}
 * @param text what was wrong, perhaps cut off; empty if the rank did not say
 */
public record Reason(List<Integer> failedRanks, String text) {
  private static final int CONTINUATION = 0x80;
  private static final int CONTINUATION_MASK = 0xc0;

  /** Writes a rank's reason; the state that follows makes it visible. */
  public static void write(ControlBlock control, int rank, NcclException cause) {
    long at = control.reason(rank);
    long[] blamed = new long[Layout.MAX_RANKS / Long.SIZE];
    for (int k : cause.failedRanks()) {
      blamed[k / Long.SIZE] |= 1L << k;
    }
    control.setPlain(at + Layout.BLAMED, blamed, 0, blamed.length);
    byte[] text = cause.problem().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, Layout.TEXT_BYTES);
    while (length < text.length && (text[length] & CONTINUATION_MASK) == CONTINUATION) {
      length--;
    }
    MemorySegment.copy(text, 0, control.memory(), ValueLayout.JAVA_BYTE, at + Layout.TEXT, length);
    control.setPlain(at + Layout.TEXT_LENGTH, length);
  }

  /** Copies what a rank wrote. */
  static void copyOut(ControlBlock control, int rank, MemorySegment to, long offset) {
    MemorySegment.copy(control.memory(), control.reason(rank), to, offset, Layout.REASON_BYTES);
  }

  /** The other way round, for a rank that cannot write here. */
  static void copyIn(ControlBlock control, int rank, MemorySegment from, long offset) {
    MemorySegment.copy(from, offset, control.memory(), control.reason(rank), Layout.REASON_BYTES);
  }

  /** Reads the reason of a rank whose state says that it failed. */
  public static Reason read(ControlBlock control, int rank, int nranks) {
    long at = control.reason(rank);
    List<Integer> blamed = new ArrayList<>();
    for (int k = 0; k < nranks; k++) {
      if ((control.getPlain(at + Layout.BLAMED + (long) (k / Long.SIZE) * Long.BYTES) >>> k & 1)
          != 0) {
        blamed.add(k);
      }
    }
    int length = Math.clamp(control.getPlain(at + Layout.TEXT_LENGTH), 0, Layout.TEXT_BYTES);
    byte[] text = new byte[length];
    MemorySegment.copy(control.memory(), ValueLayout.JAVA_BYTE, at + Layout.TEXT, text, 0, length);
    return new Reason(List.copyOf(blamed), Failures.printable(text));
  }
}
