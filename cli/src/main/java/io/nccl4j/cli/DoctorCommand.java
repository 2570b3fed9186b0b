package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Provider;
import io.nccl4j.bench.output.DiagnosisJson;
import io.nccl4j.cli.options.OptionRange;
import io.nccl4j.diagnose.Diagnosis;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.diagnose.Diagnosis.Status;
import io.nccl4j.diagnose.SharedMemorySegment;
import java.io.PrintStream;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code nccl4j doctor}: what is wrong with the machine, and what to do about it. */
@Command(
    name = "doctor",
    description = "Checks this machine: Java, libraries, GPUs, /dev/shm, limits, variables.",
    footer = {
      "",
      "Exit code: 0 no check failed, 1 internal error, 2 bad option, 3 failure, 10 a check failed."
    })
final class DoctorCommand extends Subcommand {
  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description =
          "auto, host or cuda; cuda must work if named, host loads nothing of CUDA; default"
              + " ${DEFAULT-VALUE}.")
  private String backend;

  @Option(names = "--json", description = "Write JSON.")
  private boolean json;

  @Option(
      names = "--remove-unused-segments",
      description = "First remove NCCL's files in /dev/shm that are provably unused.")
  private boolean remove;

  @Option(
      names = "--remove-stale-ids",
      description = "First remove files of unique ids whose process is gone.")
  private boolean removeIds;

  /** The command. */
  DoctorCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() {
    Backend named = OptionRange.checked(spec, () -> Backend.ofLabel(backend));
    List<SharedMemorySegment> removed = remove ? Diagnosis.removeUnusedSegments() : List.of();
    List<Path> ids = removeIds ? Diagnosis.removeStaleIds() : List.of();
    Diagnosis diagnosis = Diagnosis.of(named);
    if (json) {
      DiagnosisJson.write(context.out(), Provider.get().version(), diagnosis, removed, ids);
    } else {
      print(diagnosis, removed, ids);
    }
    return (diagnosis.isHealthy() ? ExitCode.OK : ExitCode.UNHEALTHY).number();
  }

  private void print(Diagnosis diagnosis, List<SharedMemorySegment> removed, List<Path> ids) {
    PrintStream out = context.out();
    out.println("# nccl4j " + Provider.get().version() + " doctor");
    for (Check check : diagnosis.checks()) {
      out.printf(
          Locale.ROOT, "%-4s  %-18s %s%n", label(check.status()), check.name(), check.found());
      if (!check.remedy().isEmpty()) {
        out.printf(Locale.ROOT, "%-24s -> %s%n", "", check.remedy());
      }
    }
    diagnosis.segments().forEach(segment -> segment(segment, ""));
    removed.forEach(segment -> segment(segment, "removed: "));
    ids.forEach(id -> out.println("# removed: " + id));
    out.printf(
        Locale.ROOT,
        "# %d ok, %d warn, %d fail%n",
        diagnosis.count(Status.OK),
        diagnosis.count(Status.WARN),
        diagnosis.count(Status.FAIL));
  }

  private void segment(SharedMemorySegment segment, String what) {
    context
        .out()
        .printf(
            Locale.ROOT,
            "# %s%s, %d B, owner %s, %s old, %s%n",
            what,
            segment.path(),
            segment.bytes(),
            segment.owner(),
            age(segment.age()),
            segment.reason().isEmpty() ? label(segment.use()) : segment.reason());
  }

  private static String age(Duration age) {
    if (age.toHours() > 0) {
      return age.toHours() + " h";
    }
    return age.toMinutes() > 0 ? age.toMinutes() + " min" : age.toSeconds() + " s";
  }

  private static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }
}
