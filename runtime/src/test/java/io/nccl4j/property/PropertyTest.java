package io.nccl4j.property;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** The tries themselves: what they draw, and what a failure says. */
class PropertyTest {
  @Test
  void aFailureNamesItsTryAndItsValues() {
    AssertionError e =
        assertThrows(
            AssertionError.class,
            () ->
                Property.holds(
                    100,
                    draw -> {
                      int[] actions = draw.list("actions", 50, 3, 3);
                      boolean flag = draw.flag("flag");
                      assertTrue(actions.length < 4, "too long");
                      assertTrue(flag || !flag);
                    }));
    String text = e.getMessage();
    assertTrue(text.contains("-Dnccl4j.test.seed=" + Seed.VALUE + " -Dnccl4j.test.case=8"), text);
    assertTrue(text.contains("\n  actions = [3, 3, 3, 3]\n  flag = "), text);
    assertTrue(text.contains("too long"), text);
  }

  @Test
  void aTryDrawsTheSameAgain() {
    for (int number : new int[] {0, 7, 99}) {
      int[] once = new Draw(1, number, 100).list("it", 200, Integer.MIN_VALUE, Integer.MAX_VALUE);
      int[] again = new Draw(1, number, 100).list("it", 200, Integer.MIN_VALUE, Integer.MAX_VALUE);
      assertArrayEquals(once, again);
      assertEquals(200 * number / 99, once.length);
    }
  }

  @Test
  void boundsAreDrawnAndKept() {
    long[][] ranges = {
      {0, 7},
      {5, 5},
      {-3, -1},
      {0, Long.MAX_VALUE},
      {Long.MIN_VALUE, Long.MAX_VALUE},
      {Long.MIN_VALUE, 0}
    };
    for (long[] range : ranges) {
      Set<Long> drawn = new HashSet<>();
      for (int number = 0; number < 500; number++) {
        drawn.add(new Draw(2, number, 500).number("it", range[0], range[1]));
      }
      assertTrue(drawn.stream().allMatch(value -> value >= range[0] && value <= range[1]));
      assertTrue(drawn.contains(range[0]) && drawn.contains(range[1]), () -> drawn.toString());
    }
  }

  @Test
  void lettersAreOfAnyLength() {
    Set<Integer> lengths = new HashSet<>();
    for (int number = 0; number < 500; number++) {
      String text = new Draw(3, number, 500).letters("it", 8);
      assertTrue(text.matches("[a-zA-Z]{0,8}"), text);
      lengths.add(text.length());
    }
    assertEquals(9, lengths.size());
    assertFalse(lengths.contains(9));
  }
}
