package io.nccl4j.bench.result;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.NcclCommunicator;
import io.nccl4j.NcclException;
import io.nccl4j.NcclMemoryStatistics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * Memory of rank 0 and its process at the end of a run, in bytes.
 *
 * @param bufferBytes send and receive buffer of the rank
 * @param peakResidentBytes the most memory the process had at once; empty where the system does not
 *     tell
 * @param sharedResidentBytes of what it has now, shared memory: on the host backend its heap
 * @param nccl what NCCL allocated; null where it does not tell
 * @param ncclProblem why not; empty if it does
 */
public record MemoryUse(
    long bufferBytes,
    OptionalLong peakResidentBytes,
    OptionalLong sharedResidentBytes,
    @Nullable NcclMemoryStatistics nccl,
    String ncclProblem) {
  private static final Path STATUS = Path.of("/proc/self/status");

  /** Of the rank of a communicator; its thread calls it. */
  public static MemoryUse of(Communicator communicator, long bufferBytes) {
    List<String> status = status();
    NcclMemoryStatistics nccl = null;
    String problem = "";
    if (communicator instanceof NcclCommunicator owner) {
      try {
        nccl = owner.memoryStatistics();
      } catch (NcclException older) {
        problem = String.valueOf(older.getMessage());
      }
    } else {
      problem = "the " + Backend.HOST.label() + " backend does not use NCCL";
    }
    return new MemoryUse(
        bufferBytes, bytes(status, "VmHWM:"), bytes(status, "RssShmem:"), nccl, problem);
  }

  private static List<String> status() {
    try {
      return Files.readAllLines(STATUS);
    } catch (IOException notLinux) {
      return List.of();
    }
  }

  /** "VmHWM: 123456 kB" */
  private static OptionalLong bytes(List<String> status, String name) {
    return status.stream()
        .filter(line -> line.startsWith(name))
        .mapToLong(line -> Long.parseLong(line.replaceAll("\\D+", "")) << 10)
        .findFirst();
  }
}
