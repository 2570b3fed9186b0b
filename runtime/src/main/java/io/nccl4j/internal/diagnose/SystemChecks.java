package io.nccl4j.internal.diagnose;

import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.diagnose.SharedMemorySegment.Use;
import io.nccl4j.internal.machine.ByteSizes;
import io.nccl4j.internal.machine.ControlGroups;
import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.internal.machine.MemoryLimit;
import io.nccl4j.internal.machine.ProcessFiles;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The system below: container, limits, control groups, shared memory. */
final class SystemChecks {
  private static final long FEW_FILES = 4096;
  private static final long FEW_PROCESSES = 4096;
  private static final long SMALL_LOCK = 64L << 20;
  private static final long SMALL_MEMORY = 256L << 20;

  private final MachineFiles machine;
  private final boolean gpus;
  private final long shmBytes;

  /**
   * Checks of a machine.
   *
   * @param gpus whether there are some
   * @param shmBytes what NCCL needs in {@code /dev/shm} with a rank on each; 0 for nothing
   */
  SystemChecks(MachineFiles machine, boolean gpus, long shmBytes) {
    this.machine = machine;
    this.gpus = gpus;
    this.shmBytes = shmBytes;
  }

  List<Check> run(List<SharedMemorySegment> segments) {
    List<Check> checks = new ArrayList<>();
    checks.add(Check.ok("container", Container.of(machine).label()));
    sharedMemory(checks);
    leftovers(checks, segments);
    checks.add(memory());
    checks.add(locked());
    checks.add(
        limit(
            "open files",
            "Max open files",
            FEW_FILES,
            "ranks take many, among them a socket for each rank of another machine",
            "ulimit -n 65536"));
    checks.add(
        limit(
            "processes",
            "Max processes",
            FEW_PROCESSES,
            "ranks and threads take many",
            "ulimit -u 65536"));
    stack().ifPresent(checks::add);
    return checks;
  }

  private void sharedMemory(List<Check> checks) {
    SharedMemory memory = SharedMemory.of(machine);
    String what = "NCCL on " + (gpus ? "these GPUs" : "GPUs");
    String free =
        ByteSizes.text(memory.freeBytes())
            + " of "
            + ByteSizes.text(memory.totalBytes())
            + " are free";
    boolean usable = memory.state() == SharedMemory.State.USABLE;
    if (!gpus) {
      // The host backend does without.
      checks.add(
          Check.ok(SharedMemory.PATH, (usable ? free : label(memory)) + "; host needs none"));
      return;
    }
    var obstacle = memory.obstacle(machine, Math.max(1, shmBytes), what, "");
    if (obstacle.isPresent()) {
      var e = obstacle.get();
      boolean needed = shmBytes > 0 || memory.state() == SharedMemory.State.MISSING;
      checks.add(
          needed
              ? Check.fail(SharedMemory.PATH, e.problem(), e.remedy())
              : Check.warn(SharedMemory.PATH, label(memory), e.remedy()));
    } else if (shmBytes == 0) {
      checks.add(
          Check.ok(SharedMemory.PATH, free + "; processes on these GPUs need no room in it"));
    } else {
      checks.add(
          Check.ok(
              SharedMemory.PATH, free + ", NCCL needs " + ByteSizes.text(shmBytes) + " at least"));
    }
  }

  private static String label(SharedMemory memory) {
    return switch (memory.state()) {
      case USABLE -> "there";
      case MISSING -> "there is none";
      case READ_ONLY -> "it is read-only";
      case FORBIDDEN -> "this user may not create files in it";
    };
  }

  private static void leftovers(List<Check> checks, List<SharedMemorySegment> segments) {
    List<SharedMemorySegment> unused =
        segments.stream().filter(segment -> segment.use() == Use.UNUSED).toList();
    long unknown = segments.stream().filter(segment -> segment.use() == Use.UNKNOWN).count();
    if (segments.isEmpty()) {
      return;
    }
    String found =
        segments.size()
            + " files of NCCL, "
            + unused.size()
            + " unused ("
            + ByteSizes.text(unused.stream().mapToLong(SharedMemorySegment::bytes).sum())
            + "), "
            + unknown
            + " not known";
    checks.add(
        unused.isEmpty()
            ? Check.ok("leftovers", found)
            : Check.warn(
                "leftovers",
                found,
                "./nccl4j doctor --remove-unused-segments removes the unused ones"));
  }

  private Check memory() {
    Optional<MemoryLimit> limit = ControlGroups.of(machine).tightest();
    if (limit.isEmpty()) {
      return Check.ok("memory limit", "no control group has one");
    }
    MemoryLimit tight = limit.get();
    String found =
        ByteSizes.text(tight.roomBytes())
            + " of "
            + ByteSizes.text(tight.limitBytes())
            + " are left in "
            + tight.group();
    return tight.roomBytes() < SMALL_MEMORY
        ? Check.warn("memory limit", found, Container.of(machine).raiseMemory(1, tight.group()))
        : Check.ok("memory limit", found);
  }

  // ---- limits of the process

  private Check locked() {
    long bytes = machine.processes().softLimit("Max locked memory");
    boolean cards = machine.hasInfiniband();
    String found =
        bytes == ProcessFiles.UNLIMITED ? "unlimited" : ByteSizes.text(Math.max(0, bytes));
    if (!cards) {
      return Check.ok("locked memory", found + "; it counts where there is InfiniBand or RoCE");
    }
    return bytes < SMALL_LOCK
        ? Check.warn("locked memory", found, "ulimit -l unlimited (docker run --ulimit memlock=-1)")
        : Check.ok("locked memory", found);
  }

  private Check limit(String name, String line, long few, String why, String remedy) {
    long number = machine.processes().softLimit(line);
    if (number < 0) {
      return Check.ok(name, "not known");
    }
    String found = number == ProcessFiles.UNLIMITED ? "unlimited" : Long.toString(number);
    return number < few ? Check.warn(name, found + ", and " + why, remedy) : Check.ok(name, found);
  }

  /** Threads then get the C library's own size, which is less than usual. */
  private Optional<Check> stack() {
    return machine.processes().softLimit("Max stack size") == ProcessFiles.UNLIMITED
        ? Optional.of(Check.warn("stack", "unlimited: NCCL's threads get 2 MiB", "ulimit -s 8192"))
        : Optional.empty();
  }
}
