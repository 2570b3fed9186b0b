package io.nccl4j.bench.output;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.result.RunResult;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;

class TextWriterTest {
  private static String text(RunResult result) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    SampleRun.tell(new TextWriter(new PrintStream(bytes, false, StandardCharsets.UTF_8)), result);
    return bytes.toString(StandardCharsets.UTF_8);
  }

  private static String golden(String name) throws IOException {
    try (InputStream in = TextWriterTest.class.getResourceAsStream(name)) {
      assertTrue(in != null, name);
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  // Trailing blanks are part of nccl-tests' layout; the files show them as '$' at the line's end.
  private static String shown(String text) {
    return text.replaceAll("(?m) +$", "$0\\$");
  }

  @Test
  void printsNcclTestsTable() throws IOException {
    assertEquals(golden("allreduce.txt"), shown(text(SampleRun.allReduce(false))));
  }

  @Test
  void printsTimeStampsAndBlocking() throws IOException {
    assertEquals(golden("timestamps.txt"), shown(text(SampleRun.allReduce(true))));
  }

  @Test
  void printsNothingInPlaceForSendRecv() throws IOException {
    assertEquals(golden("sendrecv.txt"), shown(text(SampleRun.sendRecv())));
  }

  @Test
  void printsHostsAndNetworkOfSeveralHostsOnly() throws IOException {
    String hosts = "# Hosts 2: ranks 0 | 1\n# Network: netty (TCP) on eth0, 10.0.0.7\n";
    String text = shown(text(SampleRun.sendRecvBetweenHosts()));
    assertTrue(text.contains("\n" + hosts + "#\n# Using devices\n"), text);
    assertEquals(golden("sendrecv.txt"), text.replace(hosts, ""));
  }

  /** Scripts take columns from the right, because those on the left differ between programs. */
  @Test
  void columnsAreWhereScriptsLook() {
    List<String[]> rows =
        text(SampleRun.allReduce(false))
            .lines()
            .filter(line -> !line.startsWith("#"))
            .map(line -> line.strip().split(" +"))
            .toList();
    assertEquals(3, rows.size());
    for (String[] row : rows) {
      assertEquals(13, row.length);
    }
    String[] second = rows.get(1);
    assertEquals("1073741824", second[0]);
    assertEquals("1.23457e+06", second[12]);
    assertEquals("0.09", second[11]);
    assertEquals("1.2e+07", second[9]);
    assertEquals("0", second[8]);
    assertEquals("8.70", second[7]);
    assertEquals("123457", second[5]);
    assertEquals("N/A", rows.get(2)[8]);
  }

  @Test
  void footerIsWhereScriptsLook() {
    String text = text(SampleRun.allReduce(false));
    assertTrue(text.contains("\n# Out of bounds values : 2 FAILED\n"), text);
    assertTrue(text.contains("\n# First call           : 812.3 us cold, 1.3 us warm\n"), text);
    String average =
        text.lines().filter(line -> line.contains("Avg bus bandwidth")).findFirst().orElseThrow();
    double value = Double.parseDouble(average.substring(average.indexOf(':') + 1).strip());
    assertEquals(SampleRun.allReduce(false).averageBusBw(), value, 1e-5 * value);
  }

  @Test
  void saysWhenNobodyReads() {
    OutputStream broken =
        new OutputStream() {
          @Override
          public void write(int b) throws IOException {
            throw new IOException("broken pipe");
          }
        };
    TextWriter writer = new TextWriter(new PrintStream(broken, false, StandardCharsets.UTF_8));
    assertThrows(SystemErrorException.class, () -> writer.jsonGoesTo("x"));
  }
}
