package io.nccl4j.internal.diagnose;

import io.nccl4j.SharedMemoryException;
import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
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

  private static final int POINT = 1;
  private static final int OPTIONS = 3;

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
      if (isReadOnly(machine)) {
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

  /**
   * By the mount that shows: of those on a folder the last one. Java's own answer is that of the
   * first.
   */
  private static boolean isReadOnly(MachineFiles machine) {
    String options = "";
    String point = "";
    for (String line : machine.lines("/proc/self/mounts")) {
      String[] parts = line.split(" ");
      boolean above = parts.length > OPTIONS && (PATH + "/").startsWith(folder(parts[POINT]));
      if (above && parts[POINT].length() >= point.length()) {
        point = parts[POINT];
        options = parts[OPTIONS];
      }
    }
    return List.of(options.split(",")).contains("ro");
  }

  private static String folder(String path) {
    return path.endsWith("/") ? path : path + "/";
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
    long gib = Sizes.gibibytes(needBytes);
    String needs = what + " needs " + Sizes.text(needBytes) + " of shared memory in " + PATH + ", ";
    if (state == State.MISSING) {
      // NCCL asks for the folder's device in every start.
      return failure(
          what + " needs the folder " + PATH + ", and there is none",
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
          needs + "where " + Sizes.text(freeBytes) + " of " + Sizes.text(totalBytes) + " are free";
      return failure(problem, container.enlarge(gib), instead, needBytes, freeBytes);
    }
    Optional<MemoryLimit> limit = MemoryLimit.of(machine);
    if (limit.isPresent() && limit.get().roomBytes() < needBytes) {
      MemoryLimit tight = limit.get();
      String problem =
          needs
              + "and the memory limit of "
              + Sizes.text(tight.limitBytes())
              + " leaves "
              + Sizes.text(tight.roomBytes())
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
