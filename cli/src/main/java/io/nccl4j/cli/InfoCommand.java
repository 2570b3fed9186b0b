package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.BackendInfo.DeviceInfo;
import io.nccl4j.BackendInfo.FeatureInfo;
import io.nccl4j.BackendInfo.LibraryInfo;
import io.nccl4j.BackendInfo.TuningInfo;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Provider;
import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.output.InfoJson;
import io.nccl4j.cli.options.OptionRange;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** {@code nccl4j info}: what is there to run on, and why something is not. */
@Command(
    name = "info",
    description = "Shows what was found on this machine: libraries, devices, features.",
    footer = {
      "",
      "With --verbose, the places searched for each library are listed as well.",
      "Exit code: 0 a backend can be used, 1 internal error, 2 bad option, 3 none can."
    })
final class InfoCommand extends Subcommand {
  private final Nccl4jCommand top;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description =
          "auto for both, host or cuda; host loads nothing of CUDA; default ${DEFAULT-VALUE}.")
  private String backend;

  @Option(names = "--json", description = "Write JSON.")
  private boolean json;

  @Option(
      names = "--tuning",
      description = "Show instead how each operation is carried out, by size.")
  private boolean tuning;

  @Option(
      names = "--nranks",
      paramLabel = "N",
      defaultValue = "2",
      description = "With --tuning: ranks of the communicator; default ${DEFAULT-VALUE}.")
  private int nranks;

  @Option(
      names = "--algo",
      paramLabel = "NAME",
      description = "With --tuning: what runs if this algorithm is forced.")
  private @Nullable String algorithm;

  @Option(
      names = "--proto",
      paramLabel = "NAME",
      description = "With --tuning: what runs if this protocol is forced.")
  private @Nullable String protocol;

  /** The command. */
  InfoCommand(Context context, Nccl4jCommand top) {
    super(context);
    this.top = top;
  }

  @Override
  public Integer call() {
    if (tuning) {
      return OptionRange.checked(spec, this::showTuning);
    }
    if (algorithm != null || protocol != null) {
      throw new ParameterException(
          spec.commandLine(), "--algo and --proto are for --tuning: add it, or leave them out");
    }
    List<BackendInfo> found = new ArrayList<>();
    for (Backend one : backends()) {
      found.add(one.info());
    }
    String version = Provider.get().version();
    String java = Runtime.version() + " (" + System.getProperty("java.vendor") + ")";
    String home = System.getProperty("java.home");
    if (json) {
      InfoJson.write(context.out(), version, java, home, found);
    } else {
      context.out().println("nccl4j " + version);
      context.out().println("Java   " + java + ", " + home);
      found.forEach(this::print);
    }
    boolean usable = found.stream().anyMatch(BackendInfo::isUsable);
    return (usable ? ExitCode.OK : ExitCode.FAILED).number();
  }

  private Integer showTuning() {
    CommunicatorConfig config = Setup.standard().forcing(algorithm, protocol).config();
    // What NCCL is told, NCCL alone can judge.
    Backend asked = Backend.ofLabel(backend);
    Backend shown = asked == Backend.AUTO ? Backend.HOST : asked;
    List<TuningInfo> rows = shown.tuning(nranks, config);
    if (json) {
      InfoJson.writeTuning(context.out(), Provider.get().version(), shown, nranks, rows);
    } else if (rows.isEmpty()) {
      context
          .out()
          .println(
              shown.label()
                  + ": NCCL chooses; NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING shows what");
    } else {
      TuningWriter.print(context.out(), shown, nranks, rows);
    }
    return ExitCode.OK.number();
  }

  private List<Backend> backends() {
    Backend named = OptionRange.checked(spec, () -> Backend.ofLabel(backend));
    return named == Backend.AUTO ? List.of(Backend.HOST, Backend.CUDA) : List.of(named);
  }

  private void print(BackendInfo info) {
    PrintStream out = context.out();
    out.println();
    out.print(info.backend().label() + ": ");
    out.println(info.isUsable() ? "can be used" : "cannot be used: " + info.problem());
    if (!info.remedy().isEmpty()) {
      line("remedy", info.remedy());
    }
    info.libraries().forEach(this::library);
    info.facts().forEach(fact -> line(fact.name(), fact.value()));
    info.devices().forEach(this::device);
    if (!info.libraries().isEmpty() && !info.features().isEmpty()) {
      line(
          "features", "what libraries and devices offer; docs/api.md says which of it nccl4j uses");
    }
    info.features().forEach(this::feature);
  }

  private void library(LibraryInfo library) {
    String wanted = "made for " + library.headers() + ", oldest " + library.floor();
    if (library.isFound()) {
      line(
          library.name(),
          (library.version().isEmpty() ? "" : library.version() + ", ")
              + library.path()
              + " ("
              + library.foundBy()
              + "); "
              + wanted
              + (library.problem().isEmpty() ? "" : "; " + library.problem()));
    } else {
      line(library.name(), "not found; " + wanted);
    }
    if (top.verbose()) {
      library.tried().forEach(place -> line("", "tried " + place));
    }
  }

  private void device(DeviceInfo device) {
    line(
        "device " + device.ordinal(),
        device.name()
            + ", compute capability "
            + device.computeCapability()
            + ", "
            + gib(device.freeBytes())
            + " of "
            + gib(device.memoryBytes())
            + " GiB free, "
            + device.pciAddress());
  }

  private void feature(FeatureInfo feature) {
    String reason = feature.reason().isEmpty() ? "" : "; " + feature.reason();
    String answer = feature.isPresent() ? "yes" : "no";
    context
        .out()
        .printf("  %-3s %s (%s)%s%n", answer, feature.feature().label(), feature.needs(), reason);
  }

  private void line(String name, String value) {
    context.out().printf("  %-14s %s%n", name, value);
  }

  private static String gib(long bytes) {
    return bytes < 0 ? "?" : String.format(Locale.ROOT, "%.1f", (double) bytes / ByteSize.GIB);
  }
}
