package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Locale;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The names by which users know types. */
@Tag("parallel")
final class DataTypeTest {
  @Test
  void everyTypeHasTheNameOfNcclTestsAndThatOfItsConstant() {
    for (DataType type : DataType.values()) {
      assertEquals(type, DataType.ofLabel(type.label()));
      assertEquals(type, DataType.ofLabel(type.name()));
      assertEquals(type, DataType.ofLabel(type.name().toLowerCase(Locale.ROOT)));
    }
    assertEquals(DataType.FLOAT32, DataType.ofLabel("float32"));
  }
}
