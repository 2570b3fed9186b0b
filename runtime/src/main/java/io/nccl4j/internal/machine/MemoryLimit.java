package io.nccl4j.internal.machine;

/**
 * The limit of a control group of memory: what a process takes beyond it ends in SIGKILL, not in an
 * error.
 *
 * @param group the group's folder
 * @param limitBytes what all its processes may take together
 * @param usedBytes what they take, without file pages that can be dropped
 */
public record MemoryLimit(String group, long limitBytes, long usedBytes) {
  /** Bytes that can still be taken. */
  public long roomBytes() {
    return Math.max(0, limitBytes - usedBytes);
  }
}
