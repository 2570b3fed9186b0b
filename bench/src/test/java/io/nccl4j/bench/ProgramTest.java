package io.nccl4j.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ProgramTest {
  @ParameterizedTest
  @CsvSource({"1, 0", "2, 1", "4, 1.5", "8, 1.75"})
  void allReduceCountsEachByteTwiceButForItsOwn(int nranks, double factor) {
    AllReduceProgram program = new AllReduceProgram();
    assertEquals(factor, program.busFactor(nranks));
    Case size = Case.of(program, DataType.FLOAT32, ReduceOp.Kind.SUM, -1, nranks, 4_000_003);
    assertEquals(1_000_000, size.shape().count());
    assertEquals(4_000_000, size.size());
    assertEquals(4.0, size.algorithmBandwidth(1e-3));
  }

  @ParameterizedTest
  @CsvSource({"1", "2", "4", "8"})
  void sendRecvCountsBytesOnce(int nranks) {
    SendRecvProgram program = new SendRecvProgram();
    assertEquals(1, program.busFactor(nranks));
    Case size = Case.of(program, DataType.FLOAT64, ReduceOp.Kind.SUM, -1, nranks, 8_000_000);
    assertEquals(1_000_000, size.shape().count());
    assertEquals(0.8, size.algorithmBandwidth(10e-3), 1e-12);
  }

  @Test
  void nothingHasNoBandwidth() {
    Case size = Case.of(new AllReduceProgram(), DataType.FLOAT32, ReduceOp.Kind.SUM, -1, 2, 3);
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
    assertEquals("all_reduce_perf", new AllReduceProgram().testsName());
    assertTrue(new AllReduceProgram().inPlace());
    assertFalse(new SendRecvProgram().inPlace());
    assertFalse(new SendRecvProgram().reduces());
  }
}
