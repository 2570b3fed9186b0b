package io.nccl4j.internal.bootstrap;

import io.nccl4j.internal.machine.ProcessFiles;
import java.util.UUID;

/**
 * One rank, as all ranks know it after the rendezvous.
 *
 * @param rank its rank
 * @param process random name of its process
 * @param pid id of its process; 0 if that process lies in another PID namespace (container), where
 *     its number means nothing to this process
 * @param heapBytes size of its process's heap in bytes
 */
public record Member(int rank, UUID process, long pid, long heapBytes) {
  /** Whether no process runs under that id in this PID namespace: a zombie does not. */
  public static boolean hasEnded(long pid) {
    return ProcessFiles.HERE.startOf(pid) == 0;
  }
}
