package io.nccl4j.bench.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.InvalidArgumentException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ByteSizeTest {
  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "8, 8",
    "1K, 1024",
    "1k, 1024",
    "32M, 33554432",
    "32MB, 33554432",
    "2G, 2147483648",
    "2GiB, 2147483648",
    "1.5K, 1536",
    "0.5K, 512",
    "' 7 ', 7",
  })
  void readsSizes(String text, long bytes) {
    assertEquals(bytes, ByteSize.parse(text));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0 B",
    "1023, 1023 B",
    "4096, 4 KiB",
    "1536, 1.50 KiB",
    "33554432, 32 MiB",
    "1610612736, 1.50 GiB",
    "2199023255552, 2 TiB",
    "1125899906842624, 1024 TiB",
  })
  void printsSizes(long bytes, String text) {
    assertEquals(text, ByteSize.text(bytes));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "1000, 1000",
    "1536, 1536",
    "4096, 4K",
    "33554432, 32M",
    "2199023255552, 2048G"
  })
  void printsSizesAsOptions(long bytes, String text) {
    assertEquals(text, ByteSize.option(bytes));
    assertEquals(bytes, ByteSize.parse(text));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "K",
        "-1",
        "1T",
        "1.3K",
        "1e6",
        "0x10",
        "8 8",
        "8K8",
        "99999999999G",
        "1.",
        "NaN"
      })
  void refusesWhatIsNone(String text) {
    InvalidArgumentException e =
        assertThrows(InvalidArgumentException.class, () -> ByteSize.parse(text));
    assertEquals(
        "'" + text + "' is not a size; use a number of bytes, or one with K, M or G, like 32M",
        e.getMessage());
  }
}
