package io.nccl4j;

import java.nio.file.Path;
import java.util.List;

/**
 * What the doctor found on this machine, made by {@link #of}. Texts are for people and may change;
 * names of checks do not.
 *
 * @param checks what was looked at
 * @param segments files of NCCL in {@code /dev/shm}, used and unused ones
 */
public record Diagnosis(List<Check> checks, List<SharedMemorySegment> segments) {
  /** How a check ended. */
  public enum Status {
    /** Nothing is wrong; or there is nothing to check, and the check says why. */
    OK,
    /** Something may be slow, surprising or fail later. */
    WARN,
    /** Something does not work. */
    FAIL
  }

  /**
   * One thing that was looked at.
   *
   * @param name what, for example {@code /dev/shm}; the same on every machine
   * @param status how it ended
   * @param found what was found
   * @param remedy what to do about it; empty if nothing is wrong
   */
  public record Check(String name, Status status, String found, String remedy) {
    /** Nothing is wrong. */
    public static Check ok(String name, String found) {
      return new Check(name, Status.OK, found, "");
    }

    /** Something may be. */
    public static Check warn(String name, String found, String remedy) {
      return new Check(name, Status.WARN, found, remedy);
    }

    /** Something does not work. */
    public static Check fail(String name, String found, String remedy) {
      return new Check(name, Status.FAIL, found, remedy);
    }
  }

  /** Copies the lists. */
  public Diagnosis {
    checks = List.copyOf(checks);
    segments = List.copyOf(segments);
  }

  /**
   * Looks at this machine and changes nothing. Takes a second or two where there are GPUs.
   *
   * @param backend what the machine is to run: with {@link Backend#AUTO} a GPU may be absent, with
   *     {@link Backend#CUDA} that is a failure; with {@link Backend#HOST} nothing of CUDA is loaded
   */
  public static Diagnosis of(Backend backend) {
    return Provider.get().diagnose(Require.present(backend, "backend"));
  }

  /**
   * Removes the files of NCCL in {@code /dev/shm} that are proven to be unused, and returns them.
   *
   * @throws SystemErrorException if a file cannot be removed
   */
  public static List<SharedMemorySegment> removeUnusedSegments() {
    return Provider.get().removeUnusedSegments();
  }

  /**
   * Removes the files of unique ids whose process is certainly gone, and returns them: those in the
   * folders where {@link Launch} leaves ids, and the one that {@code NCCL4J_UNIQUE_ID_FILE} names.
   * Each holds the secret of a job that was killed.
   *
   * @throws SystemErrorException if a file cannot be removed
   */
  public static List<Path> removeStaleIds() {
    return Provider.get().removeStaleIds();
  }

  /** How many checks ended so. */
  public long count(Status status) {
    return checks.stream().filter(check -> check.status == status).count();
  }

  /** Whether no check failed. */
  public boolean isHealthy() {
    return count(Status.FAIL) == 0;
  }
}
