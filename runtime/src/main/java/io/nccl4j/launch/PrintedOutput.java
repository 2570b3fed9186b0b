package io.nccl4j.launch;

import io.nccl4j.SystemErrorException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Output that is printed. */
final class PrintedOutput implements RankOutput {
  private static final int NOBODY = -1;

  private final PrintStream[] streams;
  private final boolean prefix;

  /** For each stream, the rank whose line has not ended yet. */
  private final int[] open = {NOBODY, NOBODY};

  PrintedOutput(PrintStream out, PrintStream err, boolean prefix) {
    this.streams = new PrintStream[] {out, err};
    this.prefix = prefix;
  }

  @Override
  public void write(int rank, Channel channel, byte[] bytes) {
    int which = channel.ordinal();
    PrintStream stream = streams[which];
    if (open[which] != rank) {
      finish(which);
      if (prefix) {
        stream.writeBytes(("[" + rank + "] ").getBytes(StandardCharsets.UTF_8));
      }
    }
    stream.writeBytes(bytes);
    open[which] = bytes[bytes.length - 1] == '\n' ? NOBODY : rank;
    // This flushes, too; a print stream doesn't throw.
    if (stream.checkError()) {
      throw new SystemErrorException(
          (channel == Channel.OUT ? "the standard output" : "the standard error")
              + " cannot be written to",
          "keep its reader alive, or write to files");
    }
  }

  private void finish(int which) {
    if (open[which] != NOBODY) {
      streams[which].write('\n');
      open[which] = NOBODY;
    }
  }

  /** With ranks in front of lines, these are lines of text, which end with a newline. */
  @Override
  public void end() {
    for (int which = 0; prefix && which < streams.length; which++) {
      finish(which);
      streams[which].flush();
    }
  }
}
