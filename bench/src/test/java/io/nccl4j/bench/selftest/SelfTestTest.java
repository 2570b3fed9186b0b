package io.nccl4j.bench.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.bench.program.Collective;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The self test on the host backend, and its report. */
@Timeout(300)
class SelfTestTest {
  private static final SelfTest.Listener SILENT =
      new SelfTest.Listener() {
        @Override
        public void done(SelfTest.Row row) {}

        @Override
        public void wrong(String oneCase, long elements) {
          System.out.println(oneCase + ": " + elements);
        }

        @Override
        public void failed(String oneCase, String message) {
          System.out.println(oneCase + ": " + message);
        }
      };

  @ParameterizedTest
  @CsvSource({"THREADS, 1", "THREADS, 2", "ONE_THREAD, 3"})
  void nothingIsWrong(SelfTest.Layout layout, int nranks) throws Exception {
    List<SelfTest.Row> rows = SelfTest.inProcess(layout, Backend.HOST, nranks, true, SILENT);
    assertEquals(Collective.values().length + 5, rows.size());
    for (SelfTest.Row row : rows) {
      assertEquals(0, row.wrong(), row::toString);
      assertEquals(0, row.refused(), row::toString);
      assertTrue(row.cases() > 0, row::toString);
      assertEquals(row.wrong(), SelfTest.Row.parse(row.format()).wrong());
      assertEquals(row.operation(), SelfTest.Row.parse(row.format()).operation());
    }
  }

  private static SelfTestReport.Column column(int exitCode, SelfTest.Row... rows) {
    return new SelfTestReport.Column(
        Backend.HOST, SelfTest.Layout.THREADS, 2, exitCode, List.of(rows));
  }

  @Test
  void aReportPassesOnlyIfEverythingDid() {
    SelfTest.Row good = new SelfTest.Row("allReduce", 3, 0, 0, 1);
    SelfTest.Row bad = new SelfTest.Row("reduce", 3, 0, 1, 1);
    assertTrue(new SelfTestReport("1", true, List.of(column(0, good))).passed());
    assertFalse(new SelfTestReport("1", true, List.of()).passed());
    assertFalse(new SelfTestReport("1", true, List.of(column(0))).passed());
    assertFalse(new SelfTestReport("1", true, List.of(column(3, good))).passed());
    SelfTestReport report =
        new SelfTestReport("1", true, List.of(column(0, good), column(7, good, bad), column(4)));
    assertFalse(report.passed());
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    report.writeText(new PrintStream(out, true, StandardCharsets.UTF_8));
    String text = out.toString(StandardCharsets.UTF_8);
    assertTrue(text.contains("failed with exit code 4"), text);
    assertTrue(text.contains("not finished"), text);
    assertTrue(text.endsWith("# FAILED: 9 cases, 1 wrong elements\n"), text);
  }
}
