package io.nccl4j.bench.run;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.options.TurnSeat;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Whose turn it is of two runs that measure in turns: a small file that both have in memory. Turns
 * have numbers from 0 on; those of side 0 are even, those of side 1 odd.
 *
 * <p>A process makes the file, starts both runs with the file's name in {@value TurnSeat#VARIABLE},
 * and says which run has left, so that the other one does not wait for it. If that process ends, so
 * do the runs. All methods may be called by any thread.
 */
public final class TurnFile implements AutoCloseable {
  private static final long MAGIC = 0x4e434a5455524e31L;
  private static final int BYTES = 4096;

  // Far apart, as the turn is looked at all the time.
  private static final long MAGIC_AT = 0;
  private static final long GIVER_AT = 8;
  private static final long LEFT_AT = 16;
  private static final long NUMBER_AT = 128;
  private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

  private final Arena arena = Arena.ofShared();
  private final MemorySegment memory;

  private TurnFile(Path file) throws IOException {
    try (FileChannel channel =
        FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      memory = channel.map(MapMode.READ_WRITE, 0, BYTES, arena);
    }
  }

  /**
   * Makes an empty file one of turns, which this process gives.
   *
   * @throws SystemErrorException if it cannot be written
   */
  public static TurnFile create(Path file) {
    return create(file, ProcessHandle.current().pid());
  }

  /** The same of another process. */
  static TurnFile create(Path file, long giver) {
    try {
      Files.write(file, new byte[BYTES]);
      TurnFile turns = new TurnFile(file);
      turns.set(GIVER_AT, giver);
      turns.set(MAGIC_AT, MAGIC);
      return turns;
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException("cannot write " + file + ": " + e, "use another folder")
              .causedBy(e);
    }
  }

  /**
   * Opens a file of turns.
   *
   * @throws InvalidArgumentException if it is none
   */
  static TurnFile open(Path file) {
    try {
      if (Files.size(file) == BYTES) {
        TurnFile turns = new TurnFile(file);
        if (turns.get(MAGIC_AT) == MAGIC) {
          return turns;
        }
        turns.close();
      }
    } catch (IOException e) {
      throw (InvalidArgumentException) notOne(file, ": " + e).causedBy(e);
    }
    throw notOne(file, ", which is not a file of turns");
  }

  private static InvalidArgumentException notOne(Path file, String why) {
    return new InvalidArgumentException(
        TurnSeat.VARIABLE + " names " + file + why, "leave the variable to ./nccl4j turns");
  }

  private long get(long offset) {
    return (long) LONG.getVolatile(memory, offset);
  }

  private void set(long offset, long value) {
    LONG.setVolatile(memory, offset, value);
  }

  private static long leftAt(int side) {
    return LEFT_AT + side * (long) Long.BYTES;
  }

  /** The number of the present turn. */
  public long number() {
    return get(NUMBER_AT);
  }

  /** Ends a turn; for the side whose turn it is. */
  void end(long number) {
    set(NUMBER_AT, number + 1);
  }

  /** Says that a side takes no turns any more. */
  public void leave(int side) {
    set(leftAt(side), 1);
  }

  /** Whether a side has left. */
  boolean hasLeft(int side) {
    return get(leftAt(side)) != 0;
  }

  /** Whether the process that made the file is still there. */
  boolean isGiven() {
    return ProcessHandle.of(get(GIVER_AT)).map(ProcessHandle::isAlive).orElse(false);
  }

  /** Gives the memory back; the file stays. */
  @Override
  public void close() {
    arena.close();
  }
}
