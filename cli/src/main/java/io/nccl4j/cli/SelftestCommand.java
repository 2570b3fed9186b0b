package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Feature;
import io.nccl4j.Provider;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.run.RankRange;
import io.nccl4j.bench.selftest.SelfTest;
import io.nccl4j.bench.selftest.SelfTestReport;
import io.nccl4j.bench.selftest.SelfTestReport.Column;
import io.nccl4j.cli.options.OptionRange;
import io.nccl4j.cli.process.RankEnvironment;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * {@code nccl4j selftest}: every operation on the machine at hand. The ranks are in processes that
 * this one starts, so that whatever happens there, the table comes.
 */
@Command(
    name = "selftest",
    description = {
      "Tests nccl4j on this machine: every operation, type and reduction, every element checked.",
      "Each COMMAND is a test of its own."
    },
    synopsisSubcommandLabel = "[COMMAND]",
    footer = {
      "",
      "Exit code: 0 no element is wrong, 1 internal error, 2 bad option, 3 failure, 4 timeout,",
      "7 wrong data."
    })
final class SelftestCommand extends Subcommand implements SelfTest.Listener {
  private static final String ROW = "row: ";
  private static final int THREADS = 3;
  private static final int ONE_THREAD = 4;
  private static final int PROCESSES = 2;
  private static final int MOST_GPUS = 8;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description = "auto for every backend that works, host or cuda; default ${DEFAULT-VALUE}.")
  private String backend;

  @Option(
      names = "--quick",
      description = "Test fewer sizes, which takes seconds instead of a minute.")
  private boolean quick;

  @Option(names = "--json", description = "Write JSON instead of the table.")
  private boolean json;

  @Option(names = "--layout", hidden = true, description = "For the processes with the ranks.")
  private @Nullable String layout;

  @Option(names = "--ranks", hidden = true, description = "For the processes with the ranks.")
  private int ranks;

  /** The command. */
  SelftestCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() throws Exception {
    Backend named = OptionRange.checked(spec, () -> Backend.ofLabel(backend));
    return layout == null ? parent(named) : child(named, SelfTest.Layout.ofLabel(layout));
  }

  // ---- the process with the table

  private int parent(Backend named) {
    List<Column> columns = new ArrayList<>();
    int code = 0;
    if (named != Backend.CUDA) {
      code = first(code, column(columns, Backend.HOST, SelfTest.Layout.THREADS, THREADS));
      code = first(code, column(columns, Backend.HOST, SelfTest.Layout.ONE_THREAD, ONE_THREAD));
      BackendInfo host = Backend.HOST.info();
      if (host.hasFeature(Feature.PROCESS_RANKS)) {
        code = first(code, column(columns, Backend.HOST, SelfTest.Layout.PROCESSES, PROCESSES));
      }
    }
    if (named != Backend.HOST) {
      BackendInfo info = Backend.CUDA.info();
      if (info.isUsable()) {
        code = first(code, gpus(columns, info));
      } else if (named == Backend.CUDA) {
        // Says what is missing.
        Device.get(Backend.CUDA, 0);
      } else {
        note("cuda is not tested: " + info.problem());
      }
    }
    SelfTestReport report = new SelfTestReport(Provider.get().version(), quick, columns);
    if (json) {
      report.writeJson(context.out());
    } else {
      report.writeText(context.out());
    }
    return report.passed() ? ExitCode.OK.number() : first(code, ExitCode.WRONG_DATA.number());
  }

  private static int first(int code, int next) {
    return code != 0 ? code : next;
  }

  private int gpus(List<Column> columns, BackendInfo info) {
    int gpus = Math.min(info.devices().size(), MOST_GPUS);
    if (gpus > 1) {
      int code = column(columns, Backend.CUDA, SelfTest.Layout.THREADS, gpus);
      code = first(code, column(columns, Backend.CUDA, SelfTest.Layout.ONE_THREAD, gpus));
      return first(code, column(columns, Backend.CUDA, SelfTest.Layout.PROCESSES, gpus));
    }
    int code = column(columns, Backend.CUDA, SelfTest.Layout.THREADS, 1);
    if (info.hasFeature(Feature.SHARED_GPU)) {
      code = first(code, column(columns, Backend.CUDA, SelfTest.Layout.THREADS, 2));
      code = first(code, column(columns, Backend.CUDA, SelfTest.Layout.ONE_THREAD, 2));
    } else {
      note("one GPU and an NCCL older than 2.30: two ranks are tested as processes only");
    }
    return first(code, column(columns, Backend.CUDA, SelfTest.Layout.PROCESSES, 2));
  }

  /** Runs all tests with one layout of ranks; the exit code of its processes. */
  private int column(List<Column> columns, Backend on, SelfTest.Layout as, int nranks) {
    note(on.label() + ", " + nranks + " ranks as " + as.label());
    List<SelfTest.Row> rows = new ArrayList<>();
    List<String> arguments =
        new ArrayList<>(List.of("selftest", "--backend", on.label(), "--layout", as.label()));
    arguments.addAll(List.of("--ranks", Integer.toString(nranks)));
    if (quick) {
      arguments.add("--quick");
    }
    int procs = as == SelfTest.Layout.PROCESSES ? nranks : 1;
    Options options = Options.builder().backend(on).build();
    int code =
        new ProcessRun(SharedGpus.allowedIn(context, on), options, procs)
            .withVariables(rank -> own(on, as, rank))
            .run(
                arguments,
                line -> {
                  if (line.startsWith(ROW)) {
                    rows.add(SelfTest.Row.parse(line.substring(ROW.length())));
                  }
                });
    columns.add(new Column(on, as, nranks, code, rows));
    return code;
  }

  private static Map<String, String> own(Backend on, SelfTest.Layout as, int rank) {
    return as == SelfTest.Layout.PROCESSES ? SharedGpus.ofProcess(on, rank) : Map.of();
  }

  private void note(String text) {
    context.err().println("nccl4j: selftest: " + text);
  }

  // ---- the processes with the ranks

  private int child(Backend on, SelfTest.Layout as) throws Exception {
    RankRange range =
        RankEnvironment.of(context.environment(), Options.builder().backend(on).build(), 1).range();
    List<SelfTest.Row> rows;
    if (as == SelfTest.Layout.PROCESSES) {
      Device device = SelfTest.device(on, range.firstRank());
      try (Communicator communicator = range.join(device, SelfTest.config())) {
        rows = SelfTest.onRank(communicator, quick, this);
      }
    } else {
      rows = SelfTest.inProcess(as, on, ranks, quick, this);
    }
    if (range.reports()) {
      rows.forEach(row -> context.out().println(ROW + row.format()));
    }
    boolean correct = rows.stream().allMatch(row -> row.wrong() == 0);
    return (correct ? ExitCode.OK : ExitCode.WRONG_DATA).number();
  }

  @Override
  public void done(SelfTest.Row row) {
    note(
        String.format(
            Locale.ROOT, "%s: %d cases, %.1f s", row.operation(), row.cases(), row.seconds()));
  }

  @Override
  public void wrong(String oneCase, long elements) {
    note(oneCase + ": " + elements + " elements are wrong");
  }

  @Override
  public void failed(String oneCase, String message) {
    note(oneCase + ": " + message);
  }
}
