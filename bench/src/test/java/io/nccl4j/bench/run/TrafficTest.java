package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.output.TrafficSummary;
import io.nccl4j.bench.program.AllToAllVProgram;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Traffic;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(60)
class TrafficTest {
  @TempDir Path folder;

  private Path matrix(String text) throws IOException {
    return Files.writeString(folder.resolve("matrix"), text);
  }

  private static Map<String, String> file(Path file) {
    return Map.of(Traffic.FILE, file.toString());
  }

  @ParameterizedTest
  @CsvSource({"1, 0, 1600, 3200, 4800", "0, 2400, 2400, 2400, 2400", "0.5, 1200, 2000, 2800, 3600"})
  void sharesGrowWithTheDistance(String spread, long own, long first, long second, long third) {
    Traffic traffic = Traffic.of(Map.of(Traffic.SPREAD, spread));
    for (int rank = 0; rank < 4; rank++) {
      assertEquals(own, traffic.bytes(rank, rank, 4, 9600));
      assertEquals(first, traffic.bytes(rank, (rank + 1) % 4, 4, 9600));
      assertEquals(second, traffic.bytes(rank, (rank + 2) % 4, 4, 9600));
      assertEquals(third, traffic.bytes(rank, (rank + 3) % 4, 4, 9600));
      assertEquals(9600, traffic.sentBefore(4, rank, 4, 9600));
      assertEquals(9600, traffic.receivedBefore(4, rank, 4, 9600));
    }
  }

  @Test
  void filesSayWhoSendsWhatToWhom() throws IOException {
    Path file = matrix("100 200 150\n\n 50\t100 75\n300 150 1e3  \n");
    Traffic traffic = Traffic.of(Map.of(Traffic.FILE, file.toString(), Traffic.SCALE, "2"));
    assertEquals(3, traffic.rows());
    assertEquals(192, traffic.bytes(0, 0, 3, 0));
    assertEquals(400, traffic.bytes(0, 1, 3, 0));
    assertEquals(2000, traffic.bytes(2, 2, 3, 0));
    assertEquals(192 + 96 + 592, traffic.receivedBefore(3, 0, 3, 0));
  }

  @Test
  void whatMeansNothingIsRefused() throws IOException {
    refused("NCCL_TESTS_ALLTOALLV_SPREAD is '1.5'", Map.of(Traffic.SPREAD, "1.5"));
    refused("NCCL_TESTS_ALLTOALLV_SPREAD is 'NaN'", Map.of(Traffic.SPREAD, "NaN"));
    refused("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE is '-1'", Map.of(Traffic.SCALE, "-1"));
    refused("cannot read the matrix", file(folder.resolve("nowhere")));
    refused("is empty", file(matrix(" \n")));
    refused("2 rows, and a row of 3 numbers", file(matrix("1 2 3\n1 2 3\n")));
    refused("'x' in line 2", file(matrix("1 2\n1 x\n")));
    refused("'-4' in line 1", file(matrix("-4 2\n1 2\n")));
    refused("PRINT_SUMMARY is 'yes'", Map.of(Traffic.SUMMARY, "yes"));
  }

  private static void refused(String part, Map<String, String> environment) {
    String message =
        assertThrows(InvalidArgumentException.class, () -> new AllToAllVProgram().with(environment))
            .getMessage();
    assertTrue(message.contains(part), message);
  }

  @Test
  void aMatrixMustFitTheRun() throws IOException {
    Program program = new AllToAllVProgram().with(file(matrix("16 32\n64 16\n")));
    program.check(options(80, 80).build(), 2);
    unfit("has 2 rows, but there are 3 ranks", program, options(80, 80).build(), 3);
    unfit("minbytes is not maxbytes", program, options(8, 80).build(), 2);
    unfit("the matrix needs 80 bytes", program, options(79, 79).build(), 2);
  }

  private static void unfit(String part, Program program, Options options, int nranks) {
    String message =
        assertThrows(InvalidArgumentException.class, () -> program.check(options, nranks))
            .getMessage();
    assertTrue(message.contains(part), message);
  }

  private static Options.Builder options(long min, long max) {
    return Options.builder()
        .backend(Backend.HOST)
        .threads(2)
        .iterations(1)
        .warmup(0)
        .minBytes(min)
        .maxBytes(max);
  }

  @Test
  void aMatrixIsMeasuredAndSummedUp() throws IOException, InterruptedException {
    Path file = matrix("16 32\n64 16\n");
    Program program =
        new AllToAllVProgram().with(Map.of(Traffic.FILE, file.toString(), Traffic.SUMMARY, "1"));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    PrintStream print = new PrintStream(out, true, StandardCharsets.UTF_8);
    Options options = options(96, 96).types(Options.types("all")).build();
    RunResult result =
        new Bench(
                program,
                options,
                RankRange.alone(options),
                TrafficSummary.of(program, print).orElseThrow(),
                Clock.systemUTC())
            .run();
    assertTrue(result.correct());
    assertEquals(12, result.sizes().size());
    for (SizeResult size : result.sizes()) {
      assertEquals(80, size.size());
      assertEquals(0, size.count());
    }
    List<String> lines = out.toString(StandardCharsets.UTF_8).lines().toList();
    assertEquals(12 * 3, lines.size());
    assertTrue(
        lines.get(1).startsWith("#   rank 0 sends 48 B, receives 80 B, algbw "), lines.get(1));
    assertTrue(
        lines.get(2).startsWith("#   rank 1 sends 80 B, receives 48 B, algbw "), lines.get(2));
  }
}
