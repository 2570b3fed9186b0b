package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.cli.process.RankEnvironment;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;

/** Holds docs/cli.md to the commands and options that there are. */
final class CliDocTest {
  private static final Pattern NAME = Pattern.compile("`([^`]+)`");
  private static final Pattern COMMAND =
      Pattern.compile("^  ([a-z]\\w*), (\\w+)\\s", Pattern.MULTILINE);

  private static final String PAGE = page();

  private static String page() {
    Path folder = Path.of("").toAbsolutePath();
    while (!Files.exists(folder.resolve("docs/cli.md"))) {
      folder = folder.getParent();
    }
    try {
      return Files.readString(folder.resolve("docs/cli.md"));
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void everyOptionIsListedWithItsValueAndDefault() {
    Context context = new Context(Map.of(), System.out, System.err, Main.class);
    CommandSpec command = bench(context, Programs.all().getFirst());
    CommandSpec top = CommandSpec.forAnnotatedObject(new Nccl4jCommand());
    Map<String, String> expected = new TreeMap<>();
    for (List<OptionSpec> options : List.of(command.options(), top.options())) {
      for (OptionSpec option : options) {
        String value = option.arity().max() == 0 ? "" : option.paramLabel();
        String standard = value.isEmpty() ? "" : String.valueOf(option.defaultValue());
        expected.put(String.join(", ", option.names()), value + " " + standard.replace("null", ""));
      }
    }
    assertEquals(expected, rows("## Options"));
  }

  @Test
  void everySelfTestIsListedWithItsOptions() {
    Context context = new Context(Map.of(), System.out, System.err, Main.class);
    Map<String, Object> tests =
        Map.of(
            "fifo-leak",
            new FifoLeakCommand(context),
            "first-call",
            new FirstCallCommand(context),
            "soak",
            new SoakCommand(context));
    options("## Self tests", new SelftestCommand(context));
    options("## Run", new RunCommand(context));
    options("## Doctor", new DoctorCommand(context));
    options("## Compare", new CompareCommand(context));
    options("## Turns", new TurnsCommand(context));
    options("## Report", new ReportCommand(context));
    options("## Info", new InfoCommand(context, new Nccl4jCommand()));
    options("## Memory", new MemoryCommand(context));
    tests.forEach(
        (name, command) -> {
          options("### " + name, command);
          assertTrue(section("### " + name).contains("./nccl4j selftest " + name));
        });
  }

  private static void options(String heading, Object command) {
    Map<String, String> expected = new TreeMap<>();
    for (OptionSpec option : CommandSpec.forAnnotatedObject(command).options()) {
      if (!option.hidden()) {
        String value = option.arity().max() == 0 ? "" : option.paramLabel();
        String standard = String.valueOf(option.defaultValue()).replace("null", "");
        expected.put(
            String.join(", ", option.names()), value + " " + (value.isEmpty() ? "" : standard));
      }
    }
    assertEquals(expected, rows(heading));
  }

  @Test
  void allCommandsHaveTheSameOptions() {
    Context context = new Context(Map.of(), System.out, System.err, Main.class);
    List<String> first = names(bench(context, Programs.all().getFirst()));
    for (Program program : Programs.all()) {
      assertEquals(first, names(bench(context, program)));
    }
  }

  private static CommandSpec bench(Context context, Program program) {
    return BenchCommand.of(context, program).getCommandSpec();
  }

  private static List<String> names(CommandSpec command) {
    return command.options().stream().map(option -> String.join(", ", option.names())).toList();
  }

  @Test
  void everyCommandIsListed() {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    PrintStream print = new PrintStream(out, true, StandardCharsets.UTF_8);
    assertEquals(0, new Main(Map.of(), print, print).run("--help"));
    Matcher help = COMMAND.matcher(out.toString(StandardCharsets.UTF_8));
    Map<String, String> expected = new TreeMap<>();
    while (help.find()) {
      expected.put(help.group(1), "`" + help.group(2) + "`");
    }
    assertTrue(expected.containsKey("allreduce"), out::toString);
    Map<String, String> listed = new TreeMap<>();
    rows("# Command line").forEach((name, rest) -> listed.put(name, rest.split(" ")[0]));
    assertEquals(expected, listed);
  }

  @Test
  void everyExitCodeIsListed() {
    String table = section("## Exit codes");
    for (ExitCode code : ExitCode.values()) {
      assertTrue(table.contains("\n| " + code.number() + " | "), code::toString);
    }
    assertEquals(
        ExitCode.values().length + 2, table.lines().filter(l -> l.startsWith("|")).count());
  }

  @Test
  void variablesOfLaunchersAreListed() {
    String section = section("### Launchers");
    for (String variable :
        List.of(
            RankEnvironment.RANK,
            RankEnvironment.NRANKS,
            RankEnvironment.LOCAL_NRANKS,
            RankEnvironment.JOB,
            RankEnvironment.UNIQUE_ID,
            RankEnvironment.UNIQUE_ID_FILE,
            RankEnvironment.RENDEZVOUS,
            RankEnvironment.LOCAL_RANK,
            RankEnvironment.RENDEZVOUS_DIR,
            RankEnvironment.LAUNCHER)) {
      assertTrue(section.contains("| `" + variable + "` |"), variable);
    }
  }

  /** Of a section's first table, the names in the first column with the next two columns. */
  private static Map<String, String> rows(String heading) {
    Map<String, String> rows = new TreeMap<>();
    for (String line : section(heading).lines().toList()) {
      String[] cells = line.split("(?<!\\\\)\\|", -1);
      if (cells.length > 4 && cells[1].contains("`")) {
        List<String> names = new ArrayList<>();
        Matcher name = NAME.matcher(cells[1]);
        while (name.find()) {
          names.add(name.group(1));
        }
        rows.put(
            String.join(", ", names),
            cells[2].strip().replace("\\|", "|") + " " + cells[3].strip());
      }
    }
    return rows;
  }

  private static String section(String heading) {
    int start = PAGE.indexOf(heading + "\n");
    assertTrue(start >= 0, heading);
    int end = PAGE.indexOf("\n## ", start + heading.length());
    // A section without its parts; a part ends at its sibling.
    int part = heading.startsWith("##") ? PAGE.indexOf("\n### ", start + 1) : -1;
    end = part >= 0 && part < end ? part : end;
    return PAGE.substring(start, end < 0 ? PAGE.length() : end);
  }
}
