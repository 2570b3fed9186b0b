package io.nccl4j.bench.program;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ProgramTest {
  @ParameterizedTest
  @CsvSource({"1, 0", "2, 1", "4, 1.5", "8, 1.75"})
  void allReduceCountsEachByteTwiceButForItsOwn(int nranks, double factor) {
    Program program = Programs.allReduce();
    assertEquals(factor, program.busFactor(nranks));
    Case size = Case.of(program, DataType.FLOAT32, ReduceOp.Kind.SUM, -1, nranks, 4_000_003);
    assertEquals(1_000_000, size.shape().count());
    assertEquals(4_000_000, size.size());
    assertEquals(4.0, size.algorithmBandwidth(1e-3));
  }

  @ParameterizedTest
  @CsvSource({"1", "2", "4", "8"})
  void sendRecvCountsBytesOnce(int nranks) {
    Program program = Programs.sendRecv();
    assertEquals(1, program.busFactor(nranks));
    Case size = Case.of(program, DataType.FLOAT64, ReduceOp.Kind.SUM, -1, nranks, 8_000_000);
    assertEquals(1_000_000, size.shape().count());
    assertEquals(0.8, size.algorithmBandwidth(10e-3), 1e-12);
  }

  @Test
  void nothingHasNoBandwidth() {
    Case size = Case.of(Programs.allReduce(), DataType.FLOAT32, ReduceOp.Kind.SUM, -1, 2, 3);
    assertEquals(0, size.size());
    assertEquals(0, size.algorithmBandwidth(0));
  }

  @Test
  void blocksAreRoundedToSixteenBytes() {
    assertEquals(4, Shape.block(12 + 3, 4, 2));
    assertEquals(0, Shape.block(7, 4, 2));
    assertEquals(16, Shape.block(100, 1, 6));
    assertEquals(2, Shape.block(9, 8, 3));
  }

  @Test
  void knowsWhatItIs() {
    assertEquals("all_reduce_perf", Programs.allReduce().testsName());
    assertTrue(Programs.allReduce().inPlace());
    assertFalse(Programs.sendRecv().inPlace());
    assertFalse(Programs.sendRecv().reduces());
  }

  /** The factors of nccl-tests' doc/PERFORMANCE.md, for 4 ranks. */
  @ParameterizedTest
  @CsvSource({
    "allreduce, 1604, 1.5",
    "allgather, 1600, 0.75",
    "reducescatter, 1600, 0.75",
    "broadcast, 1604, 1",
    "reduce, 1604, 1",
    "alltoall, 1600, 0.75",
    "alltoallv, 1584, 0.75",
    "gather, 1600, 0.75",
    "scatter, 1600, 0.75",
    "sendrecv, 1604, 1",
    "hypercube, 1200, 1",
  })
  void bandwidthsAreThoseOfNcclTests(String command, double bytes, double factor) {
    Program program = program(command);
    Case size = Case.of(program, DataType.FLOAT32, ReduceOp.Kind.SUM, 0, 4, 1607);
    assertEquals(bytes / 1e9, size.algorithmBandwidth(1), 1e-15);
    assertEquals(bytes / 1e9 * factor, size.busBandwidth(size.algorithmBandwidth(1)), 1e-15);
  }

  /** Of four ranks, with root 1. */
  @ParameterizedTest
  @CsvSource({
    "allreduce, ''",
    "allgather, ''",
    "reducescatter, ''",
    "broadcast, ''",
    "reduce, ''",
    "alltoall, 01 02 03 10 12 13 20 21 23 30 31 32",
    "alltoallv, 01 02 03 10 12 13 20 21 23 30 31 32",
    "gather, 01 21 31",
    "scatter, 10 12 13",
    "sendrecv, 01 12 23 30",
    "hypercube, 01 02 10 13 20 23 31 32",
  })
  void messagesGoFromRankToRank(String command, String pairs) {
    List<String> found = new ArrayList<>();
    for (int from = 0; from < 4; from++) {
      for (int to = 0; to < 4; to++) {
        if (from != to && program(command).sends(from, to, 4, 1)) {
          found.add("" + from + to);
        }
      }
    }
    assertEquals(pairs, String.join(" ", found));
  }

  @Test
  void oneRankHasTheBandwidthOfItsMemory() {
    for (Program program : Programs.all()) {
      Case size = Case.of(program, DataType.FLOAT32, ReduceOp.Kind.SUM, 0, 1, 1600);
      assertEquals(1600, size.size());
      assertEquals(1600 / 1e9, size.busBandwidth(size.algorithmBandwidth(1)), 1e-15);
    }
  }

  @Test
  void namesAreThoseOfNcclTests() {
    assertEquals(
        List.of(
            "all_reduce_perf",
            "all_gather_perf",
            "reduce_scatter_perf",
            "broadcast_perf",
            "reduce_perf",
            "alltoall_perf",
            "alltoallv_perf",
            "gather_perf",
            "scatter_perf",
            "sendrecv_perf",
            "hypercube_perf"),
        Programs.all().stream().map(Program::testsName).toList());
  }

  private static Program program(String command) {
    return Programs.all().stream()
        .filter(program -> program.command().equals(command))
        .findFirst()
        .orElseThrow();
  }
}
