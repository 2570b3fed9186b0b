package io.nccl4j.bench.output;

import io.nccl4j.CommunicatorHosts;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Sweep;
import io.nccl4j.bench.result.IterationTimes;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.PredictedMemory;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RankLayout;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.PrintStream;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import java.util.OptionalDouble;
import org.jspecify.annotations.Nullable;

/**
 * Prints nccl-tests' table, in its layout, so that what reads nccl-tests' output reads ours. Each
 * line is flushed. Differences: the first line names nccl4j; a device's identification is the name
 * of the backend where there is no bus address; the in-place columns are N/A for programs without
 * an in-place form; where there are several hosts two header lines tell which ranks share one, and
 * what carries data between them; two footer lines more tell the time of the first call and of the
 * same call at the end, and how long a cache line takes between processors of the ranks.
 */
public final class TextWriter implements RunListener {
  static final DateTimeFormatter TIME =
      DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss", Locale.ROOT);

  private static final String NUMBERS = "  %7s  %6s  %6s";

  private static final String EACH = "  %7s  %7s  %7s  %7s";

  // One column narrower than a number, as nccl-tests has it.
  private static final String UNCHECKED = "    N/A";

  private final PrintStream out;
  private boolean timestamps;
  private Method method = Method.standard();

  /** Prints to {@code out}, which stays the caller's. */
  public TextWriter(PrintStream out) {
    this.out = out;
  }

  /** The line that tells where the JSON goes; nccl-tests prints it first. */
  public void jsonGoesTo(String file) {
    line("# Writing JSON output to " + file);
  }

  @Override
  public void started(RunInfo info) {
    Options options = info.options();
    timestamps = options.timestamps();
    method = options.method();
    String nccl =
        info.ncclVersion().isEmpty() ? "" : " nccl-library=" + info.ncclVersion().getAsInt();
    line("# nccl4j version " + info.version() + " backend=" + info.backend().label() + nccl);
    line("# Collective test starting: " + info.program().testsName());
    parameters(options);
    blocking(options.blocking());
    hosts(info.hosts());
    line("#");
    line("# Using devices");
    info.ranks().forEach(this::device);
    columns();
  }

  private void parameters(Options options) {
    Sweep sweep = options.sweep();
    boolean factor = sweep.stepFactor() > 1;
    line(
        "# nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %d "
            + "agg iters: %d validation: %d graph: %d unalign: %d",
        options.threads(),
        options.gpus(),
        sweep.minBytes(),
        sweep.maxBytes(),
        factor ? sweep.stepFactor() : sweep.stepBytes(),
        factor ? "factor" : "bytes",
        options.warmup(),
        options.iterations(),
        method.aggregated(),
        options.check(),
        method.graphLaunches(),
        method.unaligned());
  }

  private void blocking(Blocking blocking) {
    switch (blocking) {
      case NONE -> {}
      case WAIT_AND_BARRIER ->
          line("# Blocking Enabled: wait and barrier after each inner iteration (-m) ");
      case WAIT -> line("# Blocking Enabled: wait after each inner iteration (-m), no barrier ");
      case WAIT_THEN_UNTIMED_BARRIER ->
          line(
              "# Blocking Enabled: wait and barrier after each outer iteration (-n); "
                  + "time excludes barrier ");
    }
  }

  private void hosts(CommunicatorHosts hosts) {
    if (hosts.count() > 1) {
      line("# Hosts %d: %s", hosts.count(), RankLayout.text(hosts.ranks()));
    }
    if (!hosts.network().isEmpty()) {
      String on = hosts.networkInterface().isEmpty() ? "" : " on " + hosts.networkInterface();
      line("# Network: %s%s, %s", hosts.network(), on, hosts.address());
    }
  }

  private void device(RankInfo rank) {
    line(
        "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s",
        rank.rank(),
        rank.group(),
        rank.pid(),
        rank.host(),
        rank.device(),
        rank.deviceId(),
        rank.deviceName());
  }

  private void columns() {
    boolean each = method.perIteration();
    String left = "# %10s  %12s  %8s  %6s  %6s";
    String empty = String.format(Locale.ROOT, left, "", "", "", "", "");
    line("#");
    line(
        empty
            + (each
                ? "              out-of-place (+ per-iteration)              "
                    + "                  in-place (+ per-iteration)"
                : "           out-of-place                       in-place          "));
    String time = method.cpuTime() ? "cputime" : "time";
    String names =
        placement(time, "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%").repeat(2);
    String units =
        placement("(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)").repeat(2);
    line(
        String.format(Locale.ROOT, left, "size", "count", "type", "redop", "root")
            + names
            + stamp("timestamp"));
    line(
        String.format(Locale.ROOT, left, "(B)", "(elements)", "", "", "")
            + units
            + stamp("%Y-%m-%d %H:%M:%S"));
  }

