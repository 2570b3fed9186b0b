package io.nccl4j.internal.operation;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.property.Property;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Signatures tell different calls apart as well as 32 bits can. */
class SignatureTest {
  /** What graphs count on: many calls together are one factor and one summand. */
  @Test
  void aChainIsAFactorAndASummand() {
    Property.holds(
        1000,
        draw -> {
          int first = draw.integer("first", Integer.MIN_VALUE, Integer.MAX_VALUE);
          int[] calls = draw.list("calls", 255, Integer.MIN_VALUE, Integer.MAX_VALUE);
          int chained = first;
          int factor = 1;
          int sum = 0;
          for (int call : calls) {
            chained = Signature.chain(chained, call);
            factor *= Signature.FACTOR;
            sum = Signature.chain(sum, call);
          }
          assertEquals(chained, first * factor + sum);
        });
  }

  @Test
  void callsThatDifferInOneThingDiffer() {
    Set<Integer> signatures = new HashSet<>();
    int calls = 0;
    for (int number = 0; number < Operation.count(); number++) {
      Operation operation = Operation.of(number);
      for (int type = 0; type < 12; type++) {
        for (int reduction = 0; reduction < 6; reduction++) {
          for (int root = 0; root < 4; root++) {
            for (long count : new long[] {0, 1, 2, 1000, 1L << 32, Long.MAX_VALUE}) {
              calls++;
              signatures.add(Signature.of(Signature.code(operation, type, reduction, root), count));
            }
          }
        }
      }
    }
    // The birthday bound for 27,648 values of 32 bits is 0.09 collisions.
    assertTrue(signatures.size() >= calls - 2, signatures.size() + " of " + calls);
  }

  @Test
  void aDifferenceStaysInTheChain() {
    int one = Signature.of(1, 10);
    int other = Signature.of(1, 11);
    for (int i = 0; i < 100_000; i++) {
      assertNotEquals(one, other, "after " + i);
      one = Signature.chain(one, Signature.of(1, 7));
      other = Signature.chain(other, Signature.of(1, 7));
    }
  }

  @Test
  void countsInAnotherOrderAreOtherCounts() {
    Property.holds(
        1000,
        draw -> {
          long a = draw.number("a", Long.MIN_VALUE, Long.MAX_VALUE);
          long b = draw.number("b", Long.MIN_VALUE, Long.MAX_VALUE);
          if (a != b) {
            assertNotEquals(
                Signature.ofCounts(new long[] {a, b}, 2), Signature.ofCounts(new long[] {b, a}, 2));
          }
        });
  }
}
