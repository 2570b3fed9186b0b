package io.nccl4j.bench.options;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.InvalidArgumentException;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

class SweepTest {
  static Stream<Arguments> sweeps() {
    return Stream.of(
        Arguments.of(new Sweep(8, 64, 1, 2), new long[] {8, 16, 32, 64}),
        Arguments.of(new Sweep(8, 63, 1, 2), new long[] {8, 16, 32}),
        Arguments.of(new Sweep(3, 100, 1, 10), new long[] {3, 30}),
        Arguments.of(new Sweep(8, 32, 8, 1), new long[] {8, 16, 24, 32}),
        Arguments.of(new Sweep(0, 10, 4, 1), new long[] {0, 4, 8}),
        Arguments.of(new Sweep(5, 5, 0, 1), new long[] {5}),
        Arguments.of(new Sweep(0, 0, 0, 2), new long[] {0}),
        Arguments.of(
            new Sweep(1L << 61, Long.MAX_VALUE, 1L << 62, 1),
            new long[] {1L << 61, (1L << 61) + (1L << 62)}),
        Arguments.of(new Sweep(1L << 61, Long.MAX_VALUE, 1, 3), new long[] {1L << 61, 3L << 61}));
  }

  @ParameterizedTest
  @MethodSource("sweeps")
  void goesThroughItsSizes(Sweep sweep, long[] sizes) {
    assertArrayEquals(sizes, sweep.sizes().toArray());
  }

  @Test
  void warmsUpByDoubling() {
    assertArrayEquals(new long[] {3, 6, 12}, new Sweep(3, 20, 1, 1).doublings().toArray());
    assertArrayEquals(new long[] {0, 1, 2, 4}, new Sweep(0, 4, 1, 1).doublings().toArray());
    assertEquals(2, new Sweep(1L << 61, Long.MAX_VALUE, 1, 3).doublings().count());
  }

  @ParameterizedTest
  @CsvSource({"-1,8,1,1", "16,8,1,1", "8,16,0,1", "8,16,-1,1", "8,16,1,0", "0,16,1,2"})
  void refusesWhatWouldNotEnd(long min, long max, long step, int factor) {
    assertThrows(InvalidArgumentException.class, () -> new Sweep(min, max, step, factor));
  }
}
