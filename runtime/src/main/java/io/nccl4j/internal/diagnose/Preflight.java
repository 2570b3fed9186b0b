package io.nccl4j.internal.diagnose;

import io.nccl4j.SharedMemoryException;
import io.nccl4j.internal.machine.ByteSizes;
import io.nccl4j.internal.machine.MachineFiles;

/** What is checked before a backend asks its library for something that cannot work. */
public final class Preflight {
  private Preflight() {}

  /**
   * Makes sure that shared memory can hold what is needed. Takes some system calls.
   *
   * @param needBytes bytes in {@code /dev/shm}; 0 if the folder only has to be there
   * @param what who needs them and for what, the beginning of a sentence
   * @param instead how to do without them, or an empty string
   * @throws SharedMemoryException with need, free bytes and the remedy for where this process runs
   */
  public static void requireSharedMemory(long needBytes, String what, String instead) {
    MachineFiles machine = MachineFiles.here();
    SharedMemory.of(machine)
        .obstacle(machine, needBytes, what, instead)
        .ifPresent(
            obstacle -> {
              throw obstacle;
            });
  }

  /** How {@code /dev/shm} becomes larger where this process runs, and how large it is. */
  public static String sharedMemoryRemedy() {
    MachineFiles machine = MachineFiles.here();
    SharedMemory memory = SharedMemory.of(machine);
    return Container.of(machine).enlarge(2 * SharedMemory.gibibytes(memory.totalBytes()))
        + " ("
        + ByteSizes.text(memory.freeBytes())
        + " of "
        + ByteSizes.text(memory.totalBytes())
        + " are free in "
        + SharedMemory.PATH
        + ")";
  }
}
