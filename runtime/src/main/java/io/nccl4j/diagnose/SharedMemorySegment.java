package io.nccl4j.diagnose;

import java.time.Duration;

/**
 * A file of NCCL in {@code /dev/shm}. A healthy run unlinks its files as soon as all ranks have
 * opened them: a file that still has a name is in use, or was left behind by a killed run.
 *
 * @param path the file
 * @param bytes memory that it takes
 * @param owner the user it belongs to
 * @param age time since it was written to last
 * @param use whether somebody uses it
 * @param reason who uses it, or why that is not known; empty if it is unused
 */
public record SharedMemorySegment(
    String path, long bytes, String owner, Duration age, Use use, String reason) {
  /** Whether somebody uses a file. */
  public enum Use {
    /** Provably no process has it open or maps it. */
    UNUSED,
    /** A process has it open or maps it. */
    USED,
    /** It cannot be proven either way; such a file is left alone. */
    UNKNOWN
  }
}
