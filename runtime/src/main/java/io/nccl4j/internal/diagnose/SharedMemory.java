package io.nccl4j.internal.diagnose;

import io.nccl4j.SharedMemoryException;
import io.nccl4j.internal.machine.ByteSizes;
import io.nccl4j.internal.machine.ControlGroups;
import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.internal.machine.MemoryLimit;
import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/**
 * The folder {@code /dev/shm}, where NCCL's ranks on one machine meet, and whether it can hold what
 * they need. Looking takes some system calls and no memory of it.
 *
 * @param state whether files can be created there
 * @param totalBytes its size
 * @param freeBytes what can still be taken of it
 */
record SharedMemory(State state, long totalBytes, long freeBytes) {
  /** Its name, which NCCL does not let one choose. */
  static final String PATH = "/dev/shm";

  /** Whether files can be created there. */
  enum State {
    USABLE,
    MISSING,
    READ_ONLY,
    FORBIDDEN
  }

  static SharedMemory of(MachineFiles machine) {
    Path folder = machine.path(PATH);
    if (!Files.isDirectory(folder)) {
      return new SharedMemory(State.MISSING, 0, 0);
    }
    try {
      FileStore store = Files.getFileStore(folder);
      State state = State.USABLE;
      if (machine.processes().mountOptions(PATH).contains("ro")) {
        state = State.READ_ONLY;
      } else if (!Files.isWritable(folder) || !Files.isExecutable(folder)) {
        state = State.FORBIDDEN;
      }
      return new SharedMemory(state, store.getTotalSpace(), store.getUsableSpace());
    } catch (IOException e) {
      // It went away, or may not be looked at: nothing can be created there either.
      return new SharedMemory(State.FORBIDDEN, 0, 0);
    }
  }

  /** A size to ask for, twice as large as what is needed, in whole GiB. */
  static long gibibytes(long needBytes) {
    return Math.max(1, Math.ceilDiv(2 * needBytes, 1L << 30));
  }

  /** Bytes that files in it can take: none where none can be created. */
  long roomBytes() {
    return state == State.USABLE ? freeBytes : 0;
  }

  /**
   * What stands in the way of files of so many bytes together; empty if nothing does.
   *
   * @param needBytes how many; 0 if it only has to be there
   * @param what who needs them and for what: the beginning of the sentence
   * @param instead how to do without them, or an empty string
   */
  Optional<SharedMemoryException> obstacle(
      MachineFiles machine, long needBytes, String what, String instead) {
    Container container = Container.of(machine);
    long gib = gibibytes(needBytes);
    String needs =
        what + " needs " + ByteSizes.text(needBytes) + " of shared memory in " + PATH + ", ";
    if (state == State.MISSING) {
      // NCCL asks for the folder's device in every start.
      return failure(
          what + " needs the folder " + PATH + ", which does not exist",
          container.provide(gib),
          "",
          needBytes,
          0);
    }
    if (needBytes == 0) {
      return Optional.empty();
    }
    if (state == State.READ_ONLY) {
      String problem = needs + "which is read-only: 0 B can be taken";
      return failure(problem, container.makeWritable(gib), instead, needBytes, 0);
    }
    if (state == State.FORBIDDEN) {
      String problem = needs + "where this user may not create files: 0 B can be taken";
      return failure(problem, "as root: chmod 1777 " + PATH, instead, needBytes, 0);
    }
    if (freeBytes < needBytes) {
      String problem =
          needs
              + "where "
              + ByteSizes.text(freeBytes)
              + " of "
              + ByteSizes.text(totalBytes)
              + " are free";
      return failure(problem, container.enlarge(gib), instead, needBytes, freeBytes);
    }
    Optional<MemoryLimit> limit = ControlGroups.of(machine).tightest();
    if (limit.isPresent() && limit.get().roomBytes() < needBytes) {
      MemoryLimit tight = limit.get();
      String problem =
          needs
              + "and the memory limit of "
              + ByteSizes.text(tight.limitBytes())
              + " leaves "
              + ByteSizes.text(tight.roomBytes())
              + ": the system would kill the process";
      String remedy = container.raiseMemory(gib, tight.group());
      return failure(problem, remedy, instead, needBytes, tight.roomBytes());
    }
    return Optional.empty();
  }

  private static Optional<SharedMemoryException> failure(
      String problem, String remedy, String instead, long needBytes, long freeBytes) {
    String all = instead.isEmpty() ? remedy : remedy + "; or " + instead;
    return Optional.of(new SharedMemoryException(problem, all, needBytes, freeBytes));
  }
}
