package io.nccl4j.launch;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;

/** Passes on what a process writes to one of its streams, until all its writers have closed it. */
final class OutputRelay {
  /** Gets the pieces. */
  interface Sink {
    /** A line, or a part of one. */
    void accept(byte[] bytes);
  }

  private OutputRelay() {}

  /** Reads everything; a line that is too long is passed on in parts. */
  static void drain(InputStream from, Sink to) throws IOException {
    byte[] buffer = new byte[RankOutput.MAX_BYTES];
    int kept = 0;
    for (int n = from.read(buffer); n >= 0; n = from.read(buffer, kept, buffer.length - kept)) {
      int start = 0;
      for (int i = kept; i < kept + n; i++) {
        if (buffer[i] == '\n') {
          to.accept(Arrays.copyOfRange(buffer, start, i + 1));
          start = i + 1;
        }
      }
      kept += n - start;
      System.arraycopy(buffer, start, buffer, 0, kept);
      if (kept == buffer.length) {
        to.accept(buffer.clone());
        kept = 0;
      }
    }
    if (kept > 0) {
      to.accept(Arrays.copyOf(buffer, kept));
    }
  }
}
