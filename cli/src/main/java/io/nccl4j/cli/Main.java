package io.nccl4j.cli;

import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.function.Supplier;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The entry point of the command line. */
public final class Main {
  private final Map<String, String> environment;
  private final PrintStream out;
  private final PrintStream err;

  /**
   * A command line.
   *
   * @param environment the variables it sees
   * @param out gets results
   * @param err gets everything else
   */
  Main(Map<String, String> environment, PrintStream out, PrintStream err) {
    this.environment = environment;
    this.out = out;
    this.err = err;
  }

  /** Runs a command and exits with its code. */
  public static void main(String[] arguments) {
    logToStandardError();
    System.exit(new Main(System.getenv(), System.out, System.err).run(arguments));
  }

  /**
   * By the Log4j API's own logger: an implementation would take longer to start than the rest, and
   * dates take longer than the logger.
   */
  private static void logToStandardError() {
    String level = System.getenv("NCCL4J_LOG_LEVEL");
    Map<String, String> settings =
        Map.of(
            "log4j.provider",
            "org.apache.logging.log4j.simple.internal.SimpleProvider",
            "org.apache.logging.log4j.simplelog.level",
            level == null ? "WARN" : level,
            "org.apache.logging.log4j.simplelog.showdatetime",
            String.valueOf(level != null));
    settings.forEach(
        (name, value) -> {
          if (System.getProperty(name) == null) {
            System.setProperty(name, value);
          }
        });
  }

  /** Runs a command. */
  int run(String... arguments) {
    Nccl4jCommand top = new Nccl4jCommand();
    Context context = new Context(environment, out, err, Main.class);
    CommandLine commandLine = new CommandLine(top);
    Map<String, Supplier<Object>> commands = commands(context, top);
    Supplier<Object> named = arguments.length == 0 ? null : commands.get(arguments[0]);
    if (named != null) {
      // The options of all others take a while to read.
      commandLine.addSubcommand(named.get());
    } else {
      new LinkedHashSet<>(commands.values())
          .forEach(command -> commandLine.addSubcommand(command.get()));
      commandLine.addSubcommand(new CompletionCommand(context));
    }
    commandLine
        .setOut(new PrintWriter(out, true, out.charset()))
        .setErr(new PrintWriter(err, true, err.charset()))
        .setParameterExceptionHandler(this::badOption)
        .setExecutionExceptionHandler((failure, command, parsed) -> report(failure, top));
    try {
      return commandLine.execute(arguments);
    } catch (RuntimeException e) {
      return report(e, top);
    }
  }

  /**
   * The commands by their names, in the order in which help lists them; without {@code completion},
   * which is about all of them.
   */
  private static Map<String, Supplier<Object>> commands(Context context, Nccl4jCommand top) {
    Map<String, Supplier<Object>> commands = new LinkedHashMap<>();
    commands.put("info", () -> new InfoCommand(context, top));
    commands.put("doctor", () -> new DoctorCommand(context));
    commands.put("memory", () -> new MemoryCommand(context));
    for (Program program : Programs.all()) {
      Supplier<Object> command = () -> BenchCommand.of(context, program);
      commands.put(program.command(), command);
      commands.put(program.testsName(), command);
    }
    commands.put("run", () -> RunCommand.of(context));
    commands.put("compare", () -> new CompareCommand(context));
    commands.put("turns", () -> new TurnsCommand(context));
    commands.put("report", () -> new ReportCommand(context));
    commands.put(
        "selftest",
        () ->
            new CommandLine(new SelftestCommand(context))
                .addSubcommand(new FifoLeakCommand(context))
                .addSubcommand(new FirstCallCommand(context))
                .addSubcommand(new SoakCommand(context)));
    commands.put(
        "jmh",
        () -> new CommandLine(new JmhCommand()).setUnmatchedOptionsArePositionalParams(true));
    return commands;
  }

  private int badOption(ParameterException e, String[] arguments) {
    String command = e.getCommandLine().getCommandSpec().qualifiedName();
    String problem = String.valueOf(e.getMessage()).replaceAll("\\s*\\R\\s*", " ");
    line(problem + "; see " + command + " --help");
    return ExitCode.BAD_OPTION.number();
  }

  private int report(Throwable failure, Nccl4jCommand top) {
    ExitCode code = ExitCode.of(failure);
    if (code == ExitCode.INTERNAL) {
      line("internal error: " + failure + (top.verbose() ? "" : "; --verbose shows where"));
    } else {
      line(String.valueOf(failure.getMessage()));
    }
    if (top.verbose()) {
      failure.printStackTrace(err);
    }
    return code.number();
  }

  private void line(String text) {
    err.println("nccl4j: " + text.stripTrailing());
  }
}
