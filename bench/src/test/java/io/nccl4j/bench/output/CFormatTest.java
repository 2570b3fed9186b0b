package io.nccl4j.bench.output;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The expected texts were printed by C. */
class CFormatTest {
  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "1, 1",
    "100, 100",
    "999999, 999999",
    "1000000, 1e+06",
    "1234567, 1.23457e+06",
    "12.3, 12.3",
    "0.132602349, 0.132602",
    "0.0001, 0.0001",
    "0.00001234, 1.234e-05",
    "-2.5, -2.5",
    "1e100, 1e+100",
    "999999.9, 1e+06",
  })
  void printsLikeG(double value, String text) {
    assertEquals(text, CFormat.general(value));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 7, '   0.00'",
    "3.14159, 7, '   3.14'",
    "9999.99, 7, 9999.99",
    "12345.67, 7, 12345.7",
    "123456.7, 7, ' 123457'",
    "1234567.8, 7, 1234568",
    "12345678.9, 7, 1.2e+07",
    "999.99, 6, 999.99",
    "1234.56, 6, 1234.6",
    "1234567, 6, ' 1e+06'",
  })
  void fitsColumns(double value, int width, String text) {
    assertEquals(text, CFormat.fitted(value, width));
  }
}
