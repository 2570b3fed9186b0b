package io.nccl4j.cli;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.report.HtmlReport;
import io.nccl4j.bench.report.Picture;
import io.nccl4j.bench.report.ResultFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code nccl4j report}: results as one page. */
@Command(
    name = "report",
    description =
        "Writes results as one self-contained HTML page: everything that compare reads, and JMH's"
            + " JSON.",
    footer = {"", "Exit code: 0 the page is written, 1 internal error, 2 bad option, 3 failure."})
final class ReportCommand extends Subcommand {
  @Parameters(
      arity = "1..*",
      paramLabel = "[NAME=]FILE[#PEER]",
      description = "Results; NAME labels them, #PEER selects one peer's lines from the file.")
  private List<String> files = List.of();

  @Option(
      names = {"-o", "--output_file"},
      paramLabel = "FILE",
      defaultValue = "report.html",
      description = "The page; an existing file is replaced; default ${DEFAULT-VALUE}.")
  private Path output = Path.of("");

  @Option(
      names = "--picture",
      paramLabel = "FILE",
      description = "The times as an SVG picture, too, if all results are of one operation.")
  private @Nullable Path picture;

  @Option(
      names = "--title",
      paramLabel = "TEXT",
      defaultValue = "Collectives",
      description = "Title of the page; default ${DEFAULT-VALUE}.")
  private String title = "";

  /** The command. */
  ReportCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() {
    ResultFiles results = new ResultFiles();
    files.forEach(results::add);
    String page = HtmlReport.of(title, results.runs(), results.scores());
    String drawn = picture == null ? "" : Picture.of(title, results.runs());
    write(output, page, "the report");
    if (picture != null) {
      write(picture, drawn, "the picture");
    }
    return ExitCode.OK.number();
  }

  private void write(Path file, String content, String what) {
    try {
      Files.writeString(file, content);
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException("cannot write " + file + ": " + e, "name a writable file")
              .causedBy(e);
    }
    context.out().println("# Writing " + what + " to " + file);
  }
}