  private String stamp(String text) {
    return " " + (timestamps ? String.format(Locale.ROOT, "%19s", text) : "");
  }

  /** The columns of a placement; the last four are there only if iterations are timed. */
  private String placement(String... texts) {
    Object[] all = texts;
    return String.format(Locale.ROOT, NUMBERS + "  %6s", all)
        + (method.perIteration()
            ? String.format(Locale.ROOT, EACH, texts[4], texts[5], texts[6], texts[7])
            : "");
  }

  @Override
  public void measured(SizeResult result) {
    line(
        "%12d  %12d  %8s  %6s  %6d%s%s%s",
        result.size(),
        result.count(),
        result.type(),
        result.redop(),
        result.root(),
        numbers(result.outOfPlace()),
        numbers(result.inPlace()),
        timestamps ? String.format(Locale.ROOT, "%21s", TIME.format(result.time())) : "");
  }

  private String numbers(@Nullable Measurement measured) {
    if (measured == null) {
      return String.format(Locale.ROOT, NUMBERS, "N/A", "N/A", "N/A")
          + UNCHECKED
          + (method.perIteration()
              ? String.format(Locale.ROOT, EACH, "N/A", "N/A", "N/A", "N/A")
              : "");
    }
    String numbers =
        String.format(
            Locale.ROOT,
            NUMBERS,
            CFormat.fitted(method.cpuTime() ? measured.cpuMicros() : measured.micros(), 7),
            CFormat.fitted(measured.algBw(), 6),
            CFormat.fitted(measured.busBw(), 6));
    String wrong =
        measured.wrong().isEmpty()
            ? UNCHECKED
            : String.format(Locale.ROOT, "  %6s", CFormat.general(measured.wrong().getAsLong()));
    IterationTimes each = measured.iterations();
    return each == null
        ? numbers + wrong
        : numbers
            + wrong
            + String.format(
                Locale.ROOT,
                EACH,
                CFormat.fitted(each.min(), 7),
                CFormat.fitted(each.max(), 7),
                CFormat.fitted(each.percentile(99), 7),
                CFormat.fitted(each.variation(), 7));
  }

  @Override
  public void finished(RunResult result) {
    long wrong = result.wrongMeasurements();
    line("# %-20s : %d %s", "Out of bounds values", wrong, wrong == 0 ? "OK" : "FAILED");
    String floor = method.minBusBw() == 0 ? "" : result.fastEnough() ? "OK" : "FAILED";
    line("# %-20s : %s %s", "Avg bus bandwidth", CFormat.general(result.averageBusBw()), floor);
    MemoryPhases memory = result.phases();
    if (memory != null) {
      line(
          "# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total %s",
          "Memory usage",
          mib(memory.initialization()),
          mib(memory.user()),
          mib(memory.collective()),
          mib(memory.total()));
    }
    PredictedMemory nccl = result.predicted();
    if (nccl != null) {
      line(
          "# %-20s : Predicted %d B | Taken %d B | Difference on all ranks %+d to %+d B",
          "NCCL's memory",
          nccl.predicted(),
          nccl.taken(),
          nccl.leastDifference(),
          nccl.mostDifference());
    }
    line(
        "# %-20s : %.1f us cold, %.1f us warm",
        "First call", result.coldMicros(), result.warmMicros());
    line(
        "# %-20s : %s before, %s after",
        "Cache line, one way",
        nanos(result.line().beforeNanos()),
        nanos(result.line().afterNanos()));
    line("#");
    line("# Collective test concluded: %s", result.info().program().testsName());
  }

  private static String mib(long bytes) {
    return String.format(Locale.ROOT, "%.2f MiB", (double) bytes / ByteSize.MIB);
  }

  private static String nanos(OptionalDouble value) {
    return value.isEmpty() ? "N/A" : String.format(Locale.ROOT, "%.0f ns", value.getAsDouble());
  }

  private void line(String format, Object... values) {
    line(String.format(Locale.ROOT, format, values));
  }

  private void line(String text) {
    out.print(text + "\n");
    if (out.checkError()) {
      throw new SystemErrorException(
          "cannot write the results to standard output", "check the disk or the reader");
    }
  }
}
