package io.nccl4j.property;

import java.util.function.Consumer;
import org.opentest4j.TestAbortedException;

/**
 * Tries what should hold for all values with many of them. A failure names the try, its seed and
 * the values it drew; the properties nccl4j.test.seed and nccl4j.test.case run that one again.
 */
public final class Property {
  /** The one try to run, or -1 for all. */
  private static final int ONLY = Integer.getInteger("nccl4j.test.case", -1);

  static {
    System.out.println("properties: nccl4j.test.seed=" + Seed.VALUE);
  }

  private Property() {}

  /** Lists are short in the first tries, and longest in the last. */
  public static void holds(int tries, Consumer<Draw> property) {
    for (int number = ONLY < 0 ? 0 : ONLY; number < (ONLY < 0 ? tries : ONLY + 1); number++) {
      Draw draw = new Draw(Seed.VALUE, number, tries);
      try {
        property.accept(draw);
      } catch (TestAbortedException e) {
        throw e;
      } catch (Throwable e) {
        throw new AssertionError(
            "try %d of %d, -Dnccl4j.test.seed=%d -Dnccl4j.test.case=%d, with%s%n%s"
                .formatted(number, tries, Seed.VALUE, number, draw, e),
            e);
      }
    }
  }
}
